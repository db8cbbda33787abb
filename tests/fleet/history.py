"""The checker of histories: what is stored of a thread against what processes say that they did to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.fleet.acts import ThreadLog

from perdure.records import Commit, ThreadHeader
from perdure.store import Store


@dataclass(frozen=True)
class Made:
    """One commit, as it says itself who made it."""

    number: int
    act: str
    fence: int
    process: int


async def problems_of(store: Store, thread_id: str, log: ThreadLog) -> list[str]:
    """Whatever cannot be if each commit was made by one owner, once, after the one before. Empty if all is well."""
    standing, commits = await store.thread_header(thread_id), await store.commits(thread_id)
    if standing is None:
        return [f"{thread_id}: there is no such thread"] if log.done or log.posted else []
    made = [_made(commit) for commit in commits]
    problems = [
        *_of_the_line(standing, commits),
        *_of_fences(made),
        *_of_claims(log),
        *_of_acts(made, log),
        *_of_the_inbox(standing, log),
        *await _of_events(store, standing),
        *await _of_what_is_read(store, standing, commits, made),
    ]
    return [f"{thread_id}: {problem}" for problem in problems]


def _made(commit: Commit) -> Made:
    assert commit.events is not None
    [[_, act, fence, process], *_] = json.loads(commit.events.body)
    return Made(commit.number, act, fence, process)


def _of_the_line(standing: ThreadHeader, commits: Sequence[Commit]) -> Iterator[str]:
    numbers = [commit.number for commit in commits]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its commits are {numbers}"
    if standing.number != len(numbers):
        yield f"it stands at {standing.number}, and has {len(numbers)} commits"
    head = None
    for commit in commits:
        if commit.info is None:
            continue
        if commit.parent != head:
            yield f"commit {commit.number} continues from {commit.parent}, and the checkpoint before it is {head}"
        head = commit.number
    if standing.head != head:
        yield f"its head is {standing.head}, and its newest checkpoint {head}"


def _of_fences(made: Sequence[Made]) -> Iterator[str]:
    for before, after in pairwise(made):
        if after.fence < before.fence:
            yield f"fence {after.fence} of {after.act} follows {before.fence}"
        if after.fence == before.fence and after.process != before.process:
            yield f"two processes had fence {after.fence}: {before.act} and {after.act}"
    if made and made[-1].fence < 1:
        yield f"a fence is {made[-1].fence}"


def _of_claims(log: ThreadLog) -> Iterator[str]:
    """Each claim of a thread gets its own fence and sees earlier posts. Only a newer fence rejects an act."""
    newest = max((opened.fence for opened in log.opened), default=0)
    for fence, count in Counter(opened.fence for opened in log.opened).items():
        if count > 1:
            yield f"fence {fence} was given {count} times"
    for act in log.refused:
        if log.begun[act] >= newest:
            yield f"{act} was refused, and nobody had a newer fence than its {log.begun[act]}"
    used = {log.begun[act] for act in log.done}  # another may lose the thread again before it has looked
    for opened in log.opened:
        for item, posted_at in log.posted.items():
            consumer = log.consumed.get(item)
            taken_before = consumer is not None and log.begun[consumer] < opened.fence
            is_due = posted_at < opened.asked_at and opened.fence in used and not log.has_unknown
            if is_due and item not in opened.inbox and not taken_before:
                yield f"{opened.by} did not find item {item}, which was posted before and taken in by {consumer}"


def _of_acts(made: Sequence[Made], log: ThreadLog) -> Iterator[str]:
    times = Counter(commit.act for commit in made)
    at = {commit.act: commit.number for commit in made}
    for act, number in log.done.items():
        if times[act] != 1 or at[act] != number:
            yield f"{act} was acknowledged as commit {number}, and is there {times[act]} times, at {at.get(act)}"
    for act in log.refused & set(times):
        yield f"{act} was refused, and is there at {at[act]}"
    for act, count in times.items():
        if act not in log.begun or count > 1:
            yield f"{act} is there {count} times, {'' if act in log.begun else 'never '}begun"
    for first, done_at in log.done_at.items():
        for then, number in at.items():
            if done_at < log.begun_at.get(then, 0) and at.get(first, 0) >= number:
                yield f"{first} was acknowledged before {then} began, and they are at {at.get(first)} and {number}"


def _of_the_inbox(standing: ThreadHeader, log: ThreadLog) -> Iterator[str]:
    waiting, consumed = Counter(item.item_id for item in standing.inbox), set(standing.consumed)
    for item in set(log.posted) - consumed - set(waiting):
        yield f"item {item} was posted, and is lost"
    for item in set(log.consumed) & set(waiting):
        yield f"item {item} was taken in by {log.consumed[item]}, and is still there"
    for item in (set(waiting) | consumed) - log.tried_posts:
        yield f"item {item} was never posted"
    if set(waiting) & consumed or any(count > 1 for count in waiting.values()):
        yield f"items are there twice: {waiting} and {consumed}"
    if log.repeated:
        yield f"items were handed out again: {log.repeated}"


async def _of_events(store: Store, standing: ThreadHeader) -> Iterator[str]:
    problems, last = [], 0
    for events in await store.events_after(standing.thread_id, None):
        if events.first_seq != last + 1:
            problems.append(f"event {events.first_seq} follows {last}")
        last = events.first_seq + events.count - 1
    if last != standing.last_seq:
        problems.append(f"its last event is {last}, and it stands at {standing.last_seq}")
    return iter(problems)


async def _of_what_is_read(
    store: Store, standing: ThreadHeader, commits: Sequence[Commit], made: Sequence[Made]
) -> Iterator[str]:
    """Lists and chunks say the same as the commits."""
    problems = []
    listed = [info.number for info in await store.infos(thread_id=standing.thread_id)]
    if listed != [commit.number for commit in commits if commit.info is not None]:
        problems.append(f"the checkpoints {listed} are listed")
    held = await store.read_chunks(standing.thread_id, [commit.number for commit in made])
    for commit in made:
        if json.dumps(commit.act).encode() not in held.get(commit.number, {}).values():
            problems.append(f"the chunk of {commit.act} is not in commit {commit.number}")
    if await store.check():
        problems.append(f"the store says that {await store.check()}")
    return iter(problems)
