"""A live handle on a thread: send, answer, restore and cancel while its events are watched."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.checkpoints.storage import read_events
from holdfast.clock import Clock
from holdfast.engine.compiled import Compiled
from holdfast.engine.entry import RunRequest
from holdfast.engine.live import LiveThreads
from holdfast.engine.result import WorkflowRunResult
from holdfast.engine.run import Run
from holdfast.engine.thread import Position
from holdfast.errors import NoStorage
from holdfast.events import WorkflowEvent
from holdfast.names import checkpoint_id_of
from holdfast.records import CheckpointInfo


class RunHandle:
    """`async with workflow.open(thread_id=...) as run:`. Leaving the block cancels what still runs, and waits for it.

    The thread is owned while something runs, not while the handle is open, so others may move it in between.
    """

    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._given_id = request.thread_id
        self._thread_id = request.thread_id or live.own_or_new_id()
        self._request = request
        self._run: Run | None = None
        self._task: asyncio.Task[WorkflowRunResult] | None = None
        self._alarm: asyncio.Task[None] | None = None
        """Waits for the next deadline of a pending request."""
        self._inbox: list[Callable[[Position], Position]] = []
        """Messages that were sent while something ran. What a failed run did not deliver, the next one does."""
        self._events: deque[WorkflowEvent] = deque()
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
        if self._alarm is not None:
            self._alarm.cancel()
            await asyncio.wait([self._alarm])
        await self.cancel()

    # ------------------------------------------------------------ moving the thread

    async def send(self, message: Any) -> None:
        """Deliver a message: in the next superstep if one is running, otherwise by starting one."""
        if self._run is not None and self._task is not None and self._run.send(message):
            return
        await self._settled()
        self._start(message=message)

    async def respond(self, responses: Mapping[str, Any]) -> None:
        """Answer pending requests, once what runs has come to rest."""
        await self._settled()
        self._start(responses=dict(responses))

    async def resume(self) -> None:
        """Go on with an interrupted thread."""
        await self._settled()
        self._start()

    async def restore(self, checkpoint_id: str | CheckpointInfo) -> None:
        """Go back to a checkpoint and on from there; what runs is cancelled.

        A handle that was opened without a thread_id takes over the checkpoint's thread.
        """
        if self._request.storage is None:
            raise NoStorage("Restoring a checkpoint")
        await self.cancel()
        self._events.clear()
        self._start(checkpoint_id=checkpoint_id_of(checkpoint_id), thread_id=self._given_id)

    async def cancel(self) -> None:
        """End what runs now. The thread can be resumed."""
        if self._run is not None and self._task is not None:
            self._run.interrupt()
            await self._settled()

    async def wait(self) -> WorkflowRunResult | None:
        """Until nothing runs; the last result. Raises what the run raised."""
        await self._settled()
        self._raise_error()
        return self.result

    def _start(self, **what: Any) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        what.setdefault("thread_id", self._thread_id)
        run = Run(self._compiled, self._live, self._clock, replace(self._request, **what), self._inbox)
        if "message" in what:
            run.check_message(what["message"])
        self._run = run
        self._task = asyncio.get_running_loop().create_task(run.execute(self._put), name=f"run {run.run_id}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[WorkflowRunResult]) -> None:
        self._task = None
        if not task.cancelled():
            self._error = task.exception()
            if self._error is None:
                self.result = task.result()
                self._set_alarm(self._run.next_deadline if self._run is not None else None)
        self._wake()

    def _set_alarm(self, deadline: datetime | None) -> None:
        if deadline is not None:
            seconds = (deadline - self._clock.now()).total_seconds()
            self._alarm = asyncio.get_running_loop().create_task(self._pass_deadline(seconds))

    async def _pass_deadline(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._alarm = None
        self._start()

    async def _settled(self) -> None:
        if self._task is not None:
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

        Without `after`: as they happen. With it: those of the thread's log, committed, from that cursor on.
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
