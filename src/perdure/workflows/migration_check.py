"""A dry run of the migrations over stored threads. Claims and writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.any_storage import OpenThread, PlainThread, codec_for
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.encode import tool_codec
from perdure.checkpoints.migration.migrations import Migrator
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.engine.delivery.scope import take_journal
from perdure.engine.run.opening import changes_since, compatible_position
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import Instances, LiveThread
from perdure.engine.thread.position import Position, position_of
from perdure.errors import DamagedCheckpoint, IncompatibleWorkflow, StorageFailed, WorkflowCheckpointException
from perdure.errors.wording import format_count
from perdure.records import Lease, OpenedThread

Outcome = Literal["same", "additions", "migrates", "refused", "damaged"]

MAX_TRIES = 5
"""How often the check reads a thread that moves meanwhile."""


@dataclass(frozen=True)
class ThreadFit:
    """The effect on one stored thread when the present workflow opens it."""

    thread_id: str
    checkpoint_id: str | None
    outcome: Outcome
    """`same`: the graph is unchanged; `additions`: compatible additions; `migrates`; `refused`: a run rejects it;
    `damaged`: no workflow can read it."""
    migrations: tuple[str, ...] = ()
    """The migrations that the run applies."""
    differences: tuple[str, ...] = ()
    """The changes of the graph, after the migrations."""
    error: str | None = None
    """The error that the run raises."""

    @property
    def fits(self) -> bool:
        """Whether a run can read all of it (head, journal and inbox) and continue."""
        return self.error is None

    def __str__(self) -> str:
        why = self.error or "; ".join((*(f"applies {name}" for name in self.migrations), *self.differences))
        return f"{self.outcome:<10} {self.thread_id}{why and f'  {why}'}"


class ThreadFits(list[ThreadFit]):
    """The effect on each thread. `str()` gives a line for each that is not the same, and a count."""

    @property
    def refused(self) -> list[ThreadFit]:
        """The threads that a run cannot continue."""
        return [fit for fit in self if not fit.fits]

    def __str__(self) -> str:
        counter = Counter(fit.outcome for fit in self)
        counts = ", ".join(f"{counter[outcome]} {outcome}" for outcome in counter)
        lines = [str(fit) for fit in self if fit.outcome != "same"]
        return "\n".join([*lines, f"{format_count(len(self), 'thread')}{counts and f': {counts}'}"])


async def check_threads(
    compiled: Compiled, storage: Any, progress: Callable[[int, int, str], None] | None = None
) -> ThreadFits:
    """Check every stored thread of the workflow, the one with the latest commit last."""
    stored = _Stored(storage, compiled) if isinstance(storage, StoreCheckpointStorage) else _Plain(storage, compiled)
    thread_ids = await stored.thread_ids()
    fits = ThreadFits()
    for done, thread_id in enumerate(thread_ids, 1):
        fit = await _check_thread(compiled, stored, thread_id)
        if fit is not None:
            fits.append(fit)
        if progress is not None:
            progress(done, len(thread_ids), thread_id)
    return fits


async def _check_thread(compiled: Compiled, stored: _Stored | _Plain, thread_id: str) -> ThreadFit | None:
    """None for a thread that was deleted since it was listed."""
    head_id: str | None = None
    migrator = compiled.migrator()
    for tries_left in reversed(range(MAX_TRIES)):
        try:
            opened = await stored.open(thread_id, migrator)
            if opened is None:
                return None
            head_id = opened.head_id
            differences = await _restore(compiled, opened)
        except StorageFailed:
            raise
        except DamagedCheckpoint as error:
            if tries_left and await stored.head_id(thread_id) != head_id:
                continue  # it was moved or pruned during the read
            outcome: Outcome = "refused" if await _is_readable(compiled, stored, thread_id) else "damaged"
            return ThreadFit(thread_id, head_id, outcome, tuple(migrator.applied), (), str(error))
        except WorkflowCheckpointException as error:
            why = tuple(error.differences) if isinstance(error, IncompatibleWorkflow) else ()
            return ThreadFit(thread_id, head_id, "refused", tuple(migrator.applied), why, str(error))
        outcome = "migrates" if migrator.applied else "additions" if differences else "same"
        return ThreadFit(thread_id, head_id, outcome, tuple(migrator.applied), differences)
    return None


async def _restore(compiled: Compiled, opened: OpenThread) -> tuple[str, ...]:
    """Restore the thread like a run, without the executors' own hooks. Returns the additions to the graph."""
    head = await opened.load_head()
    if head is None:
        return ()
    breaking, added = changes_since(head, compiled)
    if breaking:
        raise IncompatibleWorkflow(head.checkpoint_id, compiled.graph.name, breaking)
    _read_tail(compiled, compatible_position(head, compiled), opened)
    return tuple(added)


def _read_tail(compiled: Compiled, position: Position, opened: OpenThread) -> None:
    thread = LiveThread("", Instances(compiled.graph))
    thread.position = position
    opened.tail.inbox(opened.codec, position.renamed_types)
    take_journal(thread, opened)


async def _is_readable(compiled: Compiled, stored: _Stored | _Plain, thread_id: str) -> bool:
    """Whether only this workflow cannot read it: a type is missing, or was renamed."""
    try:
        opened = await stored.open(thread_id, None)
        head = None if opened is None else await opened.load_head()
        if opened is not None and head is not None:
            _read_tail(compiled, position_of(head), opened)
    except DamagedCheckpoint:
        return False
    return True


class _Stored:
    """Threads of a store, read without a claim."""

    def __init__(self, storage: StoreCheckpointStorage, compiled: Compiled) -> None:
        self._storage = storage
        self._store = storage.store
        self._name = compiled.graph.name
        self._declared = compiled.declared.union(storage.declared)

    async def thread_ids(self) -> list[str]:
        # All at once: a thread that moves between two pages would be on neither.
        return [info.thread_id for info in await self._storage.list_threads(workflow_name=self._name)]

    async def head_id(self, thread_id: str) -> str | None:
        threads = await self._store.threads(thread_id=thread_id)
        return threads[0].checkpoint_id if threads else None

    async def open(self, thread_id: str, migrator: Migrator | None, tries: int = MAX_TRIES) -> OpenThread | None:
        """Read-only; None for a deleted thread. Without a migrator it decodes like a tool."""
        with storage_errors(self._store, "read a thread"):
            header = await self._store.thread_header(thread_id)
            head = await self._store.head(thread_id)
        if header is None:
            return None
        is_of_head = header.head == (None if head is None else head.info.number)
        if not is_of_head and tries > 1:
            return await self.open(thread_id, migrator, tries - 1)
        opened = OpenedThread(
            Lease(thread_id, "", 0),
            header.number,
            None if head is None else head.info,
            None if head is None else head.root,
            header.last_seq,
            header.journal if is_of_head else (),  # a thread that moves all the time soon commits its records
            header.inbox if is_of_head else (),
        )
        codec = self._storage._tool_codec if migrator is None else codec_for(self._storage, self._declared)
        return StoredThread(self._store, opened, self._declared, codec, RecentThreads(), migrator=migrator)


class _Plain:
    """Threads of a storage with only the six methods."""

    def __init__(self, storage: Any, compiled: Compiled) -> None:
        self._storage = storage
        self._name = compiled.graph.name
        self._codec = codec_for(storage, compiled.declared)
        self._heads: dict[str, WorkflowCheckpoint] = {}

    async def thread_ids(self) -> list[str]:
        with storage_errors(self._storage, "list_checkpoints"):
            for checkpoint in await self._storage.list_checkpoints(workflow_name=self._name):
                thread_id = checkpoint.thread_id
                if thread_id not in self._heads or self._heads[thread_id].number <= checkpoint.number:
                    self._heads[thread_id] = checkpoint
        return [*self._heads]

    async def head_id(self, thread_id: str) -> str | None:
        return self._heads[thread_id].checkpoint_id

    async def open(self, thread_id: str, migrator: Migrator | None) -> OpenThread | None:
        codec = tool_codec() if migrator is None else self._codec
        plain = PlainThread(self._storage, thread_id, self._name, codec, migrator)
        plain.set_head(self._heads[thread_id])
        return plain
