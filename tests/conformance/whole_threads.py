"""Whole threads as they are stored: read, compared, and one with something of everything to try it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.records import Commit, LoggedEvents, ThreadHeader
from perdure.store import Store
from perdure.testing.conformance.threads import FAR, at, chunks, make_events, make_request, own


async def a_full_thread(store: Store, thread_id: str = "t") -> None:
    """Branches, pins, a pruned beginning, a forgotten log, notes, and something that waits of every kind."""
    await store.post(thread_id, "taken", "message", b'"1"')
    owner = await own(store, thread_id)
    await owner.save(chunks={"aa": b"1", "bb": b"2", "e1": b"3"}, events=make_events(1, 2, refers=True, own=("e1",)))
    fork = await owner.save(chunks={"cc": b"4"}, dropped=["bb.1"], events=1)
    await owner.note(chunks={"e3": b"5"}, events=make_events(4, own=("e3",)), status="FAILED", consumed=["taken"])
    await owner.save(chunks={"dd": b"6"}, dropped=["cc.2"], events=make_events(5, refers=True))
    await store.pin(f"{thread_id}-4")
    owner.head = fork
    await owner.save(chunks={"ee": b"7"}, events=2)
    await owner.save(events=1)
    await owner.save(chunks={"ff": b"8"}, dropped=["ee.5"], status="WAITING")
    await owner.release()
    await store.prune(thread_id, [f"{thread_id}-1", f"{thread_id}-5"], events_before=2)
    owner = await own(store, thread_id, owner="run-2")
    questions = [make_request(thread_id, "q", 1, deadline=at(9), assignee="ann"), make_request(thread_id, "r", 2)]
    await owner.save(requests=questions, due_at=at(9), events=1, status="IDLE_WITH_PENDING_REQUESTS")
    await owner.record(5, b'{"step":1}')
    await owner.record(6, b'{"step":2}')
    await store.post(thread_id, "waits", "message", b'"2"')
    await store.post(thread_id, "waits too", "answer", b'"3"')
    await owner.release()


async def read_out(store: Store, thread_id: str = "t", page: int | None = None) -> tuple[ThreadHeader, list[Commit]]:
    """All of a thread."""
    standing = await store.thread_header(thread_id)
    assert standing is not None
    commits = list(await store.commits(thread_id, limit=page))
    while page is not None and len(commits) < 1000:
        more = await store.commits(thread_id, after=commits[-1].number, limit=page) if commits else []
        if not more:
            break
        commits += more
    return standing, commits


def plain_standing(standing: ThreadHeader) -> dict[str, Any]:
    """Without the fence, which may be higher where it was added."""
    fields = {name: getattr(standing, name) for name in ThreadHeader.__struct_fields__ if name != "fence"}
    fields["consumed"], fields["pins"] = sorted(standing.consumed), sorted(standing.pins)
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in fields.items()
    }


def plain_commit(commit: Commit) -> dict[str, Any]:
    return {
        "number": commit.number,
        "thread": commit.lease.thread_id,
        "info": commit.info,
        "root": commit.root,
        "events": None if commit.events is None else _plain_events(commit.events),
        "says": (commit.status, commit.run_id, commit.timestamp, commit.parent),
        "chunks": {digest: bytes(chunk) for digest, chunk in commit.chunks.items()},
        "dropped": sorted(commit.dropped),
        "carried": sorted(commit.carried),
    }


def _plain_events(events: LoggedEvents) -> tuple[Any, ...]:
    return (events.first_seq, events.count, events.body, events.refers, sorted(events.own))


async def all_of(store: Store, thread_id: str = "t") -> dict[str, Any]:
    """Whatever can be read of one thread without claiming it."""
    standing, commits = await read_out(store, thread_id)
    infos = list(await store.infos(thread_id=thread_id))
    logged = await store.events_after(thread_id, None)
    return {
        "infos": infos,
        "threads": list(await store.threads(thread_id=thread_id)),
        "checkpoints": [await store.find_checkpoint(info.checkpoint_id) for info in infos],
        "head": await store.head(thread_id),
        "events": [(_plain_events(events), events.run_id, events.timestamp, events.info) for events in logged],
        "chunks": await chunks(store, thread_id),
        "requests": list(await store.pending_requests(thread_id=thread_id)),
        "due": [thread for thread in await store.due(FAR) if thread.thread_id == thread_id],
        "standing": plain_standing(standing),
        "commits": [plain_commit(commit) for commit in commits],
    }


def renamed(standing: ThreadHeader, commits: Sequence[Commit], to: str) -> tuple[ThreadHeader, list[Commit]]:
    """As a thread of another name, with checkpoints of other names."""
    infos = [commit.info for commit in commits if commit.info is not None]
    names = {info.checkpoint_id: f"{to}-{info.number}" for info in infos}
    changed = []
    for commit in commits:
        info = commit.info
        if info is not None:
            previous = names.get(info.previous_checkpoint_id or "", info.previous_checkpoint_id)
            new = {"checkpoint_id": names[info.checkpoint_id], "thread_id": to, "previous_checkpoint_id": previous}
            info = msgspec.structs.replace(info, **new)
        lease = msgspec.structs.replace(commit.lease, thread_id=to)
        changed.append(msgspec.structs.replace(commit, info=info, lease=lease))
    requests = [msgspec.structs.replace(request, thread_id=to) for request in standing.requests]
    return msgspec.structs.replace(standing, thread_id=to, requests=requests), changed
