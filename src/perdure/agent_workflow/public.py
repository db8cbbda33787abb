"""The public names of workflows of agents, as the doors show them to type checkers."""

# ruff: noqa: PLC0414  # the alias makes a name public

from __future__ import annotations

from perdure.agent_workflow import condition as condition
from perdure.agent_workflow.builder.node import AgentNodeOptions as AgentNodeOptions
from perdure.agent_workflow.builder.workflow import AgentWorkflow as AgentWorkflow
from perdure.agent_workflow.condition import Condition as Condition
from perdure.agent_workflow.definition import (
    AgentConfig as AgentConfig,
    ApprovalConfig as ApprovalConfig,
    ConversationConfig as ConversationConfig,
    EdgeConfig as EdgeConfig,
    ErrorConfig as ErrorConfig,
    HandoffConfig as HandoffConfig,
    MapConfig as MapConfig,
    NodeConfig as NodeConfig,
    RetryConfig as RetryConfig,
    SettingsConfig as SettingsConfig,
    WorkflowConfig as WorkflowConfig,
)
from perdure.agent_workflow.events import (
    AgentWorkflowEvent as AgentWorkflowEvent,
    EventMetadata as EventMetadata,
    WorkflowAgentCompletedEvent as WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent as WorkflowAgentSkippedEvent,
    WorkflowAgentStartedEvent as WorkflowAgentStartedEvent,
    WorkflowApprovalRequestedEvent as WorkflowApprovalRequestedEvent,
    WorkflowApprovalResolvedEvent as WorkflowApprovalResolvedEvent,
    WorkflowCompletedEvent as WorkflowCompletedEvent,
    WorkflowDiagnosticEvent as WorkflowDiagnosticEvent,
    WorkflowEdgeTraversedEvent as WorkflowEdgeTraversedEvent,
    WorkflowLayerCompletedEvent as WorkflowLayerCompletedEvent,
    WorkflowLayerStartedEvent as WorkflowLayerStartedEvent,
    WorkflowStartedEvent as WorkflowStartedEvent,
)
from perdure.agent_workflow.execution.execution import WorkflowResult as WorkflowResult
from perdure.agent_workflow.execution.node import (
    ApprovalContext as ApprovalContext,
    ApprovalDecision as ApprovalDecision,
    ApprovalRequest as ApprovalRequest,
)
from perdure.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
from perdure.agent_workflow.sessions import (
    InMemorySessionStore as InMemorySessionStore,
    JsonSessionStore as JsonSessionStore,
    SessionEntry as SessionEntry,
    SessionHead as SessionHead,
    SessionStore as SessionStore,
    SqliteSessionStore as SqliteSessionStore,
    StorageSessionStore as StorageSessionStore,
)
from perdure.agent_workflow.store import (
    DefinitionInfo as DefinitionInfo,
    DefinitionStore as DefinitionStore,
    MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
    StoredDefinition as StoredDefinition,
)
