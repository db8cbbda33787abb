"""The parts of one run, in one object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.checkpoints.open_thread import OpenThread
from perdure.clock import Clock
from perdure.codec import Codec
from perdure.engine.steps.journal import Journal
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThread
from perdure.engine.tracing.watch import RunSpans, Watch
from perdure.events import WorkflowEvent


async def _nothing() -> None:
    return


@dataclass(slots=True, eq=False)
class RunScope:
    compiled: Compiled
    thread: LiveThread
    stored_thread: OpenThread | None
    """The thread in its storage; None without one."""
    run_id: str
    emit: Callable[[WorkflowEvent], None]
    """Emits an event to the run's consumer."""
    on_request: Callable[[], None]
    """Called when an executor made a request to the outside."""
    retract: Callable[[Sequence[WorkflowEvent]], None]
    """Removes events of a failed attempt from the run's result."""
    clock: Clock
    journal: Journal
    is_streaming: bool = False
    storage: Any = None
    max_iterations: int | None = None
    """The caller's own limit."""
    watch: Watch | None = None
    """Metrics and spans of the run; None without observers and tracing."""
    spans: RunSpans | None = field(init=False, default=None)
    codec: Codec | None = field(init=False, default=None)
    is_logged: bool = field(init=False, default=False)
    """Whether events are logged, beside being emitted."""
    after_record: Callable[[], Awaitable[None]] = _nothing
    """Called after each recorded step; the loop may then save a checkpoint."""
    bypassed: set[tuple[int, str]] = field(default_factory=set)
    """Recorded steps whose replay this run has emitted: delivery and key."""
    emitted_results: dict[int, list[WorkflowEvent]] = field(default_factory=dict)
    """By delivery: results that it has emitted in this run. They are retracted if it fails."""
    task: asyncio.Task[Any] | None = None
    """The task that drives the supersteps."""
    cancels_before: int = 0
    """The cancellation count of that task when the run began to drive."""

    def __post_init__(self) -> None:
        self.spans = None if self.watch is None else self.watch.spans
        if self.stored_thread is not None:
            self.codec, self.is_logged = self.stored_thread.codec, True

    def is_cancelled(self) -> bool:
        """Whether the run was cancelled since it began to drive."""
        return self.task is not None and self.task.cancelling() > self.cancels_before
