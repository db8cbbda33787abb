"""When a whole execution must have ended."""

from __future__ import annotations

from perdure.agents.recording import working_for
from perdure.clock import Clock
from perdure.engine.context import DeliveryContext
from perdure.orchestrations.agent_workflow.standing import NodeTask


class OutOfTime(Exception):
    """The execution's time is up, not the node's alone: whatever the node does about errors, nothing more is begun."""

    def __str__(self) -> str:
        return "the execution ran out of time"


def delivery() -> DeliveryContext:
    """What this handler works for."""
    context = working_for()
    assert context is not None  # noqa: S101  # asked in a handler
    return context


def raise_trouble() -> None:
    """Raises what keeps this handler's work from being recorded: that is no failure of its node."""
    trouble = delivery().delivery.broken
    if trouble is not None:
        raise trouble


def clock() -> Clock:
    return delivery().clock


def is_over(task: NodeTask) -> bool:
    return task.deadline is not None and clock().now() >= task.deadline


def seconds_left(task: NodeTask) -> float | None:
    """None: as many as it takes."""
    return None if task.deadline is None else max(0.0, (task.deadline - clock().now()).total_seconds())
