"""A dry run over stored threads: what would become of each with the workflow of today. Claims and writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.encoding.checkpoint import tool_codec
from perdure.checkpoints.migration.migrations import Migrator
from perdure.checkpoints.open_thread import OpenThread, PlainThread, codec_for, storage_errors
from perdure.checkpoints.recent import RecentThreads
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.engine.run.opening import changes_since, compatible_position
from perdure.engine.steps.journal import take_journal
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import Instances, LiveThread
from perdure.engine.thread.position import Position, position_of
from perdure.errors import DamagedCheckpoint, IncompatibleWorkflow, StorageFailed, WorkflowCheckpointException
from perdure.records import Lease, OpenedThread

Outcome = Literal["same", "additions", "migrates", "refused", "damaged"]

TRIES = 5
"""How often a thread is read that moves while it is looked at."""


@dataclass(frozen=True)
class ThreadFit:
    """What would happen to one stored thread if the workflow of today opened it."""

    thread_id: str
    checkpoint_id: str | None
    outcome: Outcome
    """`same` as when it was stored; `additions` that touch nothing; `migrates`; `refused`, as a run would refuse it;
    `damaged`: what is stored cannot be read by any workflow."""
    migrations: tuple[str, ...] = ()
    """Those that would be applied."""
    differences: tuple[str, ...] = ()
    """What changed, after the migrations."""
    error: str | None = None
    """What a run would raise."""

    @property
    def fits(self) -> bool:
        """Whether it can be read in full and goes on: its head, its journal and its inbox."""
        return self.error is None

    def __str__(self) -> str:
        why = self.error or "; ".join((*(f"applies {name}" for name in self.migrations), *self.differences))
        return f"{self.outcome:<10} {self.thread_id}{why and f'  {why}'}"


class ThreadFits(list[ThreadFit]):
    """What would happen to each thread. Printed, it is a line for each that is not the same, and a count."""

    @property
    def refused(self) -> list[ThreadFit]:
        """Those that a run could not go on with."""
        return [one for one in self if not one.fits]

    def __str__(self) -> str:
        counted = Counter(one.outcome for one in self)
        counts = ", ".join(f"{counted[outcome]} {outcome}" for outcome in counted)
        lines = [str(one) for one in self if one.outcome != "same"]
        threads = "1 thread" if len(self) == 1 else f"{len(self)} threads"
        return "\n".join([*lines, f"{threads}{counts and f': {counts}'}"])


async def check_threads(
    compiled: Compiled, storage: Any, progress: Callable[[int, int, str], None] | None = None
) -> ThreadFits:
    """Every stored thread of the workflow, the one that moved last at the end."""
    stored: _Threads = (
        _Stored(storage, compiled) if isinstance(storage, StoreCheckpointStorage) else _Plain(storage, compiled)
    )
    thread_ids = await stored.thread_ids()
    found = ThreadFits()
    for done, thread_id in enumerate(thread_ids, 1):
        fit = await _fit(compiled, stored, thread_id)
        if fit is not None:
            found.append(fit)
        if progress is not None:
            progress(done, len(thread_ids), thread_id)
    return found


# ---------------------------------------------------------------- one thread


async def _fit(compiled: Compiled, stored: _Threads, thread_id: str) -> ThreadFit | None:
    """None for a thread that was deleted since it was listed."""
    head_id: str | None = None
    migrator = compiled.migrator()
    for tries_left in reversed(range(TRIES)):
        try:
            keeper = await stored.keeper(thread_id, migrator)
            if keeper is None:
                return None
            head_id = keeper.head_id
            differences = await _restored(compiled, keeper)
        except StorageFailed:
            raise
        except DamagedCheckpoint as error:
            if tries_left and await stored.head_id(thread_id) != head_id:
                continue  # it moved, or was pruned, while it was read
            outcome: Outcome = "refused" if await _is_readable(stored, thread_id) else "damaged"
            return ThreadFit(thread_id, head_id, outcome, tuple(migrator.applied), (), str(error))
        except WorkflowCheckpointException as error:
            why = tuple(error.differences) if isinstance(error, IncompatibleWorkflow) else ()
            return ThreadFit(thread_id, head_id, "refused", tuple(migrator.applied), why, str(error))
        outcome = "migrates" if migrator.applied else "additions" if differences else "same"
        return ThreadFit(thread_id, head_id, outcome, tuple(migrator.applied), differences)
    return None


async def _restored(compiled: Compiled, keeper: OpenThread) -> tuple[str, ...]:
    """All that a run does before it goes on, but for the executors' own hooks. What was added since it was stored."""
    head = await keeper.load_head()
    if head is None:
        return ()
    breaking, added = changes_since(head, compiled)
    if breaking:
        raise IncompatibleWorkflow(head.checkpoint_id, compiled.graph.name, breaking)
    _take_tail(compatible_position(head, compiled), keeper)
    return tuple(added)


def _take_tail(position: Position, keeper: OpenThread) -> None:
    thread = LiveThread("", Instances({}))
    thread.position = position
    keeper.load_inbox(position.renamed_types)
    take_journal(thread, keeper)


async def _is_readable(stored: _Threads, thread_id: str) -> bool:
    """Whether it is only this workflow that cannot read it: a type is gone, or was renamed."""
    try:
        keeper = await stored.keeper(thread_id, None)
        head = None if keeper is None else await keeper.load_head()
        if keeper is not None and head is not None:
            _take_tail(position_of(head), keeper)
    except DamagedCheckpoint:
        return False
    return True


# ---------------------------------------------------------------- threads, opened without being claimed


class _Threads(Protocol):
    async def thread_ids(self) -> list[str]: ...

    async def head_id(self, thread_id: str) -> str | None: ...

    async def keeper(self, thread_id: str, migrator: Migrator | None) -> OpenThread | None:
        """Only to be read from; None if the thread is gone. Without a migrator it reads whatever any tool could."""


class _Stored:
    def __init__(self, storage: StoreCheckpointStorage, compiled: Compiled) -> None:
        self._storage = storage
        self._store = storage.store
        self._name = compiled.graph.name
        self._declared = compiled.declared.union(storage.declared)

    async def thread_ids(self) -> list[str]:
        # In one go: a thread that moves while pages are turned would be on none of them.
        return [info.thread_id for info in await self._storage.list_threads(workflow_name=self._name)]

    async def head_id(self, thread_id: str) -> str | None:
        found = await self._store.threads(thread_id=thread_id)
        return found[0].checkpoint_id if found else None

    async def keeper(self, thread_id: str, migrator: Migrator | None) -> OpenThread | None:
        opened = await self._opened(thread_id)
        if opened is None:
            return None
        codec = self._storage._tool_codec if migrator is None else codec_for(self._storage, self._declared)
        return StoredThread(self._store, opened, self._declared, lambda _: codec, RecentThreads(), migrator=migrator)

    async def _opened(self, thread_id: str, tries: int = TRIES) -> OpenedThread | None:
        with storage_errors(self._store, "read where a thread stands"):
            standing = await self._store.standing(thread_id)
            head = await self._store.head(thread_id)
        if standing is None:
            return None
        is_of_head = standing.head == (None if head is None else head.info.number)
        if not is_of_head and tries > 1:
            return await self._opened(thread_id, tries - 1)
        return OpenedThread(
            Lease(thread_id, "", 0),
            standing.number,
            None if head is None else head.info,
            None if head is None else head.root,
            standing.last_seq,
            standing.journal if is_of_head else (),  # one that moves all the time: what it records is soon committed
            standing.inbox if is_of_head else (),
        )


class _Plain:
    """Of a storage with only the six methods."""

    def __init__(self, storage: Any, compiled: Compiled) -> None:
        self._storage = storage
        self._name = compiled.graph.name
        self._codec = codec_for(storage, compiled.declared)
        self._heads: dict[str, WorkflowCheckpoint] = {}

    async def thread_ids(self) -> list[str]:
        with storage_errors(self._storage, "list_checkpoints"):
            for one in await self._storage.list_checkpoints(workflow_name=self._name):
                if one.thread_id not in self._heads or self._heads[one.thread_id].number <= one.number:
                    self._heads[one.thread_id] = one
        return [*self._heads]

    async def head_id(self, thread_id: str) -> str | None:
        return self._heads[thread_id].checkpoint_id

    async def keeper(self, thread_id: str, migrator: Migrator | None) -> OpenThread | None:
        codec = tool_codec() if migrator is None else self._codec
        keeper = PlainThread(self._storage, thread_id, self._name, codec, migrator)
        keeper.stand_at(self._heads[thread_id])
        return keeper
