"""Recent threads: remembered while the store is at the same commit, for the same workflow, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.property.changing_trees import PROSE
from tests.unit.engine.flows import alone, countdown

from perdure import InMemoryCheckpointStorage, WorkflowCheckpoint, WorkflowContext
from perdure.checkpoints.delta.chunks import Chunker
from perdure.checkpoints.delta.recent import MAX_BYTES, MAX_THREADS, IncrementalEncoder, Recent, RecentThreads
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codec import DeclaredTypes
from perdure.isolation import is_fully_copied
from perdure.records import CheckpointInfo, Lease, OpenedThread
from perdure.stores.memory.store import MemoryStore

DECLARED = DeclaredTypes()
INFO = CheckpointInfo("a", "t", "w", 5, 5, None, "2026-01-01T00:00:00+00:00")


def remembered(share: float = 0) -> Recent:
    """Return an entry whose chunks take this share of the byte limit."""
    chunker = Chunker()
    packed = chunker.pack(5, {"state": {"x": "text"}})
    chunker.size += int(share * MAX_BYTES)
    recent = Recent(DECLARED, "a", 5, chunker, IncrementalEncoder(is_fully_copied))
    recent.checkpoint, recent.root = WorkflowCheckpoint("w", "hash"), packed.root
    return recent


def opened(root: bytes | None, thread_id: str = "t", **fields: Any) -> OpenedThread:
    """Return the thread as the next owner after fence 7 opens it."""
    thread = OpenedThread(Lease(thread_id, "next", 8), 5, INFO, root, 0)
    return msgspec.structs.replace(thread, **fields)


def test_only_the_next_owner_takes_a_remembered_thread_and_only_once() -> None:
    threads, recent = RecentThreads(), remembered()
    threads.put(Lease("t", "owner", 7), 5, recent)
    assert threads.take(opened(recent.root, "another"), DECLARED) is None
    assert threads.take(opened(recent.root), DECLARED) is recent
    assert threads.take(opened(recent.root), DECLARED) is None


@pytest.mark.parametrize(
    "difference",
    [
        {"number": 4},
        {"number": 6},
        {"info": None},
        {"info": msgspec.structs.replace(INFO, checkpoint_id="b")},
        {"root": None},
        {"root": b"{}"},
        {"lease": Lease("t", "next", 7)},
        {"lease": Lease("t", "next", 9)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_remembered_thread_is_ignored_when_the_store_differs(difference: dict[str, Any]) -> None:
    threads, recent = RecentThreads(), remembered()
    threads.put(Lease("t", "owner", 7), 5, recent)
    assert threads.take(opened(**{"root": recent.root, **difference}), DECLARED) is None
    assert threads.take(opened(recent.root), DECLARED) is None  # it is not offered twice


def test_another_workflow_reads_the_store_even_if_it_declares_the_same() -> None:
    threads, recent = RecentThreads(), remembered()
    threads.put(Lease("t", "owner", 7), 5, recent)
    assert threads.take(opened(recent.root), DeclaredTypes(frozenset(), frozenset(), frozenset())) is None


def test_a_checkpoint_that_was_only_read_is_not_remembered() -> None:
    threads, recent = RecentThreads(), remembered()
    recent.checkpoint = None
    threads.put(Lease("t", "owner", 7), 5, recent)
    assert threads.take(opened(recent.root), DECLARED) is None


def kept(threads: RecentThreads, entries: dict[str, Recent]) -> list[str]:
    return [name for name, recent in entries.items() if threads.take(opened(recent.root, name), DECLARED) is recent]


def test_most_recently_moved_threads_are_remembered() -> None:
    threads, recent = RecentThreads(), remembered()
    entries = {f"t{index}": recent for index in range(MAX_THREADS + 5)}
    for name in entries:
        threads.put(Lease(name, "owner", 7), 5, recent)
    threads.put(Lease("t5", "owner", 7), 5, recent)  # moved again: the newest now
    threads.put(Lease("new", "owner", 7), 5, recent)
    assert kept(threads, entries) == ["t5", *[f"t{index}" for index in range(7, MAX_THREADS + 5)]]


def test_remembered_bytes_are_bounded() -> None:
    threads = RecentThreads()
    entries = {f"t{index}": remembered(0.3) for index in range(6)}
    for name, recent in entries.items():
        threads.put(Lease(name, "owner", 7), 5, recent)
    huge = remembered(1.1)
    threads.put(Lease("huge", "owner", 7), 5, huge)
    assert threads.take(opened(huge.root, "huge"), DECLARED) is None
    assert kept(threads, entries) == ["t3", "t4", "t5"]


def test_a_thread_that_is_put_again_counts_once() -> None:
    threads, other, recent = RecentThreads(), remembered(0.3), remembered(0.3)
    threads.put(Lease("other", "owner", 7), 5, other)
    for fence in range(20):  # owners that took over from each other, each of which releases
        threads.put(Lease("t", "owner", fence), 5, recent)
    threads.put(Lease("t", "owner", 7), 5, recent)
    assert kept(threads, {"t": recent, "other": other}) == ["t", "other"]


def test_taken_thread_makes_room() -> None:
    threads = RecentThreads()
    for index in range(40):
        recent = remembered(0.6)
        threads.put(Lease("t", "owner", 7), 5, recent)
        assert threads.take(opened(recent.root), DECLARED) is recent, index


def test_thread_that_grew_too_large_is_forgotten() -> None:
    threads, small = RecentThreads(), remembered()
    threads.put(Lease("t", "owner", 7), 5, small)
    threads.put(Lease("t", "owner", 9), 6, remembered(1.1))
    assert threads.take(opened(small.root), DECLARED) is None


# ---------------------------------------------------------------- through runs


class CountingStore(MemoryStore):
    """Counts the reads of chunks. Every read of a checkpoint that holds a long text reads some."""

    reads = 0

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        self.reads += 1
        return await super().read_chunks(thread_id, numbers)


async def keep_text(name: str, ctx: WorkflowContext[Any, Any]) -> None:
    ctx.set_state("text", PROSE[:20_000])
    ctx.set_state(name, True)
    await ctx.yield_output(name)


async def test_only_the_same_workflow_object_runs_again_without_reading_chunks() -> None:
    store = CountingStore()
    storage = StoreCheckpointStorage(store)
    flow = alone(keep_text, checkpoint_storage=storage)
    for name in "abc":
        assert (await flow.run(name, thread_id="t")).get_outputs() == [name]
    assert store.reads == 0
    again = alone(keep_text, checkpoint_storage=storage)
    await again.run("d", thread_id="t")
    assert store.reads > 0


async def test_run_after_another_storage_moved_the_thread_reads_it() -> None:
    store = CountingStore()
    mine, other = (alone(keep_text, checkpoint_storage=StoreCheckpointStorage(store)) for _ in range(2))
    await mine.run("a", thread_id="t")
    await other.run("b", thread_id="t")
    store.reads = 0
    result = await mine.run("c", thread_id="t")
    assert store.reads > 0
    assert result.get_outputs() == ["c"]
    head = await StoreCheckpointStorage(store).get_latest(thread_id="t")
    assert head is not None
    assert {"a", "b", "c"} <= set(head.state)


async def test_run_after_the_head_was_deleted_reads_the_new_head() -> None:
    storage = InMemoryCheckpointStorage()
    flow = countdown(checkpoint_storage=storage)
    await flow.run(3, thread_id="t")
    first, *_, last = await storage.list_checkpoint_infos(thread_id="t")
    await storage.delete(last)
    assert (await flow.run(thread_id="t")).get_outputs() == ["lift-off"]
    infos = await storage.list_checkpoint_infos(thread_id="t")
    assert last.checkpoint_id not in {info.previous_checkpoint_id for info in infos}
    for info in infos:
        await storage.load(info)
    assert infos[0] == first


@dataclass
class Uncopyable:
    text: str

    def __deepcopy__(self, memo: dict[int, Any]) -> Uncopyable:
        return self


async def test_values_that_cannot_be_copied_are_read_from_the_store() -> None:
    seen: list[str] = []

    def work(message: str, ctx: WorkflowContext[Uncopyable, Any]) -> None:
        if message == "fill":
            ctx.set_state("one", Uncopyable("as it was stored"))
            return
        value = ctx.get_state("one")
        seen.append(value.text)
        if len(seen) == 1:
            value.text = "changed by a superstep that failed"
            raise ConnectionError

    flow = alone(work, checkpoint_storage=InMemoryCheckpointStorage(allowed_types=[Uncopyable]))
    await flow.run("fill", thread_id="the first one stays in memory")
    await flow.run("fill", thread_id="t")
    with pytest.raises(ConnectionError):
        await flow.run("change", thread_id="t")
    await flow.run(thread_id="t")
    assert seen == ["as it was stored", "as it was stored"]
