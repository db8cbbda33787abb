"""A live thread: where it stands, and the executor instances that serve it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.checkpoint import Counters, WorkflowCheckpoint
from holdfast.events import WorkflowEvent, WorkflowRunState
from holdfast.graph.executor import Executor
from holdfast.graph.graph import Node
from holdfast.records import Answer, ExecutorMemory, WorkflowMessage

if TYPE_CHECKING:
    from holdfast.engine.effects import Effects


class Position:
    """Everything a superstep starts from. A superstep makes the next one and leaves this as it is, so that a
    failure has nothing to undo. Values in it are never handed to user code: copies are."""

    __slots__ = (
        "answered",
        "buffers",
        "iteration",
        "mailbox",
        "next_delivery_id",
        "outputs",
        "private",
        "requests",
        "run_kwargs",
        "saved",
        "since_input",
        "state",
    )

    def __init__(self) -> None:
        self.mailbox: list[WorkflowMessage] = []
        self.state: dict[str, Any] = {}
        self.buffers: dict[str, dict[str, list[Any]]] = {}
        """Fan-in group -> sender -> messages so far. Replaced, never changed in place."""
        self.requests: dict[str, WorkflowEvent] = {}
        self.answered: dict[str, Answer] = {}
        self.outputs: list[WorkflowEvent] = []
        self.private: dict[str, dict[str, Any]] = {}
        self.saved: dict[str, Any] = {}
        """Hook dicts by executor, frozen."""
        self.run_kwargs: dict[str, Any] = {}
        self.iteration = 0
        self.since_input = 0
        self.next_delivery_id = 1

    def successor(self) -> Position:
        after = Position.__new__(Position)
        after.mailbox = self.mailbox
        after.state = self.state
        after.buffers = self.buffers
        after.requests = self.requests
        after.answered = self.answered
        after.outputs = self.outputs
        after.private = self.private
        after.saved = self.saved
        after.run_kwargs = self.run_kwargs
        after.iteration = self.iteration
        after.since_input = self.since_input
        after.next_delivery_id = self.next_delivery_id
        return after

    @property
    def is_idle(self) -> bool:
        return not self.mailbox


def position_of(checkpoint: WorkflowCheckpoint) -> Position:
    """The position that a loaded checkpoint describes. `saved` is left to the caller, who restores executors."""
    position = Position()
    position.mailbox = checkpoint.deliveries
    position.state = checkpoint.state
    position.buffers = checkpoint.buffers
    position.requests = dict(checkpoint.pending_request_info_events)
    position.answered = dict(checkpoint.answered)
    position.outputs = list(checkpoint.outputs)
    position.private = {
        executor_id: dict(memory.private) for executor_id, memory in checkpoint.executors.items() if memory.private
    }
    position.run_kwargs = dict(checkpoint.run_kwargs)
    position.iteration = checkpoint.iteration_count
    position.since_input = checkpoint.counters.since_input
    position.next_delivery_id = checkpoint.counters.next_delivery_id
    return position


def executor_memories(position: Position) -> dict[str, ExecutorMemory]:
    if not position.saved and not position.private:
        return {}
    ids = dict.fromkeys((*position.saved, *position.private))
    return {key: ExecutorMemory(position.saved.get(key), position.private.get(key)) for key in ids}


def counters_of(position: Position) -> Counters:
    return Counters(position.since_input, position.next_delivery_id)


def messages_by_source(mailbox: list[WorkflowMessage]) -> dict[str, list[WorkflowMessage]]:
    grouped: dict[str, list[WorkflowMessage]] = {}
    for message in mailbox:
        grouped.setdefault(message.source_id, []).append(message)
    return grouped


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
        "status",
        "storage",
        "thread_id",
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
