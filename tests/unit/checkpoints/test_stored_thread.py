"""A thread over a store: what its commits hold, what is shared between them, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.property.changing_trees import PROSE

from perdure import DamagedCheckpoint, StorageFailed, ThreadConflict, UnreadableValue, UnsavableValue
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.assembly import new_assembly
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.thread import StoredThread, read_checkpoint
from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec
from perdure.events import WorkflowEvent
from perdure.records import Commit
from perdure.store import Store
from perdure.stores.memory.store import MemoryStore
from perdure.stores.sqlite.store import SqliteStore

DECLARED = DeclaredTypes()
BIG = PROSE[:9_000]


class KeepingStore(MemoryStore):
    """Keeps its commits, and raises the errors in `failures`."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Commit] = []
        self.failures: dict[int, BaseException] = {}
        """By commit: raised instead of storing it."""

    async def commit(self, commit: Commit) -> None:
        await asyncio.sleep(0)
        if commit.number in self.failures:
            raise self.failures.pop(commit.number)
        await super().commit(commit)
        self.written.append(commit)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "x.db")
    yield made
    await made.close()


async def opened(store: Store, recent: RecentThreads | None = None, max_lag: int = 1) -> StoredThread:
    opened_thread = await store.open("t", "owner", takeover=True)
    return StoredThread(store, opened_thread, DECLARED, JsonCodec(), recent or RecentThreads(), max_lag=max_lag)


def checkpoint(number: int, previous: str | None = None, **state: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(
        "w",
        "hash",
        checkpoint_id=f"c{number}",
        previous_checkpoint_id=previous,
        thread_id="t",
        number=number,
        state=state,
    )


async def moved(thread: StoredThread, number: int, previous: str | None = None, **state: Any) -> None:
    await thread.commit(checkpoint(number, previous, **state), (), "run-1", "IDLE")


async def states(store: Store, ids: Iterable[str]) -> list[Any]:
    values = []
    for checkpoint_id in ids:
        stored = await store.find_checkpoint(checkpoint_id)
        assert stored is not None
        values.append((await read_checkpoint(store, stored.root, stored.info, JsonCodec()))[0].state)
    return values


# ---------------------------------------------------------------- what commits hold


async def test_commit_names_its_parent_and_leaves_out_chunks_of_the_parent() -> None:
    store = KeepingStore()
    thread = await opened(store)
    await moved(thread, 1, text=BIG)
    await moved(thread, 2, "c1", text=BIG, more="x" * 600)
    await thread.commit(None, (), "run-1", "FAILED")
    await moved(thread, 4, "c2", text="", more="x" * 600)
    assert [commit.parent for commit in store.written] == [None, 1, None, 2]
    assert [len(commit.chunks) > 5 for commit in store.written] == [True, False, False, False]
    assert [len(commit.dropped) > 3 for commit in store.written] == [False, False, False, True]
    assert [commit.number for commit in store.written] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_checkpoint_after_a_rewind_shares_chunks_with_its_parent(is_restarted: bool) -> None:
    store = KeepingStore()
    thread = await opened(store)
    await moved(thread, 1, text=BIG)
    await moved(thread, 2, "c1", text="")
    thread = await opened(store) if is_restarted else thread
    await moved(thread, 3, "c1", text=BIG + "more")
    assert store.written[-1].parent == 1
    assert sum(map(len, store.written[-1].chunks.values())) < 3_000
    assert await states(store, ["c1", "c2", "c3"]) == [{"text": BIG}, {"text": ""}, {"text": BIG + "more"}]


async def test_checkpoint_after_a_pruned_or_unknown_parent_is_whole() -> None:
    store = KeepingStore()
    thread = await opened(store)
    await moved(thread, 1, text=BIG)
    await moved(thread, 2, "c1", text="")
    await store.prune("t", ["c1"])
    await moved(thread, 3, "c1", text=BIG)
    await moved(thread, 4, "nobody", text=BIG)
    assert [commit.parent for commit in store.written[2:]] == [None, None]
    assert await states(store, ["c3", "c4"]) == [{"text": BIG}, {"text": BIG}]


async def test_events_are_read_unchanged_with_and_without_a_checkpoint(store: Store) -> None:
    thread = await opened(store)
    for number, previous in ((1, None), (3, "c1")):
        events = [WorkflowEvent("output", data={"text": BIG, "n": number}, executor_id="a") for _ in range(2)]
        await thread.commit(checkpoint(number, previous, text=BIG), events, "run-1", "IDLE")
        await thread.commit(None, [WorkflowEvent("output", data=BIG, executor_id="b")], "run-1", "IDLE")
    outputs = []
    for logged in await store.events_after("t", 0):
        trees, _ = await new_assembly(store, "t").tree(logged.body, "events")
        outputs += [(logged.first_seq, tree[2]["data"]) for tree in trees]
    assert thread.last_seq == 6
    first, second = ({"text": BIG, "n": number} for number in (1, 3))
    assert outputs == [(1, first), (1, first), (3, BIG), (4, second), (4, second), (6, BIG)]


async def test_events_keep_their_chunks_when_the_checkpoint_is_pruned(store: Store) -> None:
    thread = await opened(store)
    await moved(thread, 1, text=BIG)
    await thread.commit(None, [WorkflowEvent("output", data=BIG, executor_id="a")], "run-1", "IDLE")
    await moved(thread, 3, "c1", text="")
    assert await store.prune("t", ["c1"]) == 1
    (logged,) = await store.events_after("t", 0)
    (event,), _ = await new_assembly(store, "t").tree(logged.body, "events")
    assert len(logged.body) < 200 and event[2]["data"] == BIG


@pytest.mark.parametrize(
    "around", [lambda value: (value,), lambda value: {1: value}, lambda value: [value]], ids=["tuple", "dict", "list"]
)
async def test_a_value_as_deep_as_the_codec_allows_is_stored(around: Callable[[Any], Any]) -> None:
    store, deep = KeepingStore(), "x" * 2_000
    for _ in range(98):
        deep = around(deep)
    await moved(await opened(store), 1, deep=deep)
    assert await states(store, ["c1"]) == [{"deep": deep}]


# ---------------------------------------------------------------- what a failure leaves behind


async def test_unpackable_commit_leaves_no_chunks_for_the_next_to_refer_to(store: Store) -> None:
    recent = RecentThreads()
    thread = await opened(store, recent)
    await moved(thread, 1, text="small")
    for bad in (WorkflowEvent("output", object()), WorkflowEvent("output", 1, executor_id="\ud800")):
        with pytest.raises((UnsavableValue, UnicodeEncodeError)):
            await thread.commit(checkpoint(2, "c1", text=BIG), [bad], "run-1", "IDLE")
    await thread.release()
    thread = await opened(store, recent)
    await moved(thread, 2, "c1", text=BIG)
    assert await states(store, ["c2"]) == [{"text": BIG}]


@pytest.mark.parametrize("error", [OSError("disk full"), ThreadConflict("t", "a", "b"), asyncio.CancelledError()])
async def test_unstored_commit_leaves_no_chunks_for_the_next_to_refer_to(error: BaseException) -> None:
    store, recent = KeepingStore(), RecentThreads()
    thread = await opened(store, recent)
    await moved(thread, 1, text="small")
    store.failures[2] = error
    with pytest.raises((StorageFailed, ThreadConflict, asyncio.CancelledError)):
        await moved(thread, 2, "c1", text=BIG)
    await moved(thread, 2, "c1", text=BIG, more=BIG + "x")
    await thread.release()
    thread = await opened(store, recent)
    assert (await thread.load_head() or checkpoint(0)).state == {"text": BIG, "more": BIG + "x"}
    assert await states(store, ["c2"]) == [{"text": BIG, "more": BIG + "x"}]


async def test_commits_after_a_failed_commit_are_neither_stored_nor_remembered() -> None:
    store, recent = KeepingStore(), RecentThreads()
    thread = await opened(store, recent, max_lag=8)
    saved: list[int] = []

    store.failures = {3: OSError("disk full")}

    async def commit_all() -> None:
        for number in range(1, 6):
            next_checkpoint = checkpoint(number, f"c{number - 1}" if number > 1 else None, text=BIG[: number * 1_500])
            await thread.commit(
                next_checkpoint, (), "run-1", "IDLE", on_saved=lambda info, _: saved.append(info.number if info else 0)
            )
        await thread.settle()

    with pytest.raises(StorageFailed, match="disk full"):
        await commit_all()
    await thread.release()
    assert saved == [1, 2]
    thread = await opened(store, recent)
    assert thread.number == 2
    await moved(thread, 3, "c2", text=BIG)
    assert await states(store, ["c1", "c2", "c3"]) == [{"text": BIG[:1_500]}, {"text": BIG[:3_000]}, {"text": BIG}]


async def test_a_record_waits_for_the_commits_before_it() -> None:
    store = KeepingStore()
    thread = await opened(store, max_lag=8)
    for number in range(1, 4):
        next_checkpoint = checkpoint(number, f"c{number - 1}" if number > 1 else None)
        await thread.commit(next_checkpoint, (), "run-1", "IDLE", on_saved=lambda info, last_seq: None)
    await thread.record(7, {"a": 1})
    again = await opened(store)
    assert again.number == 3
    assert again.tail.journal() == {7: [{"a": 1}]}


# ---------------------------------------------------------------- damage


async def test_a_head_whose_chunks_are_gone_is_named(store: Store) -> None:
    thread = await opened(store)
    await moved(thread, 1, text=BIG)
    stored = await store.find_checkpoint("c1")
    assert stored is not None
    root = stored.root.replace(b'.1"', b'.9"')
    with pytest.raises(DamagedCheckpoint, match=r"Checkpoint 'c1' of thread 't' cannot be read.*commit 9"):
        await read_checkpoint(store, root, stored.info, JsonCodec())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 9_000,
        b'{"a":{"$ref":1}}',
        b'{"a":{"$plain":1}}',
        b'{"a":{"$plain":[1]}}',
        b'{"a":{"$plain":[[[],1]]}}',
        b'{"a":{"$text":"abc.1","depth":"x"}}',
        b'{"a":{"$list":"abc.1","depth":null}}',
        b'{"a":{"$list":"abc.99999999999999999999999999"}}',
    ],
)
async def test_inconsistent_bytes_are_unreadable(store: Store, data: bytes) -> None:
    thread = await opened(store)
    await moved(thread, 1, text=BIG)
    with pytest.raises(UnreadableValue):
        await new_assembly(store, "t").tree(data, "what is tested")
