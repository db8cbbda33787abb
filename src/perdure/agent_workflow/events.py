"""What happens in an execution, as its consumer sees it. Each is a view of an event of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.log import get_logger

Level: TypeAlias = Literal["trace", "debug", "info", "warning", "error", "critical"]

EVENT = "agent_workflow"
"""The type of the engine's events that carry these."""


class EventMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose event it is, where workflows are nodes of others."""

    agent_id: str | None = None
    """The node."""
    agent_name: str | None = None
    """Of the node's agent, where the event knows it."""
    parent_agent_id: str | None = None
    """The node that is the workflow that it is in."""
    agent_chain: tuple[str, ...] = ()
    """Nodes from the outermost workflow down to this one."""
    depth: int = 0
    """0: of the workflow that was run."""


class AgentWorkflowEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all of them have."""

    workflow_name: str = ""
    execution_id: str = ""
    metadata: EventMetadata = EventMetadata()


class WorkflowStartedEvent(AgentWorkflowEvent, frozen=True):
    """An execution begins. One that is resumed does not begin again."""

    node_count: int
    layer_count: int


class WorkflowCompletedEvent(AgentWorkflowEvent, frozen=True):
    """It has ended, or stopped at a failure."""

    duration: float
    """Seconds since it began, those in which nobody ran it included."""
    successful_nodes: int
    failed_nodes: int
    """Without those for which a fallback stood in."""
    skipped_nodes: int
    success: bool
    error: str | None = None


class WorkflowAgentStartedEvent(AgentWorkflowEvent, frozen=True):
    """A node has begun. One that is tried again does not begin again."""

    agent_id: str
    agent_name: str
    layer_index: int


class WorkflowAgentCompletedEvent(AgentWorkflowEvent, frozen=True):
    """An agent has answered, and what it said was approved; or it has failed."""

    agent_id: str
    agent_name: str
    layer_index: int
    success: bool
    duration: float
    progress: float = 0.0
    """Which part of the workflow's nodes is settled."""
    outputs: dict[str, Any] = {}  # msgspec copies it
    error_message: str | None = None


class WorkflowAgentSkippedEvent(AgentWorkflowEvent, frozen=True):
    """A node does not run, or what it said was denied."""

    agent_id: str
    reason: str


class WorkflowEdgeTraversedEvent(AgentWorkflowEvent, frozen=True):
    """An edge was taken."""

    from_node_id: str
    to_node_id: str
    has_condition: bool
    condition_description: str | None = None


class WorkflowLayerStartedEvent(AgentWorkflowEvent, frozen=True):
    """The first of some nodes that may run at the same time has begun, or was skipped."""

    layer_index: int
    node_count: int


class WorkflowLayerCompletedEvent(AgentWorkflowEvent, frozen=True):
    """All of them have come to their end."""

    layer_index: int
    duration: float
    successful_nodes: int


class WorkflowDiagnosticEvent(AgentWorkflowEvent, frozen=True):
    """Something worth knowing: retries, warnings, trouble with the storage."""

    level: Level
    source: str
    message: str
    node_id: str | None = None


class WorkflowApprovalRequestedEvent(AgentWorkflowEvent, frozen=True):
    """Somebody is to say whether what an agent said may be used, or whether it may call a tool."""

    request_id: str
    agent_id: str
    message: str
    description: str | None = None
    outputs: dict[str, Any] = {}  # msgspec copies it
    deadline: datetime | None = None
    request: Any = None
    """What is asked, whole."""


class WorkflowApprovalResolvedEvent(AgentWorkflowEvent, frozen=True):
    """Somebody has said whether an output may be used, or nobody in time."""

    request_id: str
    agent_id: str
    approved: bool
    reason: str | None = None
    timed_out: bool = False
    """Nobody answered in time."""


OWN = (
    WorkflowStartedEvent,
    WorkflowCompletedEvent,
    WorkflowAgentStartedEvent,
    WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent,
    WorkflowEdgeTraversedEvent,
    WorkflowLayerStartedEvent,
    WorkflowLayerCompletedEvent,
    WorkflowDiagnosticEvent,
    WorkflowApprovalRequestedEvent,
    WorkflowApprovalResolvedEvent,
)


# ---------------------------------------------------------------- subscribing


Callback: TypeAlias = Callable[[Any], Any]
logger = get_logger("agent_workflow")


@dataclass(frozen=True, eq=False)
class _Subscription:
    kind: type | None
    callback: Callback


class Subscribers:
    """Whoever watches must not stop what is watched: one that fails is named in the log, and the rest goes on."""

    def __init__(self) -> None:
        self._all: list[_Subscription] = []

    def add(self, kind: type | None, callback: Callback) -> Callable[[], None]:
        """Returns what ends the subscription."""
        if not callable(callback):
            raise TypeError(f"subscribe expects a function of the event, got {callback!r}.")
        subscription = _Subscription(kind, callback)
        self._all.append(subscription)

        def end() -> None:
            if subscription in self._all:
                self._all.remove(subscription)

        return end

    def tell(self, event: Any) -> Iterator[Awaitable[Any]]:
        """Gives what is still to be awaited."""
        for one in list(self._all):
            if one.kind is not None and not isinstance(event, one.kind):
                continue
            try:
                called = one.callback(event)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # see above
                log_failure(error)
                continue
            if isinstance(called, Awaitable):
                yield called


def log_failure(error: BaseException) -> None:
    logger.warning("a subscriber failed: %s: %s", type(error).__name__, error)
