"""A live thread: where it stands, who owns it, and the executor instances that serve it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perdure.engine.position import Position
from perdure.events import WorkflowRunState
from perdure.graph.executor import Executor
from perdure.graph.graph import Node
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.engine.effects import Effects


class Instances(dict[str, Executor]):
    """Executor instances of one thread, made when they are first needed."""

    def __init__(self, nodes: Mapping[str, Node], given: Mapping[str, Executor] | None = None) -> None:
        super().__init__(given or {})
        self._nodes = nodes

    def __missing__(self, executor_id: str) -> Executor:
        made = self[executor_id] = self._nodes[executor_id].make()
        return made


NOT_IN_STEP = -1
"""Number of a live thread that stands elsewhere than its store says: the next run reads it anew."""


class Thread:
    """One durable line of execution, as this process holds it."""

    __slots__ = (
        "children",
        "executors",
        "head_id",
        "inbox",
        "is_abandoned",
        "is_ahead",
        "is_dirty",
        "is_kept_elsewhere",
        "journal",
        "number",
        "owner",
        "position",
        "queue",
        "records",
        "status",
        "storage",
        "thread_id",
        "waker",
    )

    def __init__(self, thread_id: str, executors: Instances) -> None:
        self.thread_id = thread_id
        self.executors = executors
        self.position = Position()
        self.number = 0
        """The commit it stands at; a store that says otherwise was moved by somebody else."""
        self.head_id: str | None = None
        """The checkpoint it stands at: the next one's parent."""
        self.is_ahead = False
        """Whether it was moved without a storage since its head was saved."""
        self.journal: dict[int, Effects] = {}
        """Outcomes of deliveries that ended in a superstep that did not; not run again."""
        self.records: dict[int, list[Record]] = {}
        """All that a delivery has recorded, for those that recorded something since the head."""
        self.children: dict[int, Instances] = {}
        """Executors of sub-workflows, by the delivery that started them."""
        self.waker: asyncio.Future[None] | None = None
        """Resolved when something comes into the inbox while the run waits for a sleeper."""
        self.owner: Any = None
        """The Ownership of the run that moves it now."""
        self.is_abandoned = False
        """Whether its last owner died without giving it up, here and in its store."""
        self.is_kept_elsewhere = False
        """Whether a storage has it, so that it need not stay in memory."""
        self.storage: Any = None
        """Where its number and head belong to."""
        self.status = WorkflowRunState.IDLE
        """How its last run ended, or what the present one is doing."""
        self.queue: list[Any] = []
        """Runs that wait for their turn, first come first served."""
        self.inbox: dict[str, Any] = {}
        """Messages that were sent to the thread and are in no commit yet, by item id, in the order of arrival."""
        self.is_dirty = False
        """Whether executors may stand elsewhere than the position says: undoing a superstep was not completed."""

    def wake(self) -> None:
        """Something came into the inbox."""
        if self.waker is not None and not self.waker.done():
            self.waker.set_result(None)
