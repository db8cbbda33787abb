"""One run: a call that moves a thread forward, from its first check to its final status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.checkpoints.checkpoint import WorkflowCheckpoint
from holdfast.checkpoints.storage import load_checkpoint, open_thread
from holdfast.checkpoints.threads import PlainThread, ThreadKeeper
from holdfast.clock import Clock
from holdfast.engine.compiled import Compiled
from holdfast.engine.effects import decode_effects
from holdfast.engine.entry import Entry, RunRequest, check_fits, check_message, enter, with_message
from holdfast.engine.live import LiveThreads, Ownership
from holdfast.engine.loop import Loop, resting_state, running_state
from holdfast.engine.result import WorkflowRunResult
from holdfast.engine.telling import own_event
from holdfast.engine.thread import Position, Thread, position_of
from holdfast.errors import DamagedCheckpoint, InvalidRun, ThreadBusy, UnreadableValue
from holdfast.events import WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from holdfast.log import get_logger
from holdfast.names import new_run_id, new_thread_id

logger = get_logger("engine")

BUSY_POLL_SECONDS = 0.02
"""How often a waiting run looks whether a thread held through another workflow object is free."""

NOT_IN_STEP = -1
"""A live thread that stands elsewhere than its store says: the next run reads it anew."""


class Run:
    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self.run_id = request.run_id or new_run_id()
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._request = request
        self._events: list[WorkflowEvent] = []
        self._statuses: list[WorkflowEvent] = []
        self._warnings: list[WorkflowEvent] = []
        self._listener: Callable[[WorkflowEvent], None] | None = None
        self._ownership: Ownership | None = None
        self._loop: Loop | None = None
        self._began = False
        self._inbox: list[Callable[[Position], Position]] = []
        self.thread_id: str | None = None
        """Known once it has begun."""

    # ------------------------------------------------------------ from start to end

    async def execute(
        self, listener: Callable[[WorkflowEvent], None] | None = None, *, include_status_events: bool = False
    ) -> WorkflowRunResult:
        """Run to the end. Raises what a handler raised, after the thread was put back to its head and released."""
        self._listener = listener
        self._ownership = Ownership(self.run_id)
        checkpoint = await self._named_checkpoint()
        thread_id = self.thread_id = self._choose_thread(checkpoint)
        thread = await self._live.claim(thread_id, self._ownership, self._request.on_busy)
        keeper: ThreadKeeper | None = None
        error: BaseException | None = None
        try:
            keeper = await self._open(thread_id)
            loop = self._loop = self._make_loop(thread, keeper)
            await self._move(thread, loop, keeper, checkpoint)
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001  # raised again, after the release
            error = raised
        finally:
            if keeper is not None:
                await keeper.release()
            self._live.release(thread, forget=keeper is not None)
        return self._ended(thread, error, include_status_events)

    async def _move(
        self, thread: Thread, loop: Loop, keeper: ThreadKeeper | None, checkpoint: WorkflowCheckpoint | None
    ) -> None:
        await self._synchronise(thread, loop, keeper, checkpoint)
        if self._waits_for(thread):
            self._announce(thread, loop, keeper)
        try:
            if self._began:
                await loop.drive()
            entry = await self._prepare(thread, loop, checkpoint, is_new=keeper is None or keeper.number == 0)
            if not self._began:
                self._announce(thread, loop, keeper, entry.position)
            for event in entry.told_again:
                self._emit(event)
            for warning in entry.warnings:
                loop.tell(warning)
            if entry.position is not None:
                await loop.enter(entry.position)
            await loop.drive()
            thread.status = resting_state(thread.position)
            await loop.finish(thread.status)
        except asyncio.CancelledError:
            await self._record_end(thread, loop, WorkflowRunState.CANCELLED)
            raise
        except Exception as error:
            if self._began:
                details = WorkflowErrorDetails.from_exception(error, executor_id=loop.failed_executor_id)
                failed = WorkflowEvent("failed", details=details)
                self._emit(failed)
                await self._record_end(thread, loop, WorkflowRunState.FAILED, failed)
            raise

    async def _record_end(self, thread: Thread, loop: Loop, state: WorkflowRunState, *events: WorkflowEvent) -> None:
        thread.status = state
        try:
            await loop.finish(state, events)
        except Exception as error:  # noqa: BLE001  # the storage is what failed: what ended the run says more
            logger.warning("run %s ended %s; saving that failed: %s", self.run_id, state.value, type(error).__name__)

    def _ended(self, thread: Thread, error: BaseException | None, include_status_events: bool) -> WorkflowRunResult:
        """The final status, after the commit and after the thread was released; then the result or the error."""
        if self._began:
            self._status(thread.status)
        else:
            self._live.drop_new(thread)
        interrupted = self._ownership is not None and self._ownership.take_interruption()
        if error is not None and self._inbox:
            error.add_note(f"{len(self._inbox)} message(s) sent to the run meanwhile were not delivered.")
        if error is not None and not (interrupted and isinstance(error, asyncio.CancelledError)):
            raise error
        left_out = ("started",) if include_status_events else ("started", "status")
        told = [one for one in self._events if one.type not in left_out]
        position = thread.position
        asked = {one.request_id: one for one in told if one.type == "request_info"}
        return WorkflowRunResult(
            map(own_event, told) if position.mailbox else told,  # what is still due must not change with its events
            self._statuses,
            [own_event(one) for one in position.outputs],
            [asked.get(key) or own_event(one) for key, one in position.requests.items()],
            thread_id=thread.thread_id,
            run_id=self.run_id,
            checkpoint_id=thread.head_id,
        )

    def _make_loop(self, thread: Thread, keeper: ThreadKeeper | None) -> Loop:
        return Loop(
            self._compiled,
            thread,
            keeper,
            self.run_id,
            self._emit,
            is_streaming=self._listener is not None,
            durability=self._request.durability,
            inbox=self._inbox,
        )

    # ------------------------------------------------------------ while it runs

    def interrupt(self) -> None:
        """End it now; its result says CANCELLED."""
        if self._ownership is not None:
            self._ownership.interrupt()

    def check_message(self, message: Any) -> None:
        check_message(self._compiled.graph, message)

    def send(self, message: Any) -> bool:
        """Deliver a message in the next superstep. False if the run is no longer taking any: start another one."""
        if self._loop is not None and not self._loop.takes_input:
            return False
        self.check_message(message)
        self._inbox.append(lambda position: with_message(self._compiled.graph, position, message))
        return True

    # ------------------------------------------------------------ events

    def _emit(self, event: WorkflowEvent) -> None:
        self._events.append(event)
        if self._listener is not None:
            self._listener(own_event(event))
        if event.type == "request_info" and not event.replayed:
            pending = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS
            if all(status.state is not pending for status in self._statuses):
                self._status(pending)

    def _status(self, state: WorkflowRunState) -> None:
        event = WorkflowEvent("status", state=state)
        self._statuses.append(event)
        self._emit(event)

    def _announce(
        self, thread: Thread, loop: Loop, keeper: ThreadKeeper | None, entered: Position | None = None
    ) -> None:
        self._began = True
        thread.status = running_state(entered or thread.position)
        loop.tell(WorkflowEvent("started"))
        loop.log(WorkflowEvent("status", state=thread.status))
        self._status(thread.status)
        for warning in self._warnings:
            loop.tell(warning)
        if isinstance(keeper, PlainThread):
            text = (
                "This storage has only the six methods of CheckpointStorage, so the thread has no journal (a failed "
                "superstep runs again whole), no event log, and no protection against a second process moving it."
            )
            loop.tell(WorkflowEvent("warning", text))

    # ------------------------------------------------------------ which thread

    async def _named_checkpoint(self) -> WorkflowCheckpoint | None:
        checkpoint_id = self._request.checkpoint_id
        if checkpoint_id is None:
            return None
        checkpoint = await load_checkpoint(self._request.storage, checkpoint_id, self._compiled.declared)
        self._warnings += check_fits(checkpoint, self._compiled, force=self._request.force)
        return checkpoint

    def _choose_thread(self, checkpoint: WorkflowCheckpoint | None) -> str:
        request = self._request
        if checkpoint is None:
            return request.thread_id or self._live.own_or_new_id()
        kept = None if request.fork else checkpoint.thread_id
        if kept and request.thread_id is not None and request.thread_id != kept:
            raise InvalidRun(
                f"Checkpoint {checkpoint.checkpoint_id!r} belongs to thread {kept!r}, not to {request.thread_id!r}. "
                "Nothing was changed. Leave thread_id out to rewind its thread, or pass fork=True to make a new one."
            )
        chosen = kept or request.thread_id or new_thread_id()
        if request.thread_id is None:
            self._live.own_id = chosen
        return chosen

    async def _open(self, thread_id: str) -> ThreadKeeper | None:
        request = self._request
        if request.storage is None:
            return None
        while True:
            try:
                return await open_thread(
                    request.storage,
                    thread_id,
                    self._compiled.graph.name,
                    self._compiled.declared,
                    owner=self.run_id,
                    takeover=request.takeover or request.on_busy == "interrupt",
                )
            except ThreadBusy:
                if request.on_busy != "enqueue":
                    raise
                await self._clock.sleep(BUSY_POLL_SECONDS)

    async def _synchronise(
        self, thread: Thread, loop: Loop, keeper: ThreadKeeper | None, named: WorkflowCheckpoint | None
    ) -> None:
        """Stand where the store says, if it was moved since this process last looked.

        A run that names an older checkpoint does not read the head: it is the way back from a damaged one.
        """
        if keeper is None:
            return
        if keeper.number != thread.number:
            is_head = named is not None and named.checkpoint_id == keeper.head_id
            head = named if named is not None and is_head else None if named is not None else await keeper.load_head()
            if head is not None:
                self._warnings += check_fits(head, self._compiled, force=self._request.force)
                await self._stand_at(head, thread, loop)
            thread.number, thread.head_id = keeper.number, keeper.head_id
        if named is None or named.checkpoint_id == thread.head_id:
            self._take_journal(thread, keeper)

    def _take_journal(self, thread: Thread, keeper: ThreadKeeper) -> None:
        """Also where the number is the same: another owner may have recorded deliveries and ended before its commit."""
        targets = {message.delivery_id: str(message.target_id) for message in thread.position.mailbox}
        for delivery_id, tree in keeper.load_journal().items():
            if delivery_id in targets and delivery_id not in thread.journal:
                try:
                    thread.journal[delivery_id] = decode_effects(tree, targets[delivery_id], keeper.codec)
                except (KeyError, TypeError, ValueError, AttributeError, UnreadableValue) as error:
                    reason = f"the journal entry of delivery {delivery_id} is not one ({error!r})"
                    raise DamagedCheckpoint(str(keeper.head_id), reason) from error

    async def _stand_at(self, checkpoint: WorkflowCheckpoint, thread: Thread, loop: Loop) -> None:
        known = self._compiled.graph.nodes
        saved = {key: one.saved for key, one in checkpoint.executors.items() if one.saved is not None and key in known}
        position = position_of(checkpoint)
        # With force=True what was due to executors that are gone is left out.
        position.mailbox = [message for message in position.mailbox if message.target_id in known]
        position.requests = {key: one for key, one in position.requests.items() if one.source_executor_id in known}
        await loop.restore(position, saved)
        thread.head_id = checkpoint.checkpoint_id
        thread.is_ahead = False

    # ------------------------------------------------------------ what comes in

    def _waits_for(self, thread: Thread) -> bool:
        """A message that was told to wait lets an interrupted thread come to rest first."""
        request = self._request
        return request.message is not None and request.on_busy == "enqueue" and bool(thread.position.mailbox)

    async def _prepare(
        self, thread: Thread, loop: Loop, checkpoint: WorkflowCheckpoint | None, *, is_new: bool
    ) -> Entry:
        """Check what the caller sent. Raises, with nothing written, if it cannot be accepted."""
        is_rewind = False
        if self._request.fork and not (is_new and thread.position.next_delivery_id == 1):
            raise InvalidRun(
                f"Thread {thread.thread_id!r} exists already, so a fork cannot become it. Nothing was changed. Choose "
                "another thread_id, or leave it out to have one made."
            )
        if checkpoint is not None:
            is_rewind = self._request.fork or checkpoint.checkpoint_id != thread.head_id or thread.is_ahead
        if checkpoint is not None and is_rewind:
            # Until the rewind is committed the store stands elsewhere: should anything fail before, it is read anew.
            thread.number = NOT_IN_STEP
            await self._stand_at(checkpoint, thread, loop)
        graph, now = self._compiled.graph, self._clock.now()
        entry = enter(graph, thread, self._request, now, is_restored=checkpoint is not None)
        if entry.position is None and is_rewind:
            return replace(entry, position=thread.position.successor())
        return entry
