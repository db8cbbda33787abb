"""Opening a thread: which one a run is for, and where it stands according to its store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from perdure.checkpoints.access import OwnerWait
from perdure.checkpoints.any_storage import load_checkpoint, open_thread
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.level import ChildCheckpoint
from perdure.checkpoints.migration.migrations import Migrator
from perdure.checkpoints.open_thread import OpenThread
from perdure.clock import Clock
from perdure.engine.run.options import RunRequest
from perdure.engine.steps.journal import take_journal
from perdure.engine.superstep.loop import Loop
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.inputs import absorb_records
from perdure.engine.thread.live_threads import (
    BUSY_POLL_SECONDS,
    NOT_IN_STEP,
    LiveThread,
    LiveThreads,
    Ownership,
    find_ending_run,
)
from perdure.engine.thread.position import Position, position_of
from perdure.errors import DamagedCheckpoint, IncompatibleWorkflow, InvalidRun, RunInterrupted, ThreadBusy
from perdure.events import WorkflowEvent
from perdure.graph.signature import differences
from perdure.log import get_logger
from perdure.names import new_thread_id


def check_compatibility(
    checkpoint: WorkflowCheckpoint, compiled: Compiled, *, force: bool, migrator: Migrator | None = None
) -> list[WorkflowEvent]:
    """A warning for harmless changes since the checkpoint was made, and one for migrations that were applied to it.
    Raises IncompatibleWorkflow for other changes."""
    breaking, added = changes_since(checkpoint, compiled)
    if migrator is not None:
        breaking = [*migrator.differences, *breaking]
    if breaking and not force:
        raise IncompatibleWorkflow(checkpoint.checkpoint_id, compiled.graph.name, breaking)
    warnings: list[str] = []
    if migrator is not None and migrator.applied:
        warnings.append(f"Migrations were applied to the checkpoint: {', '.join(migrator.applied)}.")
    if breaking or added:
        changes = "; ".join((*breaking, *added))
        warnings.append(f"The workflow changed since the checkpoint was made: {changes}.")
    return [WorkflowEvent("warning", text) for text in warnings]


def changes_since(checkpoint: WorkflowCheckpoint, compiled: Compiled) -> tuple[list[str], list[str]]:
    """(what breaks, what was only added) since the checkpoint was made."""
    name = compiled.graph.name
    breaking: list[str] = []
    added: list[str] = []
    if checkpoint.workflow_name != name:
        breaking.append(f"the workflow was called {checkpoint.workflow_name!r} and is called {name!r}")
    if checkpoint.graph_signature_hash != compiled.signature_hash:
        if checkpoint.graph_signature:
            broken, added = differences(checkpoint.graph_signature, compiled.signature)
            breaking += broken
        else:
            breaking.append("its graph signature is another one")
    gone = sorted(_gone(checkpoint, compiled, ""))
    if gone and checkpoint.graph_signature_hash == compiled.signature_hash:
        reason = f"something is due to executor {gone[0]!r}, which its graph does not have"
        raise DamagedCheckpoint(checkpoint.checkpoint_id, reason)
    breaking += [f"something is due to executor {executor_id!r}, which is gone" for executor_id in gone]
    return breaking, added


def _gone(level: WorkflowCheckpoint | ChildCheckpoint, compiled: Compiled, path: str) -> set[str]:
    """Executors that something is due to, and that the graph does not have, by path."""
    known = compiled.graph.nodes
    due = {*(str(one.target_id) for one in level.deliveries)}
    due |= {_asker(one, known) for one in level.pending_request_info_events.values()}
    due |= {str(one.message.target_id) for one in level.suspended.values()}
    due |= {one.executor_id for one in level.children.values()}
    gone = {f"{path}{executor_id}" for executor_id in due if executor_id not in known}
    for child in level.children.values():
        inner = compiled.children.get(child.executor_id)
        if inner is not None:
            gone |= _gone(child, inner, f"{path}{child.executor_id}/")
        elif child.executor_id in known:  # it is there, but runs no sub-workflow any more
            gone.add(f"{path}{child.executor_id}")
    return gone


def _asker(request: WorkflowEvent, known: Iterable[str]) -> str:
    """The executor of this very workflow that waits for the answer, itself or for its sub-workflow."""
    asker = str(request.source_executor_id)
    if request.child_id is None:
        return asker
    return next((one for one in known if asker.startswith(f"{one}/")), asker)


def compatible_position(checkpoint: WorkflowCheckpoint, compiled: Compiled) -> Position:
    """Where the checkpoint is. With force=True what was due to executors that are gone is left out."""
    position = position_of(checkpoint)
    _leave_out(position, compiled)
    return position


def _leave_out(position: Position, compiled: Compiled) -> None:
    known = compiled.graph.nodes
    position.mailbox = [message for message in position.mailbox if message.target_id in known]
    position.requests = {key: one for key, one in position.requests.items() if _asker(one, known) in known}
    position.suspended = {key: one for key, one in position.suspended.items() if one.message.target_id in known}
    position.children = {key: one for key, one in position.children.items() if one.executor_id in compiled.children}
    position.saved = {key: one for key, one in position.saved.items() if key in known}
    for child in position.children.values():
        _leave_out(child.position, compiled.children[child.executor_id])


logger = get_logger("engine")


class Opening:
    """For one run: finds its thread and puts the live one where the store says."""

    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._request = request
        self._migrator = compiled.migrator(force=request.force)
        self.named: WorkflowCheckpoint | None = None
        """The checkpoint that the caller named."""
        self.warnings: list[WorkflowEvent] = []
        self._inbox_before: set[str] = set()
        """What was in the thread's inbox here before it was opened in the store."""
        self.becomes_default = False
        """Whether the chosen thread is to be the object's own from now on, if the run is accepted."""

    async def choose_thread(self) -> str:
        """The thread to run. Raises CheckpointNotFound, IncompatibleWorkflow or InvalidRun before anything is done."""
        request = self._request
        if request.checkpoint_id is None:
            return request.thread_id or self._live.default_or_new_id()
        migrator = self._migrator
        named = await load_checkpoint(request.storage, request.checkpoint_id, self._compiled.declared, migrator)
        self.warnings += check_compatibility(named, self._compiled, force=request.force, migrator=migrator)
        self.named = named
        kept = None if request.fork else named.thread_id
        if kept and request.thread_id is not None and request.thread_id != kept:
            raise InvalidRun(
                f"Checkpoint {named.checkpoint_id!r} belongs to thread {kept!r}, not to {request.thread_id!r}. "
                "Nothing was changed. Leave thread_id out to rewind its thread, or pass fork=True to make a new one."
            )
        self.becomes_default = request.thread_id is None
        return kept or request.thread_id or new_thread_id()

    async def open(self, thread: LiveThread, ownership: Ownership) -> OpenThread | None:
        """Claim the thread in its store; None without a storage. Raises ThreadBusy."""
        request = self._request
        if request.storage is None:
            return None
        async with OwnerWait(request.storage, thread.thread_id) as waiting:
            while True:
                self._inbox_before = set(thread.inbox)
                try:
                    return await self._open_now(thread, ownership.run_id)
                except ThreadBusy as busy:
                    ending = find_ending_run(busy.run_id)
                    ended = (*self._place(thread), busy.run_id)
                    if busy.is_here and ended in unreleased:  # a run of this process that ended, and could not say so
                        stored_thread = await self._open_now(thread, ownership.run_id, takeover=True)
                        unreleased.pop(ended, None)
                        return stored_thread
                    if ownership.is_interrupted:
                        raise RunInterrupted(ownership.run_id, thread.thread_id) from busy
                    if ending is not None:
                        await ending.wait()
                    elif request.on_busy == "enqueue":
                        with ownership.waiting():
                            await waiting.until_free()
                    else:
                        raise

    async def _open_now(self, thread: LiveThread, run_id: str, *, takeover: bool = False) -> OpenThread:
        request = self._request
        place = self._place(thread)
        while place in _leftovers:  # else a late answer of the store would take the thread from this run
            loop = _leftovers[place].get_loop()
            if loop is asyncio.get_running_loop():
                await asyncio.wait([_leftovers[place]])
            elif loop.is_closed():  # nobody is left to give it up
                del _leftovers[place]
                takeover = True
            else:
                await asyncio.sleep(BUSY_POLL_SECONDS)
        takes_over = takeover or request.takeover or request.on_busy == "interrupt" or thread.is_abandoned
        opening = asyncio.ensure_future(
            open_thread(
                request.storage,
                thread.thread_id,
                self._compiled.graph.name,
                self._compiled.declared,
                owner=run_id,
                takeover=takes_over,
                max_lag=request.max_lag if request.durability == "async" else 1,
                migrator=self._migrator,
            )
        )
        try:
            stored_thread = await asyncio.shield(opening)
        except asyncio.CancelledError:
            _give_back(opening, place, run_id)
            raise
        except ThreadBusy:
            raise
        except Exception:
            note_unreleased((*place, run_id))  # the store may have given it the thread before it failed
            raise
        unreleased.pop((*place, run_id), None)  # it was tried again, and owns it now
        thread.is_abandoned = False
        return stored_thread

    def _place(self, thread: LiveThread) -> _Place:
        return storage_key(self._request.storage), thread.thread_id

    async def synchronise(self, thread: LiveThread, loop: Loop, stored_thread: OpenThread | None) -> None:
        """Stand where the store says, if it was moved since this process last looked.

        A run that names an older checkpoint does not read the head: it is the way back from a damaged one.
        """
        if stored_thread is None:
            await loop.tidy()
            absorb_records(thread)
            return
        named = self.named
        storage = self._request.storage
        is_elsewhere = thread.storage is not None and thread.storage is not storage
        if self._request.thread_id is not None and is_elsewhere:
            # The same id in another storage is another thread.
            await loop.restore(Position(), {})
            thread.number, thread.head_id, thread.inbox = 0, None, {}
        thread.storage = storage
        is_at_head = named is None or named.checkpoint_id == stored_thread.head_id
        if stored_thread.number != thread.number or stored_thread.head_id != thread.head_id:
            if named is None or (is_at_head and self._migrator.applied):  # its journal has to be migrated with it
                head = await stored_thread.load_head()
            else:
                head = named if is_at_head else None
            if head is not None and named is None:
                self.warnings += check_compatibility(
                    head, self._compiled, force=self._request.force, migrator=self._migrator
                )
            if head is not None:
                await self._stand_at(head, thread, loop)
            elif named is None and thread.head_id is not None and not is_elsewhere:
                # All that was saved of it was deleted.
                await loop.restore(Position(), {})
            thread.number, thread.head_id = stored_thread.number, stored_thread.head_id
        elif (
            is_at_head and stored_thread.is_stale
        ):  # it stands at a migrated head that was not stored: the last run did not get that far
            await stored_thread.load_head()
        await loop.tidy()
        if stored_thread.has_inbox:  # what the store has, and only that: another object may have delivered the rest
            standing = thread.position if named is None else named
            loaded = stored_thread.load_inbox(standing.renamed_types)
            came = {
                key: one for key, one in thread.inbox.items() if key not in self._inbox_before and key not in loaded
            }
            thread.inbox = {**loaded, **came}  # what came since it was opened: nobody else can have delivered it
        if stored_thread.has_journal and not thread.is_ahead and self._request.durability != "exit":
            # Only what the store has: what a run with durability="exit" recorded in memory would leave a gap there.
            thread.records = {}
        if named is None or named.checkpoint_id == thread.head_id:
            take_journal(thread, stored_thread)
        absorb_records(thread)

    def rewound(self, thread: LiveThread, *, is_new: bool) -> Position | None:
        """Where the caller's checkpoint is; None if none was named, or the thread stands there already."""
        named, fork = self.named, self._request.fork
        if fork and not (is_new and thread.position.next_delivery_id == 1):
            raise InvalidRun(
                f"Thread {thread.thread_id!r} exists already, so a fork cannot become it. Nothing was changed. Choose "
                "another thread_id, or leave it out to have one made."
            )
        if named is None or (named.checkpoint_id == thread.head_id and not fork and not thread.is_ahead):
            return None
        position = compatible_position(named, self._compiled)
        if not fork:  # deliveries after it are others than those that followed the checkpoint the first time
            position.epoch = thread.number + 1
        return position

    async def rewind(self, thread: LiveThread, loop: Loop) -> None:
        """Go to the checkpoint that the caller named, once it is sure that the run is accepted."""
        if self.named is not None:
            # Until the rewind is committed the store stands elsewhere: should anything fail before, it is read anew.
            thread.number = NOT_IN_STEP
            await self._stand_at(self.named, thread, loop)

    async def _stand_at(self, checkpoint: WorkflowCheckpoint, thread: LiveThread, loop: Loop) -> None:
        known = self._compiled.graph.nodes
        saved = {key: one.saved for key, one in checkpoint.executors.items() if one.saved is not None and key in known}
        await loop.restore(compatible_position(checkpoint, self._compiled), saved)
        thread.head_id = checkpoint.checkpoint_id
        thread.is_ahead = False


_Place = tuple[object, str]
"""A storage, and a thread in it."""


def storage_key(storage: Any) -> object:
    """Where it keeps things: another storage object of this process may be over the same file or folder."""
    return getattr(getattr(storage, "store", None), "path", None) or id(storage)


unreleased: dict[tuple[object, str, str | None], bool] = {}
"""Runs of this process that have ended, and that a store may still take for owners: a release failed. By storage and
thread."""


def note_unreleased(run: tuple[object, str, str]) -> None:
    unreleased[run] = True
    if len(unreleased) > 1000:  # the oldest is long since made good, or takeover=True is the way
        del unreleased[next(iter(unreleased))]


_leftovers: dict[_Place, asyncio.Future[None]] = {}
"""What stores still open for runs that were cancelled meanwhile: given up as soon as it comes."""


def _give_back(opening: asyncio.Future[OpenThread], place: _Place, run_id: str) -> None:
    """The caller did not wait for the store: a store that hangs must not hold up a run that was cancelled."""

    async def release() -> None:
        try:
            await (await opening).release()
        except Exception as error:  # noqa: BLE001  # nobody waits for it; what was not opened need not be given up
            note_unreleased((*place, run_id))
            logger.debug("a thread that was opened too late was not given up: %r", error)
        finally:
            _leftovers.pop(place, None)

    _leftovers[place] = asyncio.ensure_future(release())
