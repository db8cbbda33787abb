"""What one run is made of: handed to its parts in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.checkpoints.keepers import ThreadKeeper
from holdfast.codec import Codec
from holdfast.engine.compiled import Compiled
from holdfast.engine.thread import Thread
from holdfast.events import WorkflowEvent


class RunScope:
    __slots__ = (
        "cancels_before",
        "codec",
        "compiled",
        "emit",
        "is_logged",
        "is_streaming",
        "keeper",
        "on_request",
        "run_id",
        "task",
        "thread",
    )

    def __init__(
        self,
        compiled: Compiled,
        thread: Thread,
        keeper: ThreadKeeper | None,
        run_id: str,
        emit: Callable[[WorkflowEvent], None],
        on_request: Callable[[], None],
        *,
        is_streaming: bool,
    ) -> None:
        self.compiled = compiled
        self.thread = thread
        self.keeper = keeper
        """The thread in its storage; None without one."""
        self.codec: Codec | None = keeper.codec if keeper is not None else None
        self.run_id = run_id
        self.emit = emit
        """Tells the run's consumer."""
        self.on_request = on_request
        """Told when an executor has asked somebody."""
        self.is_streaming = is_streaming
        self.is_logged = keeper is not None
        """Whether events are kept for the thread's log, beside being told."""
        self.task: asyncio.Task[Any] | None = None
        """The task that drives the supersteps."""
        self.cancels_before = 0
        """How often that task had been cancelled before this run had anything to do with it."""

    def is_cancelled(self) -> bool:
        """Whether somebody cancelled the run since it began to drive."""
        return self.task is not None and self.task.cancelling() > self.cancels_before
