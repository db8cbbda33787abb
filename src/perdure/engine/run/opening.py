"""Opening a thread: choose it, claim it in its store, and load its position."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from perdure.checkpoints.access import OwnerWait
from perdure.checkpoints.any_storage import OpenThread, load_checkpoint, open_thread
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.encode import is_due
from perdure.checkpoints.migration.migrations import Migrator
from perdure.engine.delivery.scope import absorb_records, take_journal
from perdure.engine.run.loop import Loop
from perdure.engine.run.request import RunRequest
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import (
    BUSY_POLL_SECONDS,
    NOT_IN_STEP,
    LiveThread,
    LiveThreads,
    Ownership,
    local_runs,
)
from perdure.engine.thread.position import Position, position_of
from perdure.errors import DamagedCheckpoint, IncompatibleWorkflow, InvalidRun, RunInterrupted, ThreadBusy
from perdure.events import WorkflowEvent
from perdure.graph.validation import differences
from perdure.log import get_logger
from perdure.names import new_thread_id
from perdure.records import ChildCheckpoint


def check_compatibility(
    checkpoint: WorkflowCheckpoint, compiled: Compiled, *, force: bool, migrator: Migrator
) -> list[WorkflowEvent]:
    """A warning for harmless changes since the checkpoint was made, and one for migrations that were applied to it.
    Raises IncompatibleWorkflow for other changes."""
    breaking, added = changes_since(checkpoint, compiled)
    breaking = [*migrator.differences, *breaking]
    if breaking and not force:
        raise IncompatibleWorkflow(checkpoint.checkpoint_id, compiled.graph.name, breaking)
    texts = []
    if migrator.applied:
        texts.append(f"Migrations were applied to the checkpoint: {', '.join(migrator.applied)}.")
    if breaking or added:
        texts.append(f"The workflow changed since the checkpoint was made: {'; '.join((*breaking, *added))}.")
    return [WorkflowEvent("warning", text) for text in texts]


def changes_since(checkpoint: WorkflowCheckpoint, compiled: Compiled) -> tuple[list[str], list[str]]:
    """Breaking changes, and additions, since the checkpoint was made."""
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
            breaking.append("its graph signature is different")
    for source_id, messages in checkpoint.messages.items():
        for index, message in enumerate(messages):
            if not is_due(message, source_id):
                reason = f"messages[{source_id!r}][{index}] is not a WorkflowMessage of that sender with a target_id"
                raise DamagedCheckpoint(checkpoint.checkpoint_id, reason)
    for executor_id in sorted(_missing_executors(checkpoint, compiled, "")):
        if checkpoint.graph_signature_hash == compiled.signature_hash:
            reason = f"something is due to executor {executor_id!r}, which its graph does not have"
            raise DamagedCheckpoint(checkpoint.checkpoint_id, reason)
        breaking.append(f"something is due to executor {executor_id!r}, which is gone")
    return breaking, added


def _missing_executors(level: WorkflowCheckpoint | ChildCheckpoint, compiled: Compiled, path: str) -> set[str]:
    """Executors with due deliveries that the graph does not have, by path."""
    nodes = compiled.graph.nodes
    due = {str(message.target_id) for messages in level.messages.values() for message in messages}
    due |= {_asker(request, nodes) for request in level.pending_request_info_events.values()}
    due |= {str(delivery.message.target_id) for delivery in level.suspended.values()}
    due |= {child.executor_id for child in level.children.values()}
    gone = {f"{path}{executor_id}" for executor_id in due - nodes.keys()}
    for child in level.children.values():
        inner = compiled.children.get(child.executor_id)
        if inner is not None:
            gone |= _missing_executors(child, inner, f"{path}{child.executor_id}/")
        elif child.executor_id in nodes:  # it exists, but no longer runs a sub-workflow
            gone.add(f"{path}{child.executor_id}")
    return gone


def _asker(request: WorkflowEvent, executor_ids: Iterable[str]) -> str:
    """The executor of this workflow that waits for the answer, itself or for its sub-workflow."""
    asker = str(request.source_executor_id)
    if request.child_id is None:
        return asker
    return next((executor_id for executor_id in executor_ids if asker.startswith(f"{executor_id}/")), asker)


def compatible_position(checkpoint: WorkflowCheckpoint, compiled: Compiled) -> Position:
    """The position of the checkpoint, without deliveries to executors that no longer exist (force=True)."""
    position = position_of(checkpoint)
    if checkpoint.graph_signature_hash != compiled.signature_hash:
        _leave_out(position, compiled)
    return position


def _leave_out(position: Position, compiled: Compiled) -> None:
    nodes, suspended, children = compiled.graph.nodes, position.suspended.items(), position.children.items()
    position.mailbox = [message for message in position.mailbox if message.target_id in nodes]
    position.requests = {key: event for key, event in position.requests.items() if _asker(event, nodes) in nodes}
    position.suspended = {key: delivery for key, delivery in suspended if delivery.message.target_id in nodes}
    position.children = {key: child for key, child in children if child.executor_id in compiled.children}
    position.saved = {key: memory for key, memory in position.saved.items() if key in nodes}
    for child in position.children.values():
        _leave_out(child.position, compiled.children[child.executor_id])


logger = get_logger("engine")


class Opening:
    """For one run: finds its thread, and moves the live thread to the position in the store."""

    def __init__(self, live: LiveThreads, request: RunRequest) -> None:
        self._compiled = live.compiled
        self._live = live
        self._request = request
        self._migrator = live.compiled.migrator(force=request.force)
        self.named: WorkflowCheckpoint | None = None
        """The checkpoint that the caller named."""
        self.warnings: list[WorkflowEvent] = []
        self._inbox_before: set[str] = set()
        """Ids in the live thread's inbox before the store opened it."""
        self.becomes_default = False
        """Whether the chosen thread becomes the default thread, if the run is accepted."""

    async def choose_thread(self) -> str:
        """The thread to run. Raises CheckpointNotFound, IncompatibleWorkflow or InvalidRun before anything is done."""
        request = self._request
        if request.checkpoint_id is None:
            return request.thread_id or self._live.default_or_new_id()
        migrator = self._migrator
        named = await load_checkpoint(request.storage, request.checkpoint_id, self._compiled.declared, migrator)
        self.warnings += check_compatibility(named, self._compiled, force=request.force, migrator=migrator)
        self.named = named
        thread_id = None if request.fork else named.thread_id
        if thread_id and request.thread_id is not None and request.thread_id != thread_id:
            raise InvalidRun(
                f"Checkpoint {named.checkpoint_id!r} belongs to thread {thread_id!r}, not to {request.thread_id!r}. "
                "Nothing was changed. Leave thread_id out to rewind its thread, or pass fork=True to make a new one."
            )
        self.becomes_default = request.thread_id is None
        return thread_id or request.thread_id or new_thread_id()

    async def open(self, thread: LiveThread, ownership: Ownership) -> OpenThread | None:
        """Claim the thread in its store; None without a storage. Raises ThreadBusy."""
        if self._request.storage is None:
            return None
        try:
            return await self._open_now(thread, ownership.run_id)
        except ThreadBusy as busy:
            return await self._open_when_free(thread, ownership, busy)

    async def _open_when_free(self, thread: LiveThread, ownership: Ownership, busy: ThreadBusy) -> OpenThread:
        """Open a thread with another owner: wait for its end, or raise ThreadBusy."""
        request = self._request
        async with OwnerWait(request.storage, thread.thread_id) as waiting:
            while True:
                owner = local_runs.get(busy.run_id or "")
                ended = (*self._place(thread), busy.run_id)
                if busy.is_here and ended in unreleased:  # a run of this process that ended without a release
                    stored_thread = await self._open_now(thread, ownership.run_id, takeover=True)
                    unreleased.pop(ended, None)
                    return stored_thread
                if ownership.is_interrupted:
                    raise RunInterrupted(ownership.run_id, thread.thread_id) from busy
                if owner is not None and owner.is_interrupted:
                    await owner.wait()
                elif request.on_busy == "enqueue":
                    with ownership.mark_waiting():
                        await waiting.until_free()
                else:
                    raise busy
                try:
                    return await self._open_now(thread, ownership.run_id)
                except ThreadBusy as again:
                    busy = again

    async def _open_now(self, thread: LiveThread, run_id: str, *, takeover: bool = False) -> OpenThread:
        request = self._request
        self._inbox_before = set(thread.inbox)
        if _leftovers:
            takeover = await self._wait_for_leftover(self._place(thread)) or takeover
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
                graph=self._compiled.encoded_graph,
            )
        )
        try:
            stored_thread = await asyncio.shield(opening)
        except asyncio.CancelledError:
            _give_back(opening, self._place(thread), run_id)
            raise
        except Exception as error:
            if not isinstance(error, ThreadBusy):  # the store may have granted the claim before it failed
                note_unreleased((*self._place(thread), run_id))
            raise
        if unreleased:
            unreleased.pop((*self._place(thread), run_id), None)  # the retry succeeded
        thread.is_abandoned = False
        return stored_thread

    async def _wait_for_leftover(self, place: _Place) -> bool:
        """Wait for the claim of a cancelled run: it could take the thread from this run later. True if its event loop
        is closed, so that it can no longer release the thread."""
        while place in _leftovers:
            loop = _leftovers[place].get_loop()
            if loop is asyncio.get_running_loop():
                await asyncio.wait([_leftovers[place]])
            elif loop.is_closed():
                del _leftovers[place]
                return True
            else:
                await asyncio.sleep(BUSY_POLL_SECONDS)
        return False

    def _place(self, thread: LiveThread) -> _Place:
        return storage_key(self._request.storage), thread.thread_id

    async def synchronise(self, thread: LiveThread, loop: Loop, stored_thread: OpenThread | None) -> None:
        """Move the live thread to the position in the store, if that changed since this process read it.

        A run that names an older checkpoint does not read the head, so that it can rewind from a damaged one.
        """
        if stored_thread is None:
            if thread.is_dirty:  # undoing a superstep was interrupted
                await loop.memory.restore_here()
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
                await self._move_to(head, thread, loop)
            elif named is None and thread.head_id is not None and not is_elsewhere:
                # All its checkpoints were deleted.
                await loop.restore(Position(), {})
            thread.number, thread.head_id = stored_thread.number, stored_thread.head_id
        elif thread.head_id is not None and is_at_head and stored_thread.tail.is_stale:
            await stored_thread.load_head()  # the last run migrated the head but did not store it
        if thread.is_dirty:
            await loop.memory.restore_here()
        if stored_thread.has_journal:  # only the store's items: another object may have delivered the others
            standing = thread.position if named is None else named
            loaded = stored_thread.tail.inbox(stored_thread.codec, standing.renamed_types)
            for item_id, item in thread.inbox.items():
                # Items that arrived after the thread was opened: no other owner can have delivered them.
                if item_id not in self._inbox_before:
                    loaded.setdefault(item_id, item)
            thread.inbox = loaded
        if stored_thread.has_journal and not thread.is_ahead and self._request.durability != "exit":
            # Only the store's records: those of a run with durability="exit" are in memory, and would leave a gap.
            thread.records = {}
        if named is None or named.checkpoint_id == thread.head_id:
            take_journal(thread, stored_thread)
        absorb_records(thread)

    def find_target(self, thread: LiveThread, *, is_new: bool) -> Position | None:
        """The position of the caller's checkpoint; None if the caller named none, or the thread is at it."""
        named, fork = self.named, self._request.fork
        if fork and not (is_new and thread.position.next_delivery_id == 1):
            raise InvalidRun(
                f"Thread {thread.thread_id!r} exists already, so a fork cannot become it. Nothing was changed. Choose "
                "another thread_id, or leave it out to get a new one."
            )
        if named is None or (named.checkpoint_id == thread.head_id and not fork and not thread.is_ahead):
            return None
        position = compatible_position(named, self._compiled)
        if not fork:  # deliveries after a rewind need other idempotency keys than those of the first time
            position.epoch = thread.number + 1
        return position

    async def rewind(self, thread: LiveThread, loop: Loop) -> None:
        """Move to the checkpoint that the caller named, once the run is accepted."""
        if self.named is not None:
            # Until the rewind is committed, the store has another position. If it fails, the next run reads the store.
            thread.number = NOT_IN_STEP
            await self._move_to(self.named, thread, loop)

    async def _move_to(self, checkpoint: WorkflowCheckpoint, thread: LiveThread, loop: Loop) -> None:
        nodes, memories = self._compiled.graph.nodes, checkpoint.executors.items()
        saved = {key: memory.saved for key, memory in memories if memory.saved is not None and key in nodes}
        await loop.restore(compatible_position(checkpoint, self._compiled), saved)
        thread.head_id = checkpoint.checkpoint_id
        thread.is_ahead = False


_Place = tuple[object, str]
"""A storage, and a thread in it."""


def storage_key(storage: Any) -> object:
    """Identifies the storage's location: another storage object of this process may use the same file or folder."""
    return getattr(getattr(storage, "store", None), "path", None) or id(storage)


unreleased: dict[tuple[object, str, str | None], bool] = {}
"""Ended runs of this process whose release failed, so that a store may still name them as owners. By storage and
thread."""


def note_unreleased(run: tuple[object, str, str]) -> None:
    unreleased[run] = True
    if len(unreleased) > 1000:  # for the oldest, takeover=True remains
        del unreleased[next(iter(unreleased))]


_leftovers: dict[_Place, asyncio.Future[None]] = {}
"""Claims of cancelled runs that stores have not finished yet. Each is released once it succeeds."""


def _give_back(opening: asyncio.Future[OpenThread], place: _Place, run_id: str) -> None:
    """Release the thread in the background once the store grants it: a hanging store must not block cancelled runs."""

    async def release() -> None:
        try:
            await (await opening).release()
        except Exception as error:  # noqa: BLE001  # in the background; a failed claim needs no release
            note_unreleased((*place, run_id))
            logger.debug("the claim of a cancelled run was not released: %r", error)
        finally:
            _leftovers.pop(place, None)

    _leftovers[place] = asyncio.ensure_future(release())
