"""Ready-made teams of agents. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.lazy import lazy_exports

if TYPE_CHECKING:
    from perdure.agent_workflow.builder.node import AgentNodeOptions as AgentNodeOptions
    from perdure.agent_workflow.builder.workflow import AgentWorkflow as AgentWorkflow
    from perdure.agent_workflow.conversations.files import JsonSessionStore as JsonSessionStore
    from perdure.agent_workflow.conversations.log import SessionEntry as SessionEntry, SessionHead as SessionHead
    from perdure.agent_workflow.conversations.sqlite import SqliteSessionStore as SqliteSessionStore
    from perdure.agent_workflow.conversations.store import (
        InMemorySessionStore as InMemorySessionStore,
        SessionStore as SessionStore,
    )
    from perdure.agent_workflow.definition import condition as condition
    from perdure.agent_workflow.definition.condition import Condition as Condition
    from perdure.agent_workflow.definition.config import (
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
    from perdure.agent_workflow.execution.approvals import (
        ApprovalContext as ApprovalContext,
        ApprovalDecision as ApprovalDecision,
        ApprovalRequest as ApprovalRequest,
    )
    from perdure.agent_workflow.execution.execution import WorkflowResult as WorkflowResult
    from perdure.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
    from perdure.agent_workflow.store import (
        DefinitionInfo as DefinitionInfo,
        DefinitionStore as DefinitionStore,
        MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
        StoredDefinition as StoredDefinition,
    )
    from perdure.orchestrations.concurrent import ConcurrentBuilder as ConcurrentBuilder
    from perdure.orchestrations.group_chat.builder import GroupChatBuilder as GroupChatBuilder
    from perdure.orchestrations.group_chat.orchestrator import (
        AgentBasedGroupChatOrchestrator as AgentBasedGroupChatOrchestrator,
        BaseGroupChatOrchestrator as BaseGroupChatOrchestrator,
        GroupChatOrchestrator as GroupChatOrchestrator,
    )
    from perdure.orchestrations.group_chat.types import (
        AgentOrchestrationOutput as AgentOrchestrationOutput,
        GroupChatParticipantMessage as GroupChatParticipantMessage,
        GroupChatRequestMessage as GroupChatRequestMessage,
        GroupChatRequestSentEvent as GroupChatRequestSentEvent,
        GroupChatResponseMessage as GroupChatResponseMessage,
        GroupChatResponseReceivedEvent as GroupChatResponseReceivedEvent,
        GroupChatSelectionFunction as GroupChatSelectionFunction,
        GroupChatState as GroupChatState,
        OrchestrationState as OrchestrationState,
        ParticipantRegistry as ParticipantRegistry,
        TerminationCondition as TerminationCondition,
    )
    from perdure.orchestrations.handoff.builder import (
        HandoffBuilder as HandoffBuilder,
        get_handoff_tool_name as get_handoff_tool_name,
    )
    from perdure.orchestrations.handoff.executor import (
        HandoffAgentExecutor as HandoffAgentExecutor,
        HandoffAgentUserRequest as HandoffAgentUserRequest,
        HandoffSentEvent as HandoffSentEvent,
    )
    from perdure.orchestrations.magentic.builder import MagenticBuilder as MagenticBuilder
    from perdure.orchestrations.magentic.ledger import (
        MAGENTIC_MANAGER_NAME as MAGENTIC_MANAGER_NAME,
        MagenticContext as MagenticContext,
        MagenticOrchestratorEvent as MagenticOrchestratorEvent,
        MagenticOrchestratorEventType as MagenticOrchestratorEventType,
        MagenticProgressLedger as MagenticProgressLedger,
        MagenticProgressLedgerItem as MagenticProgressLedgerItem,
        MagenticResetSignal as MagenticResetSignal,
        MagenticTaskLedger as MagenticTaskLedger,
    )
    from perdure.orchestrations.magentic.manager import (
        MagenticManagerBase as MagenticManagerBase,
        StandardMagenticManager as StandardMagenticManager,
    )
    from perdure.orchestrations.magentic.orchestrator import MagenticOrchestrator as MagenticOrchestrator
    from perdure.orchestrations.magentic.participant import (
        MagenticAgentExecutor as MagenticAgentExecutor,
        MagenticPlanReviewRequest as MagenticPlanReviewRequest,
        MagenticPlanReviewResponse as MagenticPlanReviewResponse,
    )
    from perdure.orchestrations.magentic.prompts import (
        ORCHESTRATOR_FINAL_ANSWER_PROMPT as ORCHESTRATOR_FINAL_ANSWER_PROMPT,
        ORCHESTRATOR_PROGRESS_LEDGER_PROMPT as ORCHESTRATOR_PROGRESS_LEDGER_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT as ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT,
    )
    from perdure.orchestrations.participants import (
        clean_conversation_for_handoff as clean_conversation_for_handoff,
        create_completion_message as create_completion_message,
    )
    from perdure.orchestrations.request_info import (
        AgentApprovalExecutor as AgentApprovalExecutor,
        AgentRequestInfoResponse as AgentRequestInfoResponse,
    )
    from perdure.orchestrations.sequential import SequentialBuilder as SequentialBuilder

_HOME: dict[str, str] = {
    "AgentApprovalExecutor": "perdure.orchestrations.request_info",
    "AgentBasedGroupChatOrchestrator": "perdure.orchestrations.group_chat.orchestrator",
    "AgentConfig": "perdure.agent_workflow.definition.config",
    "AgentNodeOptions": "perdure.agent_workflow.builder.node",
    "AgentOrchestrationOutput": "perdure.orchestrations.group_chat.types",
    "AgentRequestInfoResponse": "perdure.orchestrations.request_info",
    "AgentWorkflow": "perdure.agent_workflow.builder.workflow",
    "AgentWorkflowEvent": "perdure.agent_workflow.events",
    "AgentWorkflowInstance": "perdure.agent_workflow.instance",
    "ApprovalConfig": "perdure.agent_workflow.definition.config",
    "ApprovalContext": "perdure.agent_workflow.execution.approvals",
    "ApprovalDecision": "perdure.agent_workflow.execution.approvals",
    "ApprovalRequest": "perdure.agent_workflow.execution.approvals",
    "BaseGroupChatOrchestrator": "perdure.orchestrations.group_chat.orchestrator",
    "ConcurrentBuilder": "perdure.orchestrations.concurrent",
    "Condition": "perdure.agent_workflow.definition.condition",
    "ConversationConfig": "perdure.agent_workflow.definition.config",
    "DefinitionInfo": "perdure.agent_workflow.store",
    "DefinitionStore": "perdure.agent_workflow.store",
    "EdgeConfig": "perdure.agent_workflow.definition.config",
    "ErrorConfig": "perdure.agent_workflow.definition.config",
    "EventMetadata": "perdure.agent_workflow.events",
    "GroupChatBuilder": "perdure.orchestrations.group_chat.builder",
    "GroupChatOrchestrator": "perdure.orchestrations.group_chat.orchestrator",
    "GroupChatParticipantMessage": "perdure.orchestrations.group_chat.types",
    "GroupChatRequestMessage": "perdure.orchestrations.group_chat.types",
    "GroupChatRequestSentEvent": "perdure.orchestrations.group_chat.types",
    "GroupChatResponseMessage": "perdure.orchestrations.group_chat.types",
    "GroupChatResponseReceivedEvent": "perdure.orchestrations.group_chat.types",
    "GroupChatSelectionFunction": "perdure.orchestrations.group_chat.types",
    "GroupChatState": "perdure.orchestrations.group_chat.types",
    "HandoffAgentExecutor": "perdure.orchestrations.handoff.executor",
    "HandoffAgentUserRequest": "perdure.orchestrations.handoff.executor",
    "HandoffBuilder": "perdure.orchestrations.handoff.builder",
    "HandoffConfig": "perdure.agent_workflow.definition.config",
    "HandoffSentEvent": "perdure.orchestrations.handoff.executor",
    "InMemorySessionStore": "perdure.agent_workflow.conversations.store",
    "JsonSessionStore": "perdure.agent_workflow.conversations.files",
    "MAGENTIC_MANAGER_NAME": "perdure.orchestrations.magentic.ledger",
    "MagenticAgentExecutor": "perdure.orchestrations.magentic.participant",
    "MagenticBuilder": "perdure.orchestrations.magentic.builder",
    "MagenticContext": "perdure.orchestrations.magentic.ledger",
    "MagenticManagerBase": "perdure.orchestrations.magentic.manager",
    "MagenticOrchestrator": "perdure.orchestrations.magentic.orchestrator",
    "MagenticOrchestratorEvent": "perdure.orchestrations.magentic.ledger",
    "MagenticOrchestratorEventType": "perdure.orchestrations.magentic.ledger",
    "MagenticPlanReviewRequest": "perdure.orchestrations.magentic.participant",
    "MagenticPlanReviewResponse": "perdure.orchestrations.magentic.participant",
    "MagenticProgressLedger": "perdure.orchestrations.magentic.ledger",
    "MagenticProgressLedgerItem": "perdure.orchestrations.magentic.ledger",
    "MagenticResetSignal": "perdure.orchestrations.magentic.ledger",
    "MagenticTaskLedger": "perdure.orchestrations.magentic.ledger",
    "MapConfig": "perdure.agent_workflow.definition.config",
    "MultiAgentCheckpointRetention": "perdure.agent_workflow.store",
    "NodeConfig": "perdure.agent_workflow.definition.config",
    "ORCHESTRATOR_FINAL_ANSWER_PROMPT": "perdure.orchestrations.magentic.prompts",
    "ORCHESTRATOR_PROGRESS_LEDGER_PROMPT": "perdure.orchestrations.magentic.prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT": "perdure.orchestrations.magentic.prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT": "perdure.orchestrations.magentic.prompts",
    "ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT": "perdure.orchestrations.magentic.prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT": "perdure.orchestrations.magentic.prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT": "perdure.orchestrations.magentic.prompts",
    "OrchestrationState": "perdure.orchestrations.group_chat.types",
    "ParticipantRegistry": "perdure.orchestrations.group_chat.types",
    "RetryConfig": "perdure.agent_workflow.definition.config",
    "SequentialBuilder": "perdure.orchestrations.sequential",
    "SessionEntry": "perdure.agent_workflow.conversations.log",
    "SessionHead": "perdure.agent_workflow.conversations.log",
    "SessionStore": "perdure.agent_workflow.conversations.store",
    "SettingsConfig": "perdure.agent_workflow.definition.config",
    "SqliteSessionStore": "perdure.agent_workflow.conversations.sqlite",
    "StandardMagenticManager": "perdure.orchestrations.magentic.manager",
    "StoredDefinition": "perdure.agent_workflow.store",
    "TerminationCondition": "perdure.orchestrations.group_chat.types",
    "WorkflowAgentCompletedEvent": "perdure.agent_workflow.events",
    "WorkflowAgentSkippedEvent": "perdure.agent_workflow.events",
    "WorkflowAgentStartedEvent": "perdure.agent_workflow.events",
    "WorkflowApprovalRequestedEvent": "perdure.agent_workflow.events",
    "WorkflowApprovalResolvedEvent": "perdure.agent_workflow.events",
    "WorkflowCompletedEvent": "perdure.agent_workflow.events",
    "WorkflowConfig": "perdure.agent_workflow.definition.config",
    "WorkflowDiagnosticEvent": "perdure.agent_workflow.events",
    "WorkflowEdgeTraversedEvent": "perdure.agent_workflow.events",
    "WorkflowLayerCompletedEvent": "perdure.agent_workflow.events",
    "WorkflowLayerStartedEvent": "perdure.agent_workflow.events",
    "WorkflowResult": "perdure.agent_workflow.execution.execution",
    "WorkflowStartedEvent": "perdure.agent_workflow.events",
    "clean_conversation_for_handoff": "perdure.orchestrations.participants",
    "condition": "perdure.agent_workflow.definition",
    "create_completion_message": "perdure.orchestrations.participants",
    "get_handoff_tool_name": "perdure.orchestrations.handoff.builder",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
