"""One run: a call that moves a thread forward, from its first check to its final status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.checkpoint import WorkflowCheckpoint
from holdfast.checkpoints.storage import load_checkpoint, open_thread
from holdfast.checkpoints.threads import PlainThread, ThreadKeeper
from holdfast.clock import Clock
from holdfast.engine.compiled import Compiled
from holdfast.engine.effects import decode_effects
from holdfast.engine.live import LiveThreads, Ownership
from holdfast.engine.loop import Loop, resting_state, running_state
from holdfast.engine.requests import check_answers, deliver_answers, pass_deadlines
from holdfast.engine.result import WorkflowRunResult
from holdfast.engine.run_arguments import arranged
from holdfast.engine.thread import Position, Thread, position_of
from holdfast.errors import (
    IncompatibleWorkflow,
    InvalidRun,
    ThreadBusy,
    ThreadNotFound,
    ThreadNotIdle,
    WrongInputType,
)
from holdfast.events import WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from holdfast.graph.isolation import isolated
from holdfast.graph.signature import differences
from holdfast.log import get_logger
from holdfast.names import new_run_id, new_thread_id
from holdfast.records import WorkflowMessage

logger = get_logger("engine")

BUSY_POLL_SECONDS = 0.02
"""How often a waiting run looks whether a thread held through another workflow object is free."""


@dataclass(frozen=True)
class RunRequest:
    """What the caller of `run` asked for; the combinations are checked already."""

    message: Any = None
    responses: Mapping[str, Any] | None = None
    checkpoint_id: str | None = None
    storage: Any = None
    thread_id: str | None = None
    run_id: str | None = None
    durability: str = "sync"
    on_busy: str = "reject"
    takeover: bool = False
    fork: bool = False
    force: bool = False
    function_invocation_kwargs: Mapping[str, Any] | None = None
    client_kwargs: Mapping[str, Any] | None = None


class Run:
    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self.run_id = request.run_id or new_run_id()
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._request = request
        self._events: list[WorkflowEvent] = []
        self._statuses: list[WorkflowEvent] = []
        self._listener: Callable[[WorkflowEvent], None] | None = None
        self.thread_id = ""

    # ------------------------------------------------------------ from start to end

    async def execute(
        self, listener: Callable[[WorkflowEvent], None] | None = None, *, include_status_events: bool = False
    ) -> WorkflowRunResult:
        """Run to the end. Raises what a handler raised, after the thread was put back to its head and released."""
        self._listener = listener
        checkpoint = await self._named_checkpoint()
        ownership = Ownership(self.run_id)
        thread = await self._live.claim(self._choose_thread(checkpoint), ownership, self._request.on_busy)
        self.thread_id = thread.thread_id
        keeper: ThreadKeeper | None = None
        try:
            keeper = await self._open(thread.thread_id)
            self._ownership, self._active = ownership, self._loop(thread, keeper)
            state = await self._move(thread, self._active, checkpoint, keeper, ownership)
        finally:
            if keeper is not None:
                await keeper.release()
            self._live.release(thread, forget=keeper is not None)
            self._live.drop_new(thread)
        self._status(state)
        return self._result(thread, include_status_events)

    async def _move(
        self,
        thread: Thread,
        loop: Loop,
        checkpoint: WorkflowCheckpoint | None,
        keeper: ThreadKeeper | None,
        ownership: Ownership,
    ) -> WorkflowRunState:
        await self._synchronise(thread, loop, keeper)
        began = False
        try:
            if self._waits_for(thread):
                began = True
                self._announce(thread, loop, keeper)
                await loop.drive()
            entered = await self._prepare(thread, loop, checkpoint)
            if not began:
                began = True
                self._announce(thread, loop, keeper)
            if entered is not None:
                await loop.enter(entered)
            await loop.drive()
            state = resting_state(thread.position)
            await loop.finish(state)
            return state
        except asyncio.CancelledError:
            await loop.finish(WorkflowRunState.CANCELLED)
            if ownership.is_interrupted and ownership.task is not None:
                ownership.task.uncancel()
                return WorkflowRunState.CANCELLED
            self._status(WorkflowRunState.CANCELLED)
            raise
        except Exception as error:
            if began:
                await self._fail(loop, error)
            raise

    def _waits_for(self, thread: Thread) -> bool:
        """A message that was told to wait lets an interrupted thread come to rest first."""
        return (
            self._request.message is not None and self._request.on_busy == "enqueue" and bool(thread.position.mailbox)
        )

    async def _fail(self, loop: Loop, error: Exception) -> None:
        failed = WorkflowEvent("failed", details=WorkflowErrorDetails.from_exception(error))
        self._emit(failed)
        try:
            await loop.finish(WorkflowRunState.FAILED, [failed])
        except Exception as second:  # the storage is what failed: the first error says more
            logger.warning("run %s: its failure could not be logged: %r", self.run_id, second)
        self._status(WorkflowRunState.FAILED)

    def _loop(self, thread: Thread, keeper: ThreadKeeper | None) -> Loop:
        return Loop(
            self._compiled,
            thread,
            keeper,
            self.run_id,
            self._emit,
            is_streaming=self._listener is not None,
            durability=self._request.durability,
        )

    # ------------------------------------------------------------ while it runs

    _ownership: Ownership | None = None
    _active: Loop | None = None

    def interrupt(self) -> None:
        """End it now; its result says CANCELLED."""
        if self._ownership is not None:
            self._ownership.interrupt()

    def send(self, message: Any) -> bool:
        """Deliver a message in the next superstep. False if the run is no longer taking any: start another one."""
        if self._active is None or not self._active.takes_input:
            return False
        self.check_message(message)
        self._active.inbox.append(lambda position: self._message_position(position, message))
        return True

    def check_message(self, message: Any) -> None:
        graph = self._compiled.graph
        if not self._accepts(message):
            start = graph.executors[graph.start_executor_id]
            raise WrongInputType(start.id, message, start.input_types)

    # ------------------------------------------------------------ events

    def _emit(self, event: WorkflowEvent) -> None:
        self._events.append(event)
        if self._listener is not None:
            self._listener(event)
        if event.type == "request_info" and not event.replayed:
            states = [status.state for status in self._statuses]
            if WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS not in states:
                self._status(WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS)

    def _status(self, state: WorkflowRunState) -> None:
        event = WorkflowEvent("status", state=state)
        self._statuses.append(event)
        self._emit(event)

    def _announce(self, thread: Thread, loop: Loop, keeper: ThreadKeeper | None) -> None:
        started = WorkflowEvent("started")
        running = WorkflowEvent("status", state=running_state(thread.position))
        self._statuses.append(running)
        loop.tell(started)
        loop.tell(running)
        for event in self._told_again:
            self._emit(event)
        for warning in self._warnings:
            loop.tell(warning)
        if isinstance(keeper, PlainThread):
            text = (
                "This storage has only the six methods of CheckpointStorage, so the thread has no journal (a failed "
                "superstep runs again whole), no event log, and no protection against a second process moving it."
            )
            loop.tell(WorkflowEvent("warning", text))

    _told_again: tuple[WorkflowEvent, ...] = ()
    """Outputs and pending requests from before this run."""
    _warnings: tuple[WorkflowEvent, ...] = ()

    def _result(self, thread: Thread, include_status_events: bool) -> WorkflowRunResult:
        kept = [
            event
            for event in self._events
            if event.type != "started" and (include_status_events or event.type != "status")
        ]
        return WorkflowRunResult(
            kept, self._statuses, thread_id=thread.thread_id, run_id=self.run_id, checkpoint_id=thread.head_id
        )

    # ------------------------------------------------------------ which thread

    async def _named_checkpoint(self) -> WorkflowCheckpoint | None:
        checkpoint_id = self._request.checkpoint_id
        if checkpoint_id is None:
            return None
        checkpoint = await load_checkpoint(self._request.storage, checkpoint_id, self._compiled.declared)
        self._check_fits(checkpoint)
        return checkpoint

    def _choose_thread(self, checkpoint: WorkflowCheckpoint | None) -> str:
        request = self._request
        if checkpoint is None:
            return request.thread_id or self._live.own_or_new_id()
        if request.fork:
            chosen = request.thread_id or new_thread_id()
        else:
            chosen = checkpoint.thread_id or request.thread_id or new_thread_id()
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

    async def _synchronise(self, thread: Thread, loop: Loop, keeper: ThreadKeeper | None) -> None:
        """Stand where the store says, if it was moved since this process last looked."""
        if keeper is None or keeper.number == thread.number:
            return
        head = await keeper.load_head()
        if head is not None:
            self._check_fits(head)
            await self._stand_at(head, thread, loop)
            codec = keeper.codec
            targets = {message.delivery_id: str(message.target_id) for message in thread.position.mailbox}
            thread.journal = {
                key: decode_effects(tree, targets[key], codec) for key, tree in keeper.journal.items() if key in targets
            }
        thread.number = keeper.number

    async def _stand_at(self, checkpoint: WorkflowCheckpoint, thread: Thread, loop: Loop) -> None:
        saved = {key: one.saved for key, one in checkpoint.executors.items() if one.saved is not None}
        known = self._compiled.graph.nodes
        await loop.restore(position_of(checkpoint), {key: value for key, value in saved.items() if key in known})
        thread.head_id = checkpoint.checkpoint_id

    def _check_fits(self, checkpoint: WorkflowCheckpoint) -> None:
        """Same graph, or one with harmless additions; otherwise IncompatibleWorkflow says what differs."""
        compiled, name = self._compiled, self._compiled.graph.name
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
        if breaking and not self._request.force:
            raise IncompatibleWorkflow(checkpoint.checkpoint_id, name, breaking)
        if breaking or added:
            text = "The workflow changed since the checkpoint was made: " + "; ".join((*breaking, *added)) + "."
            self._warnings = (*self._warnings, WorkflowEvent("warning", text))

    # ------------------------------------------------------------ what comes in

    async def _prepare(self, thread: Thread, loop: Loop, checkpoint: WorkflowCheckpoint | None) -> Position | None:
        """Check what the caller sent and make it due. Gives a position to commit first, or None to just go on.

        Raises, with nothing written and the thread as it was, if it cannot be accepted.
        """
        request = self._request
        is_rewind = False
        if checkpoint is not None:
            is_rewind = request.fork or checkpoint.checkpoint_id != thread.head_id
            await self._stand_at(checkpoint, thread, loop)
        position, expired = pass_deadlines(thread.position, self._clock.now())
        self._warnings = (*self._warnings, *expired)
        before, thread.position = thread.position, position
        try:
            entered = self._entered(thread, is_resume=checkpoint is not None)
        finally:
            thread.position = before
        if entered is None and (is_rewind or position is not before):
            entered = position.successor()
        return entered

    def _entered(self, thread: Thread, *, is_resume: bool) -> Position | None:
        request = self._request
        position = thread.position
        if request.responses is not None:
            answers = check_answers(self._compiled.graph, thread, request.responses)
            after = deliver_answers(position, answers, self._clock.now())
            after.outputs = []
            after.since_input = 0
            self._tell_again(after.requests.values())
            return self._with_arguments(after, is_new=False)
        if request.message is not None:
            return self._with_message(thread, request.message)
        if is_resume or position.mailbox or position.requests or self._is_finished(thread):
            self._tell_again((*position.outputs, *position.requests.values()))
            return self._with_arguments(position.successor(), is_new=False) if self._has_arguments else None
        if self._accepts(None):
            return self._with_message(thread, None)
        if request.thread_id is not None:
            raise ThreadNotFound(request.thread_id)
        raise InvalidRun(
            "run() needs a message, responses or a checkpoint_id: there is nothing to resume, and the start executor "
            f"{self._compiled.graph.start_executor_id!r} does not accept None."
        )

    def _is_finished(self, thread: Thread) -> bool:
        """A named thread that has run: resuming it gives its outputs."""
        return self._request.thread_id is not None and thread.position.next_delivery_id > 1

    def _tell_again(self, events: Any) -> None:
        self._told_again = tuple(_as_replayed(event) for event in events)

    def _accepts(self, message: Any) -> bool:
        graph = self._compiled.graph
        return graph.executors[graph.start_executor_id].table.find(message) is not None

    def _with_message(self, thread: Thread, message: Any) -> Position:
        position = thread.position
        self.check_message(message)
        if position.mailbox and self._request.on_busy == "reject":
            raise ThreadNotIdle(thread.thread_id, len(position.mailbox))
        if position.requests:
            waiting = ", ".join(map(repr, position.requests))
            text = f"A new message was sent while requests are pending ({waiting}); they stay pending."
            self._warnings = (*self._warnings, WorkflowEvent("warning", text))
        return self._with_arguments(self._message_position(position, message), is_new=True)

    def _message_position(self, position: Position, message: Any) -> Position:
        start_id = self._compiled.graph.start_executor_id
        after = position.successor()
        entry = WorkflowMessage(
            isolated(message), f"internal:{start_id}", start_id, delivery_id=position.next_delivery_id
        )
        after.mailbox = [*position.mailbox, entry]
        after.next_delivery_id += 1
        after.outputs = []
        after.iteration = 0
        after.since_input = 0
        return after

    @property
    def _has_arguments(self) -> bool:
        return self._request.function_invocation_kwargs is not None or self._request.client_kwargs is not None

    def _with_arguments(self, after: Position, *, is_new: bool) -> Position:
        """A new message brings its own run arguments; a continuation keeps those there are, unless it has some."""
        kept = {} if is_new else dict(after.run_kwargs)
        ids = self._compiled.graph.nodes
        for parameter in ("function_invocation_kwargs", "client_kwargs"):
            given = getattr(self._request, parameter)
            if given is not None:
                kept[parameter] = arranged(given, ids, parameter)
        after.run_kwargs = kept
        return after


def _as_replayed(event: WorkflowEvent) -> WorkflowEvent:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return WorkflowEvent(**{**fields, "replayed": True})
