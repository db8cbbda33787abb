"""Forks, rewinds, edits and checkpoints by hand, of a workflow: they fit its code, and keep out of the way of its
runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.history.methods import check_limit
from perdure.checkpoints.history.thread_metadata import load_thread_metadata
from perdure.checkpoints.history.time_travel import add_fork, edited_state, forked, of_another_thread, repeated, rewound
from perdure.checkpoints.open_thread import OpenThread, PlainThread, codec_for, own_copy, storage_errors
from perdure.checkpoints.storage import StoreCheckpointStorage, load_checkpoint
from perdure.checkpoints.thread import StoredThread
from perdure.clock import Clock
from perdure.engine.delivery.scope import RunScope
from perdure.engine.run.opening import Opening, check_compatibility, note_unreleased, storage_key
from perdure.engine.run.options import RunRequest
from perdure.engine.steps.journal import Journal
from perdure.engine.superstep.commit import Committer, resting_state
from perdure.engine.superstep.loop import Loop
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.inputs import add_records
from perdure.engine.thread.live_threads import LiveThread, LiveThreads, Ownership
from perdure.engine.thread.position import position_of
from perdure.errors import CheckpointNotFound, NoStorage, StorageFailed, ThreadConflict, ThreadExists, ThreadNotFound
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.names import checkpoint_id_of, new_run_id, new_thread_id
from perdure.records import CheckpointInfo

# ---------------------------------------------------------------- reading


async def read_history(
    storage: Any,
    thread_id: str,
    workflow_name: str,
    *,
    limit: int | None = None,
    before: str | CheckpointInfo | None = None,
) -> list[CheckpointInfo]:
    """Newest first. A storage of six methods has no lists without payload, so all of the workflow's is read."""
    if isinstance(storage, StoreCheckpointStorage):
        return await storage.history(thread_id, limit=limit, before=before)
    check_limit(limit)
    with storage_errors(storage, "list_checkpoints"):
        found = await storage.list_checkpoints(workflow_name=workflow_name)
    for one in found:
        if not isinstance(one, WorkflowCheckpoint):
            reason = f"it gave {type(one).__name__}, expected a WorkflowCheckpoint"
            raise StorageFailed(type(storage).__name__, "list_checkpoints", reason)
    mine = sorted((one for one in found if one.thread_id == thread_id), key=lambda one: one.number, reverse=True)
    if not mine:
        raise ThreadNotFound(thread_id)
    infos = [one.info for one in mine]
    if before is not None:
        ids = [one.checkpoint_id for one in infos]
        if (wanted := checkpoint_id_of(before)) not in ids:
            raise CheckpointNotFound(wanted)
        infos = infos[ids.index(wanted) + 1 :]
    return infos[:limit]


logger = get_logger("engine")
T = TypeVar("T")

Change = Callable[[WorkflowCheckpoint], WorkflowCheckpoint]
"""What a thread's head becomes: it is given a copy, with the workflow's own types, and gives one with other content."""


@dataclass(frozen=True)
class Owned:
    """A thread in hand: nobody else moves it, here or elsewhere."""

    thread: LiveThread
    keeper: OpenThread
    opening: Opening
    run_id: str


class TimeTravel:
    """What one call does with one thread of a workflow. Nothing is run, and what is refused leaves nothing behind."""

    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._request = request

    # ------------------------------------------------------------ the four ways

    async def fork(self, update_state: Mapping[str, Any] | None, remove_state: Iterable[str]) -> CheckpointInfo:
        source = await self._named()
        thread_id = self._request.thread_id or new_thread_id()
        state = edited_state(source, update_state, remove_state)
        living = self._live.find(thread_id)
        if living is not None and (living.owner is not None or living.position.next_delivery_id > 1):
            raise ThreadExists(thread_id, "this workflow object has a thread of that id")
        return await _whole(self._save_fork(forked(source, thread_id, state)))

    async def _save_fork(self, fork: WorkflowCheckpoint) -> CheckpointInfo:
        storage, declared = self._request.storage, self._compiled.declared
        if isinstance(storage, StoreCheckpointStorage):
            return await add_fork(storage.store, fork, codec_for(storage, declared.union(storage.declared)))
        plain = PlainThread(storage, fork.thread_id, fork.workflow_name, codec_for(storage, declared))
        await plain.find_head()
        if plain.head_id is not None:
            raise ThreadExists(fork.thread_id)
        await plain.commit(fork, (), "", fork.status)
        return fork.info

    async def rewind(self) -> CheckpointInfo:
        thread_id = self._request.thread_id or ""
        await self._find(thread_id)
        target = await self._named()
        if target.thread_id != thread_id:
            raise of_another_thread(target.info, thread_id)
        async with self._owned(thread_id) as owned:
            about = await load_thread_metadata(self._request.storage, owned.keeper.head_id)
            there = rewound(target, owned.keeper.number + 1, about)
            try:
                await _whole(owned.keeper.commit(there, (), "", there.status))
            except ThreadConflict:
                await self._named()  # it may have been pruned since
                raise
        # The live thread is left as it is: its number is not the store's any more, so the next run reads where it is.
        return there.info

    async def checkpoint(self) -> CheckpointInfo:
        thread_id = self._request.thread_id or ""
        living = self._live.find(thread_id)
        if living is None or not living.is_ahead:
            await self._find(thread_id)
        async with self._owned(thread_id) as owned:
            if owned.thread.is_ahead:
                return await self._save_living(owned)
            thread, keeper = owned.thread, owned.keeper
            is_in_step = (thread.number, thread.head_id) == (keeper.number, keeper.head_id)
            head = await keeper.load_head()
            if head is None:
                raise ThreadNotFound(thread_id)
            status = keeper.status if isinstance(keeper, StoredThread) else head.status
            again = repeated(head, keeper.number + 1, status)
            # What was recorded since the head is still to be replayed: it is the same place.
            await _whole(keeper.commit(again, (), "", status, unsettled=tuple(keeper.load_journal())))
            if is_in_step:
                thread.number, thread.head_id = keeper.number, again.checkpoint_id
        return again.info

    async def edit(self, change: Change, *, settles: bool = False) -> CheckpointInfo:
        """Make the head what `change` makes of it, as the next commit. With `settles` nothing that was recorded or sent
        since the head counts any more."""
        thread_id = self._request.thread_id or ""
        living = self._live.find(thread_id)
        if living is not None and living.is_ahead:
            await self.checkpoint()  # it was moved without this storage: what is edited is what is saved
        await self._find(thread_id)
        async with self._owned(thread_id) as owned:
            keeper, sent = owned.keeper, tuple(owned.thread.inbox)
            stored = await keeper.load_head()
            if stored is None:
                raise ThreadNotFound(thread_id)
            # Copies, before and after: neither the live thread nor the caller has anything of what is kept.
            head = own_copy(stored, keeper.codec)
            after = own_copy(change(head), keeper.codec)
            status = keeper.status if isinstance(keeper, StoredThread) else head.status
            if settles:
                status = resting_state(position_of(after)).value
            consumed = tuple(keeper.load_inbox(head.renamed_types)) if settles else ()
            unsettled = () if settles else tuple(keeper.load_journal())
            edited = repeated(after, keeper.number + 1, status)
            await _whole(keeper.commit(edited, (), "", status, unsettled=unsettled, consumed=consumed))
            for item_id in (*sent, *consumed) if settles else ():
                owned.thread.inbox.pop(item_id, None)
        # The live thread is left as it is, like after a rewind: the next run reads where it is.
        return edited.info

    async def _save_living(self, owned: Owned) -> CheckpointInfo:
        """A thread that was moved without this storage: it is saved as this process has it."""
        thread, keeper, told = owned.thread, owned.keeper, list[WorkflowEvent]()
        journal = Journal(thread, keeper, is_kept=keeper.has_journal)
        scope = RunScope(
            self._compiled,
            thread,
            keeper,
            owned.run_id,
            told.append,
            lambda: None,
            lambda _: None,
            self._clock,
            journal,
            is_streaming=False,
        )
        loop = Loop(scope, Committer(scope, "sync"))
        await owned.opening.synchronise(thread, loop, keeper)
        if thread.position.next_delivery_id == 1:
            raise ThreadNotFound(thread.thread_id)
        await loop.enter(add_records(thread.position, thread.records))
        return next(event.checkpoint for event in told if event.checkpoint is not None)

    # ------------------------------------------------------------ what it is about

    async def _named(self) -> WorkflowCheckpoint:
        """Migrated, as a run would have it. Raises CheckpointNotFound, DamagedCheckpoint, IncompatibleWorkflow, ..."""
        request = self._request
        migrator = self._compiled.migrator(force=request.force)
        named = await load_checkpoint(request.storage, request.checkpoint_id or "", self._compiled.declared, migrator)
        check_compatibility(named, self._compiled, force=request.force, migrator=migrator)
        return named

    async def _find(self, thread_id: str) -> None:
        """Raises ThreadNotFound, before opening it would make one."""
        storage = self._request.storage
        if isinstance(storage, StoreCheckpointStorage):
            await storage.find_thread(thread_id)
        else:
            await read_history(storage, thread_id, self._compiled.graph.name, limit=1)

    @asynccontextmanager
    async def _owned(self, thread_id: str) -> AsyncIterator[Owned]:
        """Claimed as a run claims it. Raises ThreadBusy."""
        request, live = self._request, self._live
        ownership = Ownership(new_run_id())
        opening = Opening(self._compiled, live, self._clock, request)
        on_busy = "interrupt" if request.takeover else request.on_busy
        thread = await live.claim(thread_id, ownership, on_busy)
        keeper: OpenThread | None = None
        try:
            keeper = await opening.open(thread, ownership)
            if keeper is None:
                raise NoStorage("Moving a thread")
            yield Owned(thread, keeper, opening, ownership.run_id)
        finally:
            try:
                if keeper is not None:
                    await _whole(keeper.release())
            except Exception as error:  # noqa: BLE001  # what was done says more; the next run here takes it over
                note_unreleased((storage_key(request.storage), thread_id, ownership.run_id))
                logger.warning("thread %s: its lease could not be given up: %s", thread_id, type(error).__name__)
            finally:
                live.release(thread, ownership, forget=True)
                live.drop_new(thread)
                ownership.take_interruption()


async def _whole(work: Coroutine[Any, Any, T]) -> T:
    """To its end, although its caller is cancelled: what is stored and what is told cannot part then."""
    done, cancelled = await await_uncancelled(work)
    if cancelled is not None:
        raise cancelled
    return done
