"""Pruning: what is left can be read, and nothing unneeded is kept."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from hypothesis import given, settings, strategies as st
from tests.chance import SOAK
from tests.property.changing_trees import ChangingTree
from tests.property.packed_threads import chunks_of, exact, ref_of, shortened
from tests.schemas import SCHEMAS, where

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.assembly import new_assembly
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.thread import StoredThread, read_checkpoint
from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec
from perdure.events import WorkflowEvent
from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.garbage import Lineage, plan_pruning
from perdure.stores.memory.store import MemoryStore
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.sqlite.store import SqliteStore

SEEDS = st.integers(0, 2**48)
FEW = settings() if SOAK else settings(max_examples=10)

# ---------------------------------------------------------------- the plan


class Lines:
    """Commits of one thread, and what each has, in full."""

    def __init__(self, random: Random, alphabet: str) -> None:
        self._random = random
        self._alphabet = alphabet
        self.lineages: dict[int, Lineage] = {}
        self.has: dict[int, set[str]] = {}
        """References, by commit."""
        self.checkpoints: list[int] = []
        """The commits that another one may continue from."""
        self._number = 0

    def add(self) -> None:
        random = self._random
        self._number += 1
        parent = None
        if self.checkpoints and random.random() < 0.95:
            parent = self.checkpoints[-1] if random.random() < 0.7 else random.choice(self.checkpoints)
        before = set() if parent is None else self.has[parent]
        gone = set(random.sample(sorted(before), random.randint(0, len(before)))) if random.random() < 0.6 else set()
        is_checkpoint = parent is None or random.random() < 0.8
        added = {self._digest() for _ in range(random.choice((0, 1, 3)))} if is_checkpoint else set()
        gone = gone if is_checkpoint else set()  # events alone drop nothing
        self.has[self._number] = (before - gone) | {f"{digest}.{self._number}" for digest in added}
        dropped = frozenset(map(shortened, gone))
        self.lineages[self._number] = Lineage(self._number, parent, True, frozenset(added), dropped)
        if is_checkpoint:
            self.checkpoints.append(self._number)

    def _digest(self) -> str:
        return "".join(self._random.choices(self._alphabet, k=22))

    def prune(self) -> tuple[set[str], set[str]]:
        """All references that the plan keeps, and all that something has."""
        random = self._random
        for number in [number for number in self.checkpoints if random.random() < 0.4]:
            stays = random.random() < 0.2  # its events refer to what it has
            self.lineages[number] = replace(self.lineages[number], is_kept=stays)
            self.checkpoints.remove(number)
        shuffled = random.sample(list(self.lineages.values()), len(self.lineages))
        plan = plan_pruning(shuffled)
        kept = {ref for refs in self.has.values() for ref in refs if _split(ref) in plan.needed}
        self.lineages.update(plan.relinked)
        self.lineages = {number: lineage for number, lineage in self.lineages.items() if lineage.is_kept}
        self.has = {number: refs for number, refs in self.has.items() if number in self.lineages}
        for lineage in self.lineages.values():
            assert lineage.parent is None or lineage.parent in self.lineages
        return kept, {ref for refs in self.has.values() for ref in refs}


def _split(ref: str) -> tuple[str, int]:
    digest, _, number = ref.partition(".")
    return digest, int(number)


@given(SEEDS)
def test_plan_keeps_exactly_the_references_in_use_each_time(seed: int) -> None:
    random = Random(seed)
    lines = Lines(random, "abcdefghijklmnopqrstuvwxyz0123456789+/")
    for _ in range(random.randint(1, 5)):
        for _ in range(random.randint(1, 12)):
            lines.add()
        kept, had = lines.prune()
        assert kept == had


@given(SEEDS)
def test_digests_with_equal_prefixes_keep_too_many_but_never_too_few(seed: int) -> None:
    random = Random(seed)
    lines = Lines(random, "a" * 30 + "b")
    for _ in range(3):
        for _ in range(10):
            lines.add()
        kept, had = lines.prune()
        assert kept >= had


# ---------------------------------------------------------------- through stores


@dataclass
class Expected:
    """One commit as it was made."""

    checkpoint_id: str | None
    parent: int | None
    state: bytes
    events: list[bytes]
    has: set[str] = field(default_factory=set)
    """References of its checkpoint, or of the one that its events may refer to."""
    refers: bool = False
    own: set[str] = field(default_factory=set)


class Threads:
    """The same thread in several stores."""

    def __init__(self, random: Random, stores: list[Store]) -> None:
        self._random = random
        self._stores = stores
        self._changing = ChangingTree(random)
        self._stored_threads: list[StoredThread] = []
        self._recent = [RecentThreads() for _ in stores]
        self._declared = DeclaredTypes()
        self.expected: dict[int, Expected] = {}
        self._head: int | None = None

    async def open(self) -> None:
        self._stored_threads = []
        for store, recent in zip(self._stores, self._recent, strict=True):
            opened = await store.open("t", "owner", takeover=True)
            self._stored_threads.append(StoredThread(store, opened, self._declared, JsonCodec(), recent))

    async def restart(self) -> None:
        for stored_thread in self._stored_threads:
            await stored_thread.release()
        if self._random.random() < 0.5:
            self._recent = [RecentThreads() for _ in self._stores]
        await self.open()

    @property
    def checkpoints(self) -> dict[int, Expected]:
        return {number: expected for number, expected in self.expected.items() if expected.checkpoint_id is not None}

    async def commit(self) -> None:
        random, number = self._random, len(self.expected) + 1
        self._changing.change()
        is_checkpoint = self._head is None or random.random() < 0.75
        previous = self._head
        if is_checkpoint and self.checkpoints and random.random() < 0.25:
            previous = random.choice(list(self.checkpoints))  # a rewind
        values = [self._changing.tree["state"], self._changing.value(1), "small"]
        events = [
            WorkflowEvent("output", data=[random.choice(values)], executor_id="a")
            for _ in range(random.choice((0, 0, 2)))
        ]
        made = None
        if is_checkpoint:
            before = None if previous is None else self.expected[previous].checkpoint_id
            made = WorkflowCheckpoint(
                *("w", "hash"), checkpoint_id=f"c{number}", previous_checkpoint_id=before, thread_id="t",
                number=number, state={"tree": self._changing.tree["state"]},
            )  # fmt: skip
        for stored_thread in self._stored_threads:
            await stored_thread.commit(made, events, "run-1", "IDLE")
        expected = Expected(
            None if made is None else made.checkpoint_id,
            previous,
            exact(self._changing.tree["state"]),
            [exact(JsonCodec().encode(event.data, "data")) for event in events],
        )
        self.expected[number] = expected
        store = self._stores[0]
        if made is not None:
            self._head = number
            expected.has = await self._reach(store, (await self._root(store, f"c{number}")))
        else:
            expected.has = set() if self._head is None else self.expected[self._head].has
        if events:
            logged = (await store.events_after("t", 0))[-1]
            expected.refers, expected.own = logged.refers, {f"{digest}.{number}" for digest in logged.own}
            assert await self._reach(store, logged.body) <= expected.has | expected.own

    async def prune(self) -> None:
        """Any but the head, or the head too when the thread has no owner."""
        random = self._random
        doomed = [number for number in self.checkpoints if number != self._head and random.random() < 0.4]
        for stored_thread in self._stored_threads:
            if self._head is not None and random.random() < 0.2 and stored_thread is self._stored_threads[0]:
                doomed.append(self._head)
            if self._head in doomed:
                await stored_thread.release()
        ids = [self.expected[number].checkpoint_id or "" for number in doomed]
        for store in self._stores:
            assert await store.prune("t", [*ids, "nobody", *ids]) == len(ids)
        for number in doomed:
            self.expected[number].checkpoint_id = None
            if not self.expected[number].refers:
                self.expected[number].has = set()
        if self._head in doomed:
            self._head = max(self.checkpoints, default=None)
            await self.open()

    def _previous(self, expected: Expected) -> str | None:
        """The nearest before it that is left."""
        while expected.parent is not None:
            expected = self.expected[expected.parent]
            if expected.checkpoint_id is not None:
                return expected.checkpoint_id
        return None

    async def _root(self, store: Store, checkpoint_id: str) -> bytes:
        stored = await store.find_checkpoint(checkpoint_id)
        assert stored is not None
        return stored.root

    async def _reach(self, store: Store, data: bytes) -> set[str]:
        _, base = await new_assembly(store, "t").tree(data, "what is tested")
        return {ref_of(chunk) for chunk in chunks_of(base)}

    async def check(self) -> None:
        """All that is left can be read, and nothing else is left."""
        numbers = range(1, len(self.expected) + 1)
        events = [event for expected in self.expected.values() for event in expected.events]
        needed: set[str] = set()
        for expected in self.expected.values():
            needed |= expected.own | (expected.has if expected.checkpoint_id is not None or expected.refers else set())
        for store in self._stores:
            infos = await store.infos(thread_id="t")
            assert [(info.checkpoint_id, info.previous_checkpoint_id) for info in infos] == [
                (expected.checkpoint_id, self._previous(expected)) for expected in self.checkpoints.values()
            ]
            for info, expected in zip(infos, self.checkpoints.values(), strict=True):
                root = await self._root(store, info.checkpoint_id)
                checkpoint, _ = await read_checkpoint(store, root, info, JsonCodec())
                assert exact(checkpoint.state["tree"]) == expected.state
            logged = [
                await new_assembly(store, "t").tree(entry.body, "events") for entry in await store.events_after("t", 0)
            ]
            assert [exact(tree[2]["data"]) for trees, _ in logged for tree in trees] == events
            stored = await store.read_chunks("t", numbers)
            assert {f"{digest}.{number}" for number, chunks in stored.items() for digest in chunks} == needed


async def explore(seed: int, stores: list[Store]) -> None:
    random = Random(seed)
    threads = Threads(random, stores)
    await threads.open()
    for _ in range(random.randint(5, 25)):
        act = random.choices((threads.commit, threads.restart, threads.prune), (6, 1, 2))[0]
        await act()
        if act == threads.prune:
            await threads.check()
    await threads.check()
    for store in stores:
        await store.close()


@given(SEEDS)
@FEW
def test_kept_data_of_stores_can_be_read_and_is_needed(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        in_files = SqliteStore(path / "x.db", synchronous="NORMAL"), FileStore(path / "files", fsync=False)
        asyncio.run(explore(seed, [MemoryStore(), *in_files]))


@given(SEEDS)
@settings(FEW, max_examples=200 if SOAK else 5)
def test_kept_data_of_postgresql_can_be_read_and_is_needed(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, SCHEMAS.lent():
        dsn, schema = where(Path(folder))
        asyncio.run(explore(seed, [PostgresStore(dsn, schema=schema)]))
