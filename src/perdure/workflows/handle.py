"""A live handle on a thread: send, answer, restore and cancel while its events are watched."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.checkpoints.storage import post_message, read_events
from perdure.clock import Clock
from perdure.engine.run.options import RunRequest
from perdure.engine.run.result import WorkflowRunResult
from perdure.engine.run.run import Run
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.inputs import check_message
from perdure.engine.thread.live_threads import BUSY_POLL_SECONDS, LiveThreads
from perdure.errors import InvalidRun, NoStorage, RunInterrupted, ThreadBusy
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.isolation import isolate
from perdure.names import checkpoint_id_of, new_item_id
from perdure.records import CheckpointInfo
from perdure.workflows.time_travel import TimeTravel, read_history

UNREAD_EVENTS = 10_000
"""How many events wait for a reader; of a handle that nobody reads, the oldest go first."""


class RunHandle:
    """`async with workflow.open(thread_id=...) as run:`. Leaving the block cancels what still runs, and waits for it.

    The thread is owned while something runs, not while the handle is open, so others may move it in between.
    """

    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._given_id = request.thread_id
        self._thread_id = request.thread_id or live.default_or_new_id()
        self._request = request
        self._run: Run | None = None
        self._task: asyncio.Task[WorkflowRunResult] | None = None
        self._alarm: asyncio.Task[None] | None = None
        """Waits for the next deadline of a pending request."""
        self._is_closed = False
        self._events: deque[WorkflowEvent] = deque(maxlen=UNREAD_EVENTS)
        self._watchers: set[asyncio.Future[None]] = set()
        self._error: BaseException | None = None
        self.result: WorkflowRunResult | None = None
        """Of the last run that ended well."""
        self.checkpoints: list[CheckpointInfo] = []
        """Those made through this handle, oldest first."""

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

    # ------------------------------------------------------------ moving the thread

    async def send(self, message: Any) -> None:
        """Deliver a message: in the next superstep if one is running, otherwise by starting one.

        When this returns the message is in the thread's inbox, which a storage keeps: if the run fails or is cancelled,
        the next one delivers it. Raises WrongInputType or UnsavableValue if it cannot be accepted.
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
            await self._settled()
            if not self._is_closed and item_id in self._live.get(self._thread_id).inbox:
                # It was accepted, so a thread that another object holds is waited for, not given up.
                given = self._request.on_busy
                self._start(on_busy="enqueue" if given == "reject" else given)

    async def respond(self, responses: Mapping[Any, Any]) -> None:
        """Answer pending requests, once what runs has come to rest."""
        self._refuse_if_closed()
        own = isolate(dict(responses))
        await self._settled()
        self._refuse_if_closed()
        self._start(responses=own)

    async def resume(self) -> None:
        """Go on with an interrupted thread."""
        self._refuse_if_closed()
        await self._settled()
        self._refuse_if_closed()
        self._start()

    async def restore(self, checkpoint_id: str | CheckpointInfo) -> None:
        """Go back to a checkpoint and on from there; what runs is cancelled.

        A handle that was opened without a thread_id takes over the checkpoint's thread.
        """
        self._refuse_if_closed()
        if self._request.storage is None:
            raise NoStorage("Restoring a checkpoint")
        await self.cancel()
        self._events.clear()
        self._start(checkpoint_id=checkpoint_id_of(checkpoint_id), thread_id=self._given_id)

    async def checkpoint(self) -> CheckpointInfo:
        """A checkpoint of where the thread stands, durable when this returns: while it runs, the one that ends the
        present superstep; otherwise one more of the same place. Raises ThreadBusy if somebody else runs the thread."""
        self._refuse_if_closed()
        storage = self._request.storage
        if storage is None:
            raise NoStorage("Making a checkpoint")
        before = self.last_checkpoint
        while self._task is not None and self.last_checkpoint is before:
            thread = self._live.find(self._thread_id)
            if thread is not None and thread.waker is not None:  # between two supersteps, until a sleeper is due
                return (await read_history(storage, self._thread_id, self._compiled.graph.name, limit=1))[0]
            with suppress(TimeoutError):  # falling asleep is not told
                async with asyncio.timeout(BUSY_POLL_SECONDS):
                    await self._something_happens()
        saved = self.last_checkpoint
        if saved is None or saved is before:
            request = replace(self._request, thread_id=self._thread_id)
            saved = await TimeTravel(self._compiled, self._live, self._clock, request).checkpoint()
            self.checkpoints.append(saved)
        return saved

    async def cancel(self) -> None:
        """End what runs now, and do not wait for deadlines any more. The thread can be resumed."""
        self._drop_alarm()
        while self._task is not None:
            if self._run is None or not self._run.interrupt():  # it does not own its thread yet
                self._task.cancel()
            await asyncio.wait([self._task])
            self._drop_alarm()

    async def wait(self) -> WorkflowRunResult | None:
        """Until nothing runs; the last result. Raises what the run raised."""
        await self._settled()
        self._raise_error()
        return self.result

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise InvalidRun("This handle is closed. Open another one: `async with workflow.open(...) as run:`.")

    def _refuse_if_busy(self) -> None:
        """Somebody else in this process runs the thread, and this handle was not told to wait for its turn."""
        thread = self._live.find(self._thread_id)
        owner = thread.owner if thread is not None and self._task is None else None
        waits = self._request.on_busy != "reject" or self._request.takeover
        if owner is not None and not owner.is_ending and not waits:
            raise ThreadBusy(self._thread_id, owner.run_id)

    def _start(self, **what: Any) -> None:
        self._drop_alarm()
        what.setdefault("thread_id", self._thread_id)
        self._run = Run(self._compiled, self._live, self._clock, replace(self._request, **what))
        work = self._run.execute(self._put)
        self._task = asyncio.get_running_loop().create_task(work, name=f"run {self._run.run_id}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[WorkflowRunResult]) -> None:
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
            seconds = (deadline - self._clock.now()).total_seconds()
            self._alarm = asyncio.get_running_loop().create_task(self._pass_deadline(seconds))

    def _drop_alarm(self) -> None:
        if self._alarm is not None and self._alarm is not asyncio.current_task():
            self._alarm.cancel()
        self._alarm = None

    async def _pass_deadline(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if self._task is None:
            self._start()

    async def _settled(self) -> None:
        while self._task is not None:  # another caller may have been quicker and started the next run
            await asyncio.wait([self._task])  # `_ended` was told of it first

    # ------------------------------------------------------------ watching

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
        """Events until the thread comes to rest and no deadline is awaited; call it again after the next input.

        Without `after`: as they happen. With it: those of the thread's log, committed, from that cursor on. Raises
        CursorExpired if the storage's retention has let go what followed the cursor.
        """
        if after is not None:
            async for event in self._logged(after):
                yield event
            return
        while True:
            while self._events:
                yield self._events.popleft()
            if self._is_at_rest:
                self._raise_error()
                return
            await self._something_happens()

    async def _logged(self, after: int) -> AsyncIterator[WorkflowEvent]:
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
            await self._something_happens()

    async def _something_happens(self) -> None:
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
