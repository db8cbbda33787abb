"""Position: where a thread stands between two supersteps."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoints.checkpoint import Counters, WorkflowCheckpoint
from holdfast.events import WorkflowEvent
from holdfast.records import Answer, ExecutorMemory, WorkflowMessage


class Position:
    """Everything a superstep starts from. A superstep makes the next one and leaves this as it is, so that a
    failure has nothing to undo. Values in it are never handed to user code: copies are."""

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
        """One that shares all parts; whoever changes a part replaces it."""
        after = Position.__new__(Position)
        after.__dict__ = self.__dict__.copy()
        return after


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
