"""Integrity of commits: a whole thread has no problems, and every kind of damage is reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.property.changing_trees import PROSE

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.thread import StoredThread
from perdure.checkpoints.transfer.integrity import ThreadIntegrity
from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec
from perdure.events import WorkflowEvent
from perdure.names import digest_of
from perdure.records import Commit, InboxItem, JournalEntry, LoggedEvents, PendingRequest, ThreadHeader
from perdure.stores.memory.store import MemoryStore

AT = datetime(2026, 1, 1, tzinfo=UTC)
Thread = tuple[ThreadHeader, list[Commit]]
Change = Callable[[ThreadHeader, list[Commit]], Thread]


async def a_thread() -> Thread:
    """With texts, lists and dicts that are hash trees, shared between its checkpoints, and an event that refers."""
    store = MemoryStore()
    opened = await store.open("t", "owner")
    thread = StoredThread(store, opened, DeclaredTypes(), JsonCodec(), RecentThreads())
    state: dict[str, Any] = {
        "text": PROSE[:9_000],
        "lines": [],
        "by key": {},
        "nested": [[["x" * 600]]],
        "tricky": {"$of": ["a.1"] * 200},
    }
    previous = None
    for number in range(1, 5):
        state = {
            **state,
            "lines": [*state["lines"], *(f"{number} {index} {PROSE[index : index + 90]}" for index in range(16))],
        }
        state["by key"] = {**state["by key"], **{f"{number}.{index}": PROSE[index : index + 90] for index in range(16)}}
        checkpoint = WorkflowCheckpoint(
            "w",
            "hash",
            checkpoint_id=f"c{number}",
            previous_checkpoint_id=previous,
            thread_id="t",
            number=number,
            status="IDLE",
            state=state,
        )
        events = [WorkflowEvent("output", state["lines"], executor_id="e"), WorkflowEvent("output", 1, executor_id="e")]
        await thread.commit(checkpoint, events, "run-1", "IDLE")
        previous = checkpoint.checkpoint_id
    standing = await store.thread_header("t")
    assert standing is not None
    return standing, list(await store.commits("t"))


def problems(standing: ThreadHeader, commits: list[Commit]) -> list[str]:
    integrity = ThreadIntegrity(standing)
    findings = [*integrity.check_header()]
    for commit in commits:
        findings += integrity.add(commit)
    return [finding.reason for finding in [*findings, *integrity.end()]]


def replaced(commits: list[Commit], index: int, **parts: Any) -> list[Commit]:
    return [msgspec.structs.replace(commit, **parts) if at == index else commit for at, commit in enumerate(commits)]


def with_chunk(commits: list[Commit], index: int, digest: str, data: bytes | None) -> list[Commit]:
    """Replace a chunk of a commit, or remove it if `data` is None."""
    chunks = {key: chunk for key, chunk in commits[index].chunks.items() if key != digest}
    return replaced(commits, index, chunks=chunks if data is None else {**chunks, digest: data})


async def test_whole_thread_has_no_problems_in_any_order_of_its_chunks() -> None:
    standing, commits = await a_thread()
    assert sum(len(commit.chunks) for commit in commits) > 30
    assert problems(standing, commits) == []
    backwards = [msgspec.structs.replace(commit, chunks=dict(reversed([*commit.chunks.items()]))) for commit in commits]
    assert problems(standing, backwards) == []


async def test_missing_or_changed_chunk_is_reported_for_all_that_need_it() -> None:
    standing, commits = await a_thread()
    needed = 0
    for index, commit in enumerate(commits):
        for digest, data in commit.chunks.items():
            gone = problems(standing, with_chunk(commits, index, digest, None))
            assert gone and all(f"chunk {digest}.{commit.number} is missing" in problem for problem in gone)
            changed = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
            findings = problems(standing, with_chunk(commits, index, digest, changed))
            assert all(
                f"chunk {digest}.{commit.number}" in problem and "does not match its digest" in problem
                for problem in findings
            )
            assert len(findings) == 1 + len(gone), "a problem of the chunk, and of all that need it"
            needed += len(gone)
    assert needed > sum(len(commit.chunks) for commit in commits), "later checkpoints also need unchanged chunks"


async def test_unused_chunk_may_refer_to_a_missing_chunk() -> None:
    standing, commits = await a_thread()
    garbage = b'{"$ref":"AAAAAAAAAAAAAAAAAAAAAA.1"}'
    assert problems(standing, with_chunk(commits, 1, digest_of(garbage), garbage)) == []


def _root(text: bytes) -> Change:
    return lambda standing, commits: (standing, replaced(commits, 3, root=text))


def _standing(**parts: Any) -> Change:
    return lambda standing, commits: (msgspec.structs.replace(standing, **parts), commits)


def _commit(index: int, **parts: Any) -> Change:
    return lambda standing, commits: (standing, replaced(commits, index, **parts))


def _info(index: int, **parts: Any) -> Change:
    return _part("info", index, parts)


def _events(index: int, **parts: Any) -> Change:
    return _part("events", index, parts)


def _part(name: str, index: int, parts: dict[str, Any]) -> Change:
    def change(standing: ThreadHeader, commits: list[Commit]) -> Thread:
        changed = msgspec.structs.replace(getattr(commits[index], name), **parts)
        return standing, replaced(commits, index, **{name: changed})

    return change


def _ordered(*places: int) -> Change:
    return lambda standing, commits: (standing, [commits[place] for place in places])


CHANGES: dict[str, tuple[Change, str]] = {
    "root is no JSON": (_root(b'{"x":'), "its root: it is not valid JSON"),
    "root refers to nothing": (_root(b'{"x":{"$list":"AA.1","depth":1}}'), "chunk AA.1 is missing: commit 1 does not"),
    "root refers to a number": (_root(b'{"x":{"$ref":7}}'), "'7' is not a reference"),
    "root refers to a later commit": (_root(b'{"x":{"$ref":"AAAA.9"}}'), "commit 9 does not hold it"),
    "root is gone": (_commit(3, root=None), "commit 4 has no content"),
    "a commit is gone": (_ordered(0, 2, 3), "commit 2, which does not exist"),
    "the head is gone": (_ordered(0, 1, 2), "its newest checkpoint is that of commit 3"),
    "commits are swapped": (_ordered(1, 0, 2, 3), "commit 1 follows commit 2"),
    "a commit is there twice": (_ordered(0, 0, 1, 2, 3), "commit 1 follows commit 1"),
    "there are more than there should be": (_standing(number=3), "commit 4 exists, but the thread is at commit 3"),
    "it is of another thread": (_info(3, thread_id="u"), "holds a checkpoint of commit 4 of 'u'"),
    "it is of another commit": (_info(3, number=7), "holds a checkpoint of commit 7"),
    "an id is there twice": (_info(3, checkpoint_id="c1"), "commit 4 and an earlier one have the same checkpoint id"),
    "it follows another": (_info(3, previous_checkpoint_id="c1"), "continues from 'c3', but it names 'c1'"),
    "it continues from nothing": (_commit(3, parent=17), "continues from commit 17, which does not exist"),
    "another status": (_standing(status="X"), "its last commit has ('IDLE', "),
    "another time": (_standing(updated_at=""), "its last commit has ('IDLE', "),
    "another workflow": (_standing(workflow_name="v"), "'w'), but the thread ('IDLE', "),
    "another head": (_standing(head=2), "its head is commit 2"),
    "events begin elsewhere": (_events(1, first_seq=4), "holds events 4 to 5, expected 3 first"),
    "events are more": (_events(1, count=3), "commit 2 does not hold 3 events"),
    "events are gone": (_commit(3, events=None), "its events end with 6, expected 8"),
    "events are no JSON": (_events(3, body=b"[["), "the events of commit 4: it is not valid JSON"),
    "events refer to nothing": (_events(3, body=b'[{"$ref":"AAAA.1"},1]'), "chunk AAAA.1 is missing"),
    "more events are kept": (_standing(first_seq=0), "expected 0 first"),
    "a pin of nothing": (_standing(pins=[9]), "commit 9 is pinned, but holds no checkpoint"),
    "a journal that is no JSON": (
        _standing(journal=[JournalEntry(4, 1, b"{")]),
        "the journal of delivery 1: it is not",
    ),
    "a journal of before": (
        _standing(journal=[JournalEntry(3, 1, b"{}")]),
        "delivery 1 extends commit 3, not the last",
    ),
    "an inbox that is no JSON": (_standing(inbox=[InboxItem("i", "message", b"")]), "item 'i' of the inbox: it is not"),
    "another's request": (_standing(requests=[PendingRequest("u", "r", "e", AT)]), "request 'r' belongs to thread 'u'"),
}


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES)
async def test_each_inconsistency_is_reported(change: Change, reason: str) -> None:
    standing, commits = change(*await a_thread())
    findings = problems(standing, commits)
    assert any(reason in problem for problem in findings), findings


async def test_pruned_events_are_not_checked() -> None:
    standing, commits = await a_thread()
    later = msgspec.structs.replace(standing, first_seq=5)
    events = LoggedEvents(1, 2, b"[[", False)
    assert problems(later, replaced(commits, 0, events=events)) == []


async def test_hash_tree_of_the_wrong_height_is_reported() -> None:
    """The root states a height that its chunks do not have. The chunks are whole, but the tree is unreadable."""
    standing, commits = await a_thread()
    root = commits[3].root or b""
    assert b'"depth":2' in root or b'"depth":1' in root
    for depth in (b"1", b"2"):
        higher = root.replace(b'"depth":' + depth, b'"depth":7')
        findings = problems(standing, replaced(commits, 3, root=higher))
        assert higher == root or any("not the top of a hash tree of height 7" in problem for problem in findings)
