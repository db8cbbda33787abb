"""A live handle on a thread: send, answer, restore and cancel while you read its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.checkpoints.any_storage import post_message, read_events
from perdure.engine.run.request import RunRequest, check_message
from perdure.engine.run.run import Run, WorkflowRunResult
from perdure.engine.thread.live_threads import BUSY_POLL_SECONDS, LiveThreads
from perdure.errors import InvalidRun, NoStorage, RunInterrupted, ThreadBusy
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.isolation import isolate
from perdure.names import checkpoint_id_of, new_item_id
from perdure.records import CheckpointInfo
from perdure.workflows.agent_output import AgentOutputs
from perdure.workflows.threads import read_history
from perdure.workflows.time_travel import save_again

MAX_UNREAD_EVENTS = 10_000
"""How many events wait for a reader; a handle without a reader drops the oldest first."""


class RunHandle:
    """`async with workflow.open(thread_id=...) as run:`. The end of the block cancels a run, and waits for its end.

    The handle owns the thread during a run, not between runs: then others may move it.
    """

    def __init__(self, live: LiveThreads, request: RunRequest) -> None:
        self._compiled = live.compiled
        self._live = live
        self._requested_id = request.thread_id
        self._thread_id = request.thread_id or live.default_or_new_id()
        self._request = request
        self._run: Run | None = None
        self._task: asyncio.Task[WorkflowRunResult] | None = None
        self._alarm: asyncio.Task[None] | None = None
        """Waits for the next deadline of a pending request."""
        self._is_closed = False
        self._events: deque[WorkflowEvent] = deque(maxlen=MAX_UNREAD_EVENTS)
        self._watchers: set[asyncio.Future[None]] = set()
        self._error: BaseException | None = None
        self.result: WorkflowRunResult | None = None
        """The result of the last successful run."""
        self.checkpoints: list[CheckpointInfo] = []
        """The checkpoints of this handle's runs and calls, oldest first."""

    @property
    def thread_id(self) -> str:
        return self._thread_id

    @property
    def last_checkpoint(self) -> CheckpointInfo | None:
        return self.checkpoints[-1] if self.checkpoints else None

    async def __aenter__(self) -> RunHandle:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        await self.cancel()

    async def send(self, message: Any) -> None:
        """Deliver a message: in the next superstep of the current run, or by starting a run.

        When this returns, the thread's inbox has the message, durably with a storage: if the run fails or is cancelled,
        the next run delivers it. Raises WrongInputType or UnsavableValue; then the message is not accepted.
        """
        self._refuse_if_closed()
        check_message(self._compiled.graph, message)
        self._refuse_if_busy()
        item_id, own = new_item_id(), isolate(message)
        compiled = self._compiled
        mark = compiled.migrations.names[-1] if compiled.migrations.names else None
        await post_message(self._request.storage, self._thread_id, item_id, own, compiled.declared, mark)
        thread = self._live.get(self._thread_id)
        thread.inbox[item_id] = own
        thread.wake()
        if self._run is None or self._task is None or not self._run.takes_input:
            await self._wait_for_run()
            if not self._is_closed and item_id in self._live.get(self._thread_id).inbox:
                # The message was accepted, so the run waits for a thread that another object holds.
                on_busy = self._request.on_busy
                self._start(on_busy="enqueue" if on_busy == "reject" else on_busy)

    async def respond(self, responses: Mapping[Any, Any]) -> None:
        """Answer pending requests, after the end of the current run."""
        self._refuse_if_closed()
        own = isolate(dict(responses))
        await self._wait_for_run()
        self._refuse_if_closed()
        self._start(responses=own)

    async def resume(self) -> None:
        """Resume an interrupted thread."""
        self._refuse_if_closed()
        await self._wait_for_run()
        self._refuse_if_closed()
        self._start()

    async def restore(self, checkpoint_id: str | CheckpointInfo) -> None:
        """Cancel the current run, go back to a checkpoint, and run from there.

        A handle that was opened without a thread_id switches to the checkpoint's thread.
        """
        self._refuse_if_closed()
        if self._request.storage is None:
            raise NoStorage("Restoring a checkpoint")
        await self.cancel()
        self._events.clear()
        self._start(checkpoint_id=checkpoint_id_of(checkpoint_id), thread_id=self._requested_id)

    async def checkpoint(self) -> CheckpointInfo:
        """A durable checkpoint of the thread: during a run, that of the current superstep; otherwise the head again.
        Raises ThreadBusy if another run owns the thread."""
        self._refuse_if_closed()
        storage = self._request.storage
        if storage is None:
            raise NoStorage("Making a checkpoint")
        before = self.last_checkpoint
        while self._task is not None and self.last_checkpoint is before:
            thread = self._live.find(self._thread_id)
            if thread is not None and thread.waker is not None:  # between two supersteps, until a sleeper is due
                return (await read_history(storage, self._thread_id, self._compiled.graph.name, limit=1))[0]
            with suppress(TimeoutError):  # a run that falls asleep emits no event
                async with asyncio.timeout(BUSY_POLL_SECONDS):
                    await self._wait_for_change()
        saved = self.last_checkpoint
        if saved is None or saved is before:
            request = replace(self._request, thread_id=self._thread_id)
            saved = await save_again(self._live, request)
            self.checkpoints.append(saved)
        return saved

    async def cancel(self) -> None:
        """End the current run, and no longer wait for deadlines. The thread can be resumed."""
        self._drop_alarm()
        while self._task is not None:
            if self._run is None or not self._run.interrupt():  # it does not own its thread yet
                self._task.cancel()
            await asyncio.wait([self._task])
            self._drop_alarm()

    async def wait(self) -> WorkflowRunResult | None:
        """Wait for the end of the run; returns the last result. Raises the error of the run."""
        await self._wait_for_run()
        self._raise_error()
        return self.result

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise InvalidRun("This handle is closed. Open another one: `async with workflow.open(...) as run:`.")

    def _refuse_if_busy(self) -> None:
        """Raises ThreadBusy if another run of this process owns the thread, and this handle does not wait."""
        thread = self._live.find(self._thread_id)
        owner = thread.owner if thread is not None and self._task is None else None
        waits = self._request.on_busy != "reject" or self._request.takeover
        if owner is not None and not owner.is_ending and not waits:
            raise ThreadBusy(self._thread_id, owner.run_id)

    def _start(self, **changes: Any) -> None:
        self._drop_alarm()
        changes.setdefault("thread_id", self._thread_id)
        self._run = Run(self._live, replace(self._request, **changes))
        work = self._run.execute(self._put, view=AgentOutputs(self._compiled.graph))
        self._task = asyncio.get_running_loop().create_task(work, name=f"run {self._run.run_id}")
        self._task.add_done_callback(self._end_run)

    def _end_run(self, task: asyncio.Task[WorkflowRunResult]) -> None:
        self._task = None
        self.result = None
        try:
            self._take_result(task)
        finally:
            self._wake()

    def _take_result(self, task: asyncio.Task[WorkflowRunResult]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._error is not None:
            self._error.add_note(f"A later run of the handle failed too: {error!r}")
        elif error is not None and not isinstance(error, RunInterrupted):
            self._error = error
        if not task.cancelled() and error is None:
            self.result = task.result()
            was_cancelled = self.result.get_final_state() is WorkflowRunState.CANCELLED
            if self._run is not None and not was_cancelled:
                self._set_alarm(self._run.next_deadline)

    def _set_alarm(self, deadline: datetime | None) -> None:
        if deadline is not None and not self._is_closed:
            seconds = (deadline - self._live.clock.now()).total_seconds()
            self._alarm = asyncio.get_running_loop().create_task(self._pass_deadline(seconds))

    def _drop_alarm(self) -> None:
        if self._alarm is not None and self._alarm is not asyncio.current_task():
            self._alarm.cancel()
        self._alarm = None

    async def _pass_deadline(self, seconds: float) -> None:
        await self._live.clock.sleep(seconds)
        if self._task is None:
            self._start()

    async def _wait_for_run(self) -> None:
        while self._task is not None:  # another caller may start the next run first
            await asyncio.wait([self._task])  # its callback `_end_run` runs first

    def _put(self, event: WorkflowEvent) -> None:
        if event.type == "checkpoint_saved" and event.checkpoint is not None:
            self.checkpoints.append(event.checkpoint)
        if self._run is not None and self._run.thread_id is not None:
            self._thread_id = self._run.thread_id
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    @property
    def _is_at_rest(self) -> bool:
        return self._alarm is None and self._task is None

    async def events(self, after: int | None = None) -> AsyncIterator[WorkflowEvent]:
        """Events until the thread is at rest without a pending deadline; call it again after the next input.

        Without `after`: events as they happen. With `after`: the committed events of the thread's log after that
        cursor. Raises CursorExpired if retention has deleted the next event.
        """
        if after is not None:
            async for event in self._read_log(after):
                yield event
            return
        while True:
            while self._events:
                yield self._events.popleft()
            if self._is_at_rest:
                self._raise_error()
                return
            await self._wait_for_change()

    async def _read_log(self, after: int) -> AsyncIterator[WorkflowEvent]:
        if self._request.storage is None:
            raise NoStorage("Reading a thread's event log")
        while True:
            was_at_rest = self._is_at_rest
            async for event in read_events(self._request.storage, self.thread_id, after, self._compiled.declared):
                after = event.seq or after
                yield event
            if was_at_rest:
                self._raise_error()
                return
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(watcher)
        try:
            if not self._is_at_rest:
                await watcher
        finally:
            self._watchers.discard(watcher)

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
