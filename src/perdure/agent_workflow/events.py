"""Events of an execution, for its consumers. Each is a view of an engine event."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.log import get_logger

Level: TypeAlias = Literal["trace", "debug", "info", "warning", "error", "critical"]

EVENT = "agent_workflow"
"""The type of the engine events that carry these."""


class EventMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node of an event, also in nested workflows."""

    agent_id: str | None = None
    """The id of the node."""
    agent_name: str | None = None
    """The name of the node's agent, if the event has it."""
    parent_agent_id: str | None = None
    """The node of the outer workflow that contains it."""
    agent_chain: tuple[str, ...] = ()
    """Nodes from the outermost workflow down to this one."""
    depth: int = 0
    """0: the outermost workflow."""


class AgentWorkflowEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Fields of all events."""

    workflow_name: str = ""
    execution_id: str = ""
    metadata: EventMetadata = EventMetadata()


class WorkflowStartedEvent(AgentWorkflowEvent, frozen=True):
    """An execution has started. A resume does not emit it again."""

    node_count: int
    layer_count: int


class WorkflowCompletedEvent(AgentWorkflowEvent, frozen=True):
    """An execution has ended, or stopped at a failure."""

    duration: float
    """Seconds since its start, including pauses."""
    successful_nodes: int
    failed_nodes: int
    """Without failed nodes that a fallback replaced."""
    skipped_nodes: int
    success: bool
    error: str | None = None


class WorkflowAgentStartedEvent(AgentWorkflowEvent, frozen=True):
    """A node has begun. A retry does not emit it again."""

    agent_id: str
    agent_name: str
    layer_index: int


class WorkflowAgentCompletedEvent(AgentWorkflowEvent, frozen=True):
    """An agent has answered, with approval if one is required; or it has failed."""

    agent_id: str
    agent_name: str
    layer_index: int
    success: bool
    duration: float
    progress: float = 0.0
    """The settled part of the workflow's nodes, from 0 to 1."""
    outputs: dict[str, Any] = {}  # msgspec copies it
    error_message: str | None = None


class WorkflowAgentSkippedEvent(AgentWorkflowEvent, frozen=True):
    """A node does not run, or its output was denied."""

    agent_id: str
    reason: str


class WorkflowEdgeTraversedEvent(AgentWorkflowEvent, frozen=True):
    """An edge was taken."""

    from_node_id: str
    to_node_id: str
    has_condition: bool
    condition_description: str | None = None


class WorkflowLayerStartedEvent(AgentWorkflowEvent, frozen=True):
    """The first node of a layer has begun or was skipped. Nodes of a layer may run at the same time."""

    layer_index: int
    node_count: int


class WorkflowLayerCompletedEvent(AgentWorkflowEvent, frozen=True):
    """All nodes of a layer have ended."""

    layer_index: int
    duration: float
    successful_nodes: int


class WorkflowDiagnosticEvent(AgentWorkflowEvent, frozen=True):
    """A diagnostic message: retries, warnings, storage errors."""

    level: Level
    source: str
    message: str
    node_id: str | None = None


class WorkflowApprovalRequestedEvent(AgentWorkflowEvent, frozen=True):
    """An output of an agent, or a call of a tool, waits for approval."""

    request_id: str
    agent_id: str
    message: str
    description: str | None = None
    outputs: dict[str, Any] = {}  # msgspec copies it
    deadline: datetime | None = None
    request: Any = None
    """The whole request."""


class WorkflowApprovalResolvedEvent(AgentWorkflowEvent, frozen=True):
    """An approval was answered, or its deadline has passed."""

    request_id: str
    agent_id: str
    approved: bool
    reason: str | None = None
    timed_out: bool = False
    """The deadline passed without an answer."""


OWN = tuple(AgentWorkflowEvent.__subclasses__())

logger = get_logger("agent_workflow")
