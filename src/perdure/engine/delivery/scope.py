"""The parts of one run, in one object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from perdure.checkpoints.open_thread import OpenThread
from perdure.clock import Clock
from perdure.codec import Codec
from perdure.engine.steps.journal import Journal
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThread
from perdure.engine.tracing.watch import Watch
from perdure.events import WorkflowEvent


class RunScope:
    __slots__ = (
        "after_record",
        "bypassed",
        "cancels_before",
        "clock",
        "codec",
        "compiled",
        "emit",
        "emitted_results",
        "is_logged",
        "is_streaming",
        "journal",
        "max_iterations",
        "on_request",
        "retract",
        "run_id",
        "spans",
        "storage",
        "stored_thread",
        "task",
        "thread",
        "watch",
    )

    def __init__(
        self,
        compiled: Compiled,
        thread: LiveThread,
        stored_thread: OpenThread | None,
        run_id: str,
        emit: Callable[[WorkflowEvent], None],
        on_request: Callable[[], None],
        retract: Callable[[Sequence[WorkflowEvent]], None],
        clock: Clock,
        journal: Journal,
        *,
        is_streaming: bool,
        storage: Any = None,
        max_iterations: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.storage = storage
        self.max_iterations = max_iterations
        """The caller's own limit."""
        self.watch = watch
        """Metrics and spans of the run; None without observers and tracing."""
        self.spans = None if watch is None else watch.spans
        self.compiled = compiled
        self.thread = thread
        self.stored_thread = stored_thread
        """The thread in its storage; None without one."""
        self.codec: Codec | None = stored_thread.codec if stored_thread is not None else None
        self.run_id = run_id
        self.emit = emit
        """Emits an event to the run's consumer."""
        self.on_request = on_request
        """Called when an executor made a request to the outside."""
        self.retract = retract
        """Removes events of a failed attempt from the run's result."""
        self.clock = clock
        self.journal = journal
        self.after_record: Callable[[], Awaitable[None]] = _nothing
        """Called after each recorded step; the loop may then save a checkpoint."""
        self.bypassed: set[tuple[int, str]] = set()
        """Recorded steps whose replay this run has emitted: delivery and key."""
        self.emitted_results: dict[int, list[WorkflowEvent]] = {}
        """By delivery: results that it has emitted in this run. They are retracted if it fails."""
        self.is_streaming = is_streaming
        self.is_logged = stored_thread is not None
        """Whether events are logged, beside being emitted."""
        self.task: asyncio.Task[Any] | None = None
        """The task that drives the supersteps."""
        self.cancels_before = 0
        """The cancellation count of that task when the run began to drive."""

    def is_cancelled(self) -> bool:
        """Whether the run was cancelled since it began to drive."""
        return self.task is not None and self.task.cancelling() > self.cancels_before


async def _nothing() -> None:
    return
