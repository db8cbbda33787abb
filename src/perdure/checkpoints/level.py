"""One level of a checkpoint: a thread's own workflow and each of its sub-workflows have the same parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.events import WorkflowEvent
from perdure.records import Answer, ExecutorMemory, SuspendedDelivery, WorkflowMessage

if TYPE_CHECKING:
    from perdure.checkpoints.checkpoint import WorkflowCheckpoint


class Counters(msgspec.Struct, frozen=True, gc=False):
    """Numbers that a resumed run continues to count from."""

    since_input: int = 0
    """Supersteps since the last outside input; `max_iterations` limits this."""
    next_delivery_id: int = 1
    epoch: int = 0
    """The commit of the last rewind; 0 before the first. Deliveries of different epochs have different idempotency
    keys."""


class ChildCheckpoint(msgspec.Struct, frozen=True):
    """A sub-workflow that has not ended: the same parts as its parent's, kept apart."""

    executor_id: str
    """The WorkflowExecutor that started it."""
    message: WorkflowMessage
    """The delivery that started it."""
    messages: dict[str, list[WorkflowMessage]] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    pending_request_info_events: dict[str, WorkflowEvent] = msgspec.field(default_factory=dict)
    executors: dict[str, ExecutorMemory] = msgspec.field(default_factory=dict)
    buffers: dict[str, dict[str, list[Any]]] = msgspec.field(default_factory=dict)
    answered: dict[str, Answer] = msgspec.field(default_factory=dict)
    suspended: dict[int, SuspendedDelivery] = msgspec.field(default_factory=dict)
    children: dict[int, ChildCheckpoint] = msgspec.field(default_factory=dict)
    asked: tuple[str, ...] = ()
    """Its requests that are pending outside of it."""
    since_input: int = 0
    attempts: int = 0
    """How often it was started and failed."""
    due_at: datetime | None = None
    """When the engine starts it again."""

    @property
    def deliveries(self) -> list[WorkflowMessage]:
        return in_order(self.messages)


def in_order(messages: Mapping[str, list[WorkflowMessage]]) -> list[WorkflowMessage]:
    return sorted(chain.from_iterable(messages.values()), key=lambda message: message.delivery_id)


def every_delivery(level: WorkflowCheckpoint | ChildCheckpoint, path: str = "") -> Iterator[WorkflowMessage]:
    """The due deliveries of a level and of the sub-workflows below it. Below it, paths name sender and target."""
    for message in level.deliveries:
        yield (
            msgspec.structs.replace(
                message, source_id=f"{path}{message.source_id}", target_id=f"{path}{message.target_id}"
            )
            if path
            else message
        )
    for child in level.children.values():
        yield from every_delivery(child, f"{path}{child.executor_id}/")


def due_at(level: WorkflowCheckpoint | ChildCheckpoint) -> datetime | None:
    """When the first suspended delivery is due or the first deadline passes, at this level or below."""
    requests = level.pending_request_info_events.values()
    times = [
        *(delivery.due_at for delivery in level.suspended.values()),
        *(event.terms.deadline for event in requests if event.terms is not None),
        *(child.due_at or due_at(child) for child in level.children.values()),
    ]
    return min((time for time in times if time is not None), default=None)
