"""Ready-made teams of agents. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.orchestrations.agent_orchestrator import (
        AgentBasedGroupChatOrchestrator as AgentBasedGroupChatOrchestrator,
    )
    from holdfast.orchestrations.agent_workflow import condition as condition
    from holdfast.orchestrations.agent_workflow.approvals import (
        ApprovalContext as ApprovalContext,
        ApprovalDecision as ApprovalDecision,
        ApprovalRequest as ApprovalRequest,
    )
    from holdfast.orchestrations.agent_workflow.builder import AgentWorkflow as AgentWorkflow
    from holdfast.orchestrations.agent_workflow.conditions import Condition as Condition
    from holdfast.orchestrations.agent_workflow.definition import (
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
    from holdfast.orchestrations.agent_workflow.definitions import (
        DefinitionInfo as DefinitionInfo,
        DefinitionStore as DefinitionStore,
        StoredDefinition as StoredDefinition,
    )
    from holdfast.orchestrations.agent_workflow.events import (
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
    from holdfast.orchestrations.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
    from holdfast.orchestrations.agent_workflow.node_options import AgentNodeOptions as AgentNodeOptions
    from holdfast.orchestrations.agent_workflow.result import WorkflowResult as WorkflowResult
    from holdfast.orchestrations.agent_workflow.session_log import (
        SessionEntry as SessionEntry,
        SessionHead as SessionHead,
    )
    from holdfast.orchestrations.agent_workflow.sessions import (
        InMemorySessionStore as InMemorySessionStore,
        JsonSessionStore as JsonSessionStore,
        SessionStore as SessionStore,
        SqliteSessionStore as SqliteSessionStore,
    )
    from holdfast.orchestrations.agent_workflow.stores import (
        MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
    )
    from holdfast.orchestrations.concurrent import ConcurrentBuilder as ConcurrentBuilder
    from holdfast.orchestrations.conversations import (
        clean_conversation_for_handoff as clean_conversation_for_handoff,
        create_completion_message as create_completion_message,
    )
    from holdfast.orchestrations.group_chat import GroupChatBuilder as GroupChatBuilder
    from holdfast.orchestrations.group_chat_orchestrator import (
        BaseGroupChatOrchestrator as BaseGroupChatOrchestrator,
        GroupChatOrchestrator as GroupChatOrchestrator,
    )
    from holdfast.orchestrations.group_chat_types import (
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
    from holdfast.orchestrations.handoff import (
        HandoffBuilder as HandoffBuilder,
        get_handoff_tool_name as get_handoff_tool_name,
    )
    from holdfast.orchestrations.handoff_executor import HandoffAgentExecutor as HandoffAgentExecutor
    from holdfast.orchestrations.handoff_messages import (
        HandoffAgentUserRequest as HandoffAgentUserRequest,
        HandoffSentEvent as HandoffSentEvent,
    )
    from holdfast.orchestrations.magentic import MagenticBuilder as MagenticBuilder
    from holdfast.orchestrations.magentic_ledger import (
        MAGENTIC_MANAGER_NAME as MAGENTIC_MANAGER_NAME,
        MagenticContext as MagenticContext,
        MagenticOrchestratorEvent as MagenticOrchestratorEvent,
        MagenticOrchestratorEventType as MagenticOrchestratorEventType,
        MagenticProgressLedger as MagenticProgressLedger,
        MagenticProgressLedgerItem as MagenticProgressLedgerItem,
        MagenticResetSignal as MagenticResetSignal,
        MagenticTaskLedger as MagenticTaskLedger,
    )
    from holdfast.orchestrations.magentic_manager import (
        MagenticManagerBase as MagenticManagerBase,
        StandardMagenticManager as StandardMagenticManager,
    )
    from holdfast.orchestrations.magentic_orchestrator import MagenticOrchestrator as MagenticOrchestrator
    from holdfast.orchestrations.magentic_participant import MagenticAgentExecutor as MagenticAgentExecutor
    from holdfast.orchestrations.magentic_prompts import (
        ORCHESTRATOR_FINAL_ANSWER_PROMPT as ORCHESTRATOR_FINAL_ANSWER_PROMPT,
        ORCHESTRATOR_PROGRESS_LEDGER_PROMPT as ORCHESTRATOR_PROGRESS_LEDGER_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT as ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT,
    )
    from holdfast.orchestrations.magentic_review import (
        MagenticPlanReviewRequest as MagenticPlanReviewRequest,
        MagenticPlanReviewResponse as MagenticPlanReviewResponse,
    )
    from holdfast.orchestrations.request_info import (
        AgentApprovalExecutor as AgentApprovalExecutor,
        AgentRequestInfoResponse as AgentRequestInfoResponse,
    )
    from holdfast.orchestrations.sequential import SequentialBuilder as SequentialBuilder

_HOME: dict[str, str] = {
    "AgentApprovalExecutor": "holdfast.orchestrations.request_info",
    "AgentBasedGroupChatOrchestrator": "holdfast.orchestrations.agent_orchestrator",
    "AgentConfig": "holdfast.orchestrations.agent_workflow.definition",
    "AgentNodeOptions": "holdfast.orchestrations.agent_workflow.node_options",
    "AgentOrchestrationOutput": "holdfast.orchestrations.group_chat_types",
    "AgentRequestInfoResponse": "holdfast.orchestrations.request_info",
    "AgentWorkflow": "holdfast.orchestrations.agent_workflow.builder",
    "AgentWorkflowEvent": "holdfast.orchestrations.agent_workflow.events",
    "AgentWorkflowInstance": "holdfast.orchestrations.agent_workflow.instance",
    "ApprovalConfig": "holdfast.orchestrations.agent_workflow.definition",
    "ApprovalContext": "holdfast.orchestrations.agent_workflow.approvals",
    "ApprovalDecision": "holdfast.orchestrations.agent_workflow.approvals",
    "ApprovalRequest": "holdfast.orchestrations.agent_workflow.approvals",
    "BaseGroupChatOrchestrator": "holdfast.orchestrations.group_chat_orchestrator",
    "ConcurrentBuilder": "holdfast.orchestrations.concurrent",
    "Condition": "holdfast.orchestrations.agent_workflow.conditions",
    "ConversationConfig": "holdfast.orchestrations.agent_workflow.definition",
    "DefinitionInfo": "holdfast.orchestrations.agent_workflow.definitions",
    "DefinitionStore": "holdfast.orchestrations.agent_workflow.definitions",
    "EdgeConfig": "holdfast.orchestrations.agent_workflow.definition",
    "ErrorConfig": "holdfast.orchestrations.agent_workflow.definition",
    "EventMetadata": "holdfast.orchestrations.agent_workflow.events",
    "GroupChatBuilder": "holdfast.orchestrations.group_chat",
    "GroupChatOrchestrator": "holdfast.orchestrations.group_chat_orchestrator",
    "GroupChatParticipantMessage": "holdfast.orchestrations.group_chat_types",
    "GroupChatRequestMessage": "holdfast.orchestrations.group_chat_types",
    "GroupChatRequestSentEvent": "holdfast.orchestrations.group_chat_types",
    "GroupChatResponseMessage": "holdfast.orchestrations.group_chat_types",
    "GroupChatResponseReceivedEvent": "holdfast.orchestrations.group_chat_types",
    "GroupChatSelectionFunction": "holdfast.orchestrations.group_chat_types",
    "GroupChatState": "holdfast.orchestrations.group_chat_types",
    "HandoffAgentExecutor": "holdfast.orchestrations.handoff_executor",
    "HandoffAgentUserRequest": "holdfast.orchestrations.handoff_messages",
    "HandoffBuilder": "holdfast.orchestrations.handoff",
    "HandoffConfig": "holdfast.orchestrations.agent_workflow.definition",
    "HandoffSentEvent": "holdfast.orchestrations.handoff_messages",
    "InMemorySessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "JsonSessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "MAGENTIC_MANAGER_NAME": "holdfast.orchestrations.magentic_ledger",
    "MagenticAgentExecutor": "holdfast.orchestrations.magentic_participant",
    "MagenticBuilder": "holdfast.orchestrations.magentic",
    "MagenticContext": "holdfast.orchestrations.magentic_ledger",
    "MagenticManagerBase": "holdfast.orchestrations.magentic_manager",
    "MagenticOrchestrator": "holdfast.orchestrations.magentic_orchestrator",
    "MagenticOrchestratorEvent": "holdfast.orchestrations.magentic_ledger",
    "MagenticOrchestratorEventType": "holdfast.orchestrations.magentic_ledger",
    "MagenticPlanReviewRequest": "holdfast.orchestrations.magentic_review",
    "MagenticPlanReviewResponse": "holdfast.orchestrations.magentic_review",
    "MagenticProgressLedger": "holdfast.orchestrations.magentic_ledger",
    "MagenticProgressLedgerItem": "holdfast.orchestrations.magentic_ledger",
    "MagenticResetSignal": "holdfast.orchestrations.magentic_ledger",
    "MagenticTaskLedger": "holdfast.orchestrations.magentic_ledger",
    "MapConfig": "holdfast.orchestrations.agent_workflow.definition",
    "MultiAgentCheckpointRetention": "holdfast.orchestrations.agent_workflow.stores",
    "NodeConfig": "holdfast.orchestrations.agent_workflow.definition",
    "ORCHESTRATOR_FINAL_ANSWER_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_PROGRESS_LEDGER_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "OrchestrationState": "holdfast.orchestrations.group_chat_types",
    "ParticipantRegistry": "holdfast.orchestrations.group_chat_types",
    "RetryConfig": "holdfast.orchestrations.agent_workflow.definition",
    "SequentialBuilder": "holdfast.orchestrations.sequential",
    "SessionEntry": "holdfast.orchestrations.agent_workflow.session_log",
    "SessionHead": "holdfast.orchestrations.agent_workflow.session_log",
    "SessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "SettingsConfig": "holdfast.orchestrations.agent_workflow.definition",
    "SqliteSessionStore": "holdfast.orchestrations.agent_workflow.sessions",
    "StandardMagenticManager": "holdfast.orchestrations.magentic_manager",
    "StoredDefinition": "holdfast.orchestrations.agent_workflow.definitions",
    "TerminationCondition": "holdfast.orchestrations.group_chat_types",
    "WorkflowAgentCompletedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowAgentSkippedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowAgentStartedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowApprovalRequestedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowApprovalResolvedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowCompletedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowConfig": "holdfast.orchestrations.agent_workflow.definition",
    "WorkflowDiagnosticEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowEdgeTraversedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowLayerCompletedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowLayerStartedEvent": "holdfast.orchestrations.agent_workflow.events",
    "WorkflowResult": "holdfast.orchestrations.agent_workflow.result",
    "WorkflowStartedEvent": "holdfast.orchestrations.agent_workflow.events",
    "clean_conversation_for_handoff": "holdfast.orchestrations.conversations",
    "condition": "holdfast.orchestrations.agent_workflow",
    "create_completion_message": "holdfast.orchestrations.conversations",
    "get_handoff_tool_name": "holdfast.orchestrations.handoff",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazily(__name__, _HOME)
