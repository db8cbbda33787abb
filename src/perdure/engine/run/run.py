"""One run: a call that moves a thread forward, from its first check to its final status and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from perdure.checkpoints.any_storage import OpenThread, PlainThread, load_thread_metadata
from perdure.clock import await_uncancelled
from perdure.engine import tracing
from perdure.engine.delivery.scope import Journal, RunScope, add_records
from perdure.engine.run.commit import resting_state, running_state
from perdure.engine.run.loop import Loop
from perdure.engine.run.opening import Opening, note_unreleased, storage_key
from perdure.engine.run.request import Entry, RunRequest, add_message, choose_for_unfinished, enter
from perdure.engine.run.stream import ResponseStream, StreamWork
from perdure.engine.thread.live_threads import LiveThread, LiveThreads, Ownership
from perdure.engine.thread.position import Position, next_deadline, own_event
from perdure.engine.watch import Watch
from perdure.errors import RunInterrupted
from perdure.events import WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from perdure.log import get_logger
from perdure.names import new_run_id
from perdure.observing import observers
from perdure.twins import Beside

logger = get_logger("engine")

View: TypeAlias = Callable[[WorkflowEvent], Sequence[WorkflowEvent]]
"""Returns an event as a consumer gets it: one, several or none."""

PLAIN_STORAGE = (
    "This storage has only the six methods of CheckpointStorage, so the thread has no journal (a failed "
    "superstep runs again whole), no event log, and no protection against a second process moving it."
)


class WorkflowRunResult(Beside, list[WorkflowEvent]):
    """The run's events in order, `status` events only on request. Contains all outputs since the last outside input;
    those from before an interruption are marked `replayed`."""

    def __init__(
        self,
        events: Iterable[WorkflowEvent],
        status_events: Sequence[WorkflowEvent] | None = None,
        outputs: Iterable[WorkflowEvent] | None = None,
        requests: Iterable[WorkflowEvent] | None = None,
        *,
        thread_id: str = "",
        run_id: str = "",
        checkpoint_id: str | None = None,
        usage: dict[str, int] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(events)
        self._status_events = list(status_events or ())
        # As committed: in the order of the deliveries, so that a resumed run returns the same.
        results = [event for event in self if event.type in ("output", "intermediate")] if outputs is None else outputs
        asked = [event for event in self if event.type == "request_info"] if requests is None else requests
        self._outputs, self._requests = list(results), list(asked)
        self.thread_id = thread_id
        self.run_id = run_id
        self.checkpoint_id = checkpoint_id
        """The thread's latest checkpoint; None without a storage."""
        self.usage: dict[str, int] = usage or {}
        """Usage of the thread's agents since it began, such as tokens, by name."""
        self.about: dict[str, Any] = about or {}
        """Metadata of the thread, set with `workflow.describe`."""

    @property
    def outputs(self) -> list[WorkflowEvent]:
        """`output` and `intermediate` events since the last outside input, in the order of the deliveries."""
        return list(self._outputs)

    def get_outputs(self) -> list[Any]:
        return [event.data for event in self._outputs if event.type == "output"]

    def get_intermediate_outputs(self) -> list[Any]:
        return [event.data for event in self._outputs if event.type == "intermediate"]

    def get_request_info_events(self) -> list[WorkflowEvent]:
        """All pending requests, those of earlier runs included."""
        return list(self._requests)

    def get_final_state(self) -> WorkflowRunState:
        if not self._status_events or self._status_events[-1].state is None:
            raise RuntimeError("Final state is unknown because no status event was emitted: the run did not end.")
        return self._status_events[-1].state

    def status_timeline(self) -> list[WorkflowEvent]:
        return list(self._status_events)


class Run:
    """Claims its thread, commits the caller's input, drives supersteps, and releases the thread."""

    def __init__(self, live: LiveThreads, request: RunRequest) -> None:
        self.run_id = request.run_id or new_run_id()
        self._compiled = live.compiled
        self._live = live
        self._clock = live.clock
        self._request = request
        self._opening = Opening(live, request)
        self._events: list[WorkflowEvent] = []
        self._statuses: list[WorkflowEvent] = []
        self._listener: Callable[[WorkflowEvent], None] | None = None
        self._view: View | None = None
        self._is_streaming = False
        self._opened: OpenThread | None = None
        self._ownership: Ownership | None = None
        self._watch: Watch | None = None
        self._loop: Loop | None = None
        self.has_begun = False
        """Whether its input was accepted; otherwise nothing was written."""
        self._owes_message = False
        """Whether its message waits until the thread is idle. An interruption then makes the message due."""
        self._entering: Position | None = None
        """The position with its input, which the entry commit stores."""
        self.thread_id: str | None = None
        """Known once it has begun."""
        self.on_begun: Callable[[], None] | None = None
        """Called once its input is stored."""
        self.next_deadline: datetime | None = None
        """Known once it has ended: when the first of the pending requests expires."""

    async def execute(
        self,
        listener: Callable[[WorkflowEvent], None] | None = None,
        *,
        is_streaming: bool = False,
        view: View | None = None,
    ) -> WorkflowRunResult:
        """Run to the end. Raises the error of a handler, after the thread was restored to its head and released. `view`
        changes events for the listener and the result; the log and followers get them unchanged."""
        self._listener, self._view = listener, view
        self._is_streaming = is_streaming or listener is not None
        ownership = self._ownership = Ownership(self.run_id)
        ownership.drives = True
        thread_id = self.thread_id = await self._opening.choose_thread()
        if tracing.active is not None or observers:
            self._watch = Watch(self._compiled, thread_id, self.run_id, self._request)
        watch = self._watch
        with nullcontext() if watch is None else watch.run(lambda: self.has_begun, self._statuses):
            on_busy = "interrupt" if self._request.takeover else self._request.on_busy
            thread = await self._live.claim(thread_id, ownership, on_busy)
            if watch is not None:
                watch.report_claim()
            stored_thread: OpenThread | None = None
            error: BaseException | None = None
            try:
                stored_thread = self._opened = await self._opening.open(thread, ownership)
                self._loop = Loop(self._scope(thread, stored_thread), self._request.durability)
                await self._drive(ownership, self._loop)
            except GeneratorExit:  # the event loop is being closed: nothing can be awaited any more
                thread.is_abandoned = stored_thread is not None
                self._live.release(thread, ownership, forget=False)
                raise
            except BaseException as raised:  # noqa: BLE001  # raised again, after the release
                error = raised
            await self._release(thread, ownership, stored_thread)
            if self._loop is not None:
                self._loop.scope.close()
            try:
                return self._finish(thread, ownership, error)
            finally:
                self._listener = self._view = None  # they may refer to this run

    def stream(self, view: View | None = None) -> ResponseStream[WorkflowEvent, WorkflowRunResult]:
        """Its events as they happen: as its followers get them, unless a view changes them."""
        return ResponseStream(StreamWork(lambda put: self.execute(put, view=view), self.interrupt))

    async def _release(self, thread: LiveThread, ownership: Ownership, stored_thread: OpenThread | None) -> None:
        """Release the thread, here and in its store. Logs an error of the store."""
        try:
            if stored_thread is not None:
                await await_uncancelled(stored_thread.release())
        except Exception as error:  # noqa: BLE001  # the run's own outcome matters more; the next run here takes over
            note_unreleased((storage_key(self._request.storage), thread.thread_id, self.run_id))
            logger.warning("run %s: releasing its lease failed: %s", self.run_id, type(error).__name__)
        finally:
            self._live.release(thread, ownership, forget=self._request.storage is not None)

    async def _drive(self, ownership: Ownership, loop: Loop) -> None:
        request, committer, thread = self._request, loop.committer, loop.scope.thread
        await self._opening.synchronise(thread, loop, loop.scope.stored_thread)
        waits = choose_for_unfinished(self._compiled.graph, thread.position, request) == "resume"
        try:
            if waits:
                self._announce(loop, thread.position)
                self._owes_message = True
                ownership.mark_entered()
                await loop.drive()
            entry = await self._prepare(loop)
            if not self.has_begun:
                self._announce(loop, entry.position or thread.position)
            for event in entry.replayed_events:
                self._emit(event)
            for warning in entry.warnings:
                committer.emit(warning)
            if entry.set_aside:
                await loop.set_aside(entry.set_aside)
            self._entering = entry.position
            if entry.position is not None:
                await loop.enter(entry.position, entry.consumed)
            self._owes_message = False
            if self.on_begun is not None:
                self.on_begun()
            ownership.mark_entered()
            await loop.drive()
            thread.status = resting_state(thread.position)
            await committer.finish(thread.status)
        except asyncio.CancelledError:
            if self._owes_message and thread.position is not self._entering:
                due = add_message(self._compiled.graph, thread.position, request.message)
                await await_uncancelled(loop.enter(due))
            if self.has_begun and ownership.is_leaving:
                ownership.was_left = True  # no final status: the next run continues the thread
                await self._save_end(committer.leave(), "left its thread")
            elif self.has_begun:
                thread.status = WorkflowRunState.CANCELLED
                await self._save_end(committer.finish(thread.status), "ended CANCELLED")
            raise
        except GeneratorExit:  # the event loop is being closed: nothing can be awaited any more
            raise
        except BaseException as error:
            if self.has_begun:
                details = WorkflowErrorDetails.from_exception(error, executor_id=loop.failed_executor_id)
                failed = WorkflowEvent("failed", details=details)
                self._emit(failed)
                thread.status = WorkflowRunState.FAILED
                await self._save_end(committer.finish(thread.status, [failed]), "ended FAILED")
            raise

    async def _save_end(self, saving: Coroutine[Any, Any, None], ending: str) -> None:
        try:
            await await_uncancelled(saving)
        except Exception as error:  # noqa: BLE001  # the storage failed: the error that ended the run matters more
            logger.warning("run %s %s; saving that failed: %s", self.run_id, ending, type(error).__name__)

    def _finish(self, thread: LiveThread, ownership: Ownership, error: BaseException | None) -> WorkflowRunResult:
        """Emit the final status, after the commit and the release. Returns the result or raises the error."""
        self.next_deadline = next_deadline(thread.position)
        if not self.has_begun:
            self._live.drop_new(thread)
        elif not ownership.was_left:
            self._status(thread.status)
        was_interrupted = ownership.take_interruption()
        was_cut_short = isinstance(error, asyncio.CancelledError) or not self.has_begun
        if ownership.is_cancelled and (error is None or was_cut_short):
            raise asyncio.CancelledError from error  # it may have arrived during the last commit
        is_asked_to_end = was_interrupted or ownership.is_leaving
        if ownership.was_left or (is_asked_to_end and not self.has_begun and isinstance(error, asyncio.CancelledError)):
            raise RunInterrupted(self.run_id, thread.thread_id, has_begun=ownership.was_left) from error
        if error is not None and not (was_interrupted and isinstance(error, asyncio.CancelledError)):
            raise error
        left_out = ("started",) if self._request.include_status_events else ("started", "status")
        events = [event for event in self._events if event.type not in left_out]
        return _make_result(thread, self.run_id, events, self._statuses)

    def _scope(self, thread: LiveThread, stored_thread: OpenThread | None) -> RunScope:
        request = self._request
        has_journal = stored_thread is not None and stored_thread.has_journal and request.durability != "exit"
        return RunScope(
            self._compiled,
            thread,
            stored_thread,
            self.run_id,
            # Without a listener, a view and a storage an event costs one append.
            self._emit if self._listener or self._view or stored_thread is not None else self._events.append,
            self._first_request,
            self._retract,
            self._clock,
            Journal(thread, stored_thread, is_kept=has_journal),
            is_streaming=self._is_streaming,
            storage=request.storage,
            max_iterations=request.max_iterations,
            watch=self._watch,
            tools=request.tools,
        )

    def interrupt(self) -> bool:
        """End it with the state CANCELLED. False if it does not own its thread yet: cancel its task instead."""
        if self._ownership is None or self._loop is None:
            return False
        self._ownership.interrupt()
        return True

    @property
    def is_first(self) -> bool:
        """Whether it made the first checkpoint of its thread."""
        return any(event.checkpoint.number == 1 for event in self._events if event.checkpoint is not None)

    @property
    def takes_input(self) -> bool:
        """Whether a message put into the thread's inbox now will be delivered by this run."""
        return self._loop is None or self._loop.takes_input

    def _emit(self, event: WorkflowEvent) -> None:
        for visible in (event,) if self._view is None else self._view(event):
            self._events.append(visible)
            if self._listener is not None:
                self._listener(own_event(visible))
        opened = self._opened
        if opened is not None and opened.feed is not None:
            feed = opened.feed
            if feed.has_followers() or feed.has_subscribers():
                feed.publish(event, self.run_id, opened.last_seq, self._clock.now())

    def _retract(self, events: Sequence[WorkflowEvent]) -> None:
        gone = set(map(id, events))
        if gone:
            self._events[:] = [event for event in self._events if id(event) not in gone]

    def _first_request(self) -> None:
        pending = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS
        if all(status.state is not pending for status in self._statuses):
            self._status(pending)

    def _status(self, state: WorkflowRunState) -> None:
        event = WorkflowEvent("status", state=state)
        self._statuses.append(event)
        self._emit(event)

    def _announce(self, loop: Loop, entered: Position) -> None:
        thread, committer = loop.scope.thread, loop.committer
        self.has_begun = True
        self._live.mark_default(thread, becomes=self._opening.becomes_default)
        thread.status = running_state(entered)
        started = WorkflowEvent("started")
        self._emit(started)
        self._status(thread.status)
        committer.log(started, WorkflowEvent("status", state=thread.status))
        for warning in self._opening.warnings:
            committer.emit(warning)
        if isinstance(loop.scope.stored_thread, PlainThread):
            committer.emit(WorkflowEvent("warning", PLAIN_STORAGE))

    async def _prepare(self, loop: Loop) -> Entry:
        """Check the caller's input. Raises, with nothing written, if it cannot be accepted."""
        thread, stored_thread = loop.scope.thread, loop.scope.stored_thread
        is_new = stored_thread is None or stored_thread.number == 0
        rewound = self._opening.find_target(thread, is_new=is_new)
        standing = thread.position if rewound is None else rewound
        entry = enter(self._compiled.graph, thread, standing, self._request, self._clock.now)
        if rewound is None and entry.position is None and thread.is_ahead and self._request.storage is not None:
            # The thread was moved without this storage: save it before the run builds on it.
            return replace(entry, position=add_records(thread.position, thread.records))
        if rewound is None:
            return entry
        about = None if self._request.fork else await load_thread_metadata(self._request.storage, thread.head_id)
        await self._opening.rewind(thread, loop)
        after = thread.position.successor() if entry.position is None else entry.position
        after.saved, after.epoch = thread.position.saved, rewound.epoch
        after.about = after.about if about is None else about
        return replace(entry, position=after)


def _make_result(
    thread: LiveThread, run_id: str, events: list[WorkflowEvent], statuses: list[WorkflowEvent]
) -> WorkflowRunResult:
    position = thread.position
    asked = {event.request_id: event for event in events if event.type == "request_info"}
    # Messages that are still due, or wait in a fan-in, must not change with the events that show them.
    is_shared = position.mailbox or position.buffers or position.children
    return WorkflowRunResult(
        map(own_event, events) if is_shared else events,
        statuses,
        [own_event(output) for output in position.outputs],
        [asked.get(key) or own_event(request) for key, request in position.requests.items()],
        thread_id=thread.thread_id,
        run_id=run_id,
        checkpoint_id=thread.head_id,
        usage=dict(position.usage),
        about=dict(position.about),
    )
