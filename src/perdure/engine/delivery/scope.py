"""What one run is made of: handed to its parts in one piece."""

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
        """Somebody counts what happens, or wants spans of it; None, as almost always, costs nothing."""
        self.spans = None if watch is None else watch.spans
        self.compiled = compiled
        self.thread = thread
        self.stored_thread = stored_thread
        """The thread in its storage; None without one."""
        self.codec: Codec | None = stored_thread.codec if stored_thread is not None else None
        self.run_id = run_id
        self.emit = emit
        """Tells the run's consumer."""
        self.on_request = on_request
        """Told when an executor has asked somebody."""
        self.retract = retract
        """Takes events out of the run's result: an attempt that failed told them."""
        self.clock = clock
        self.journal = journal
        self.after_record: Callable[[], Awaitable[None]] = _nothing
        """Called when a step was recorded; the loop may make a checkpoint of it."""
        self.bypassed: set[tuple[int, str]] = set()
        """Recorded steps whose replay was told in this run: delivery and key."""
        self.emitted_results: dict[int, list[WorkflowEvent]] = {}
        """By delivery: results that it has told in this run, to be retracted should it fail."""
        self.is_streaming = is_streaming
        self.is_logged = stored_thread is not None
        """Whether events are kept for the thread's log, beside being told."""
        self.task: asyncio.Task[Any] | None = None
        """The task that drives the supersteps."""
        self.cancels_before = 0
        """How often that task had been cancelled before this run had anything to do with it."""

    def is_cancelled(self) -> bool:
        """Whether somebody cancelled the run since it began to drive."""
        return self.task is not None and self.task.cancelling() > self.cancels_before


async def _nothing() -> None:
    return
