"""Ready-made teams of agents. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.lazy import lazily

if TYPE_CHECKING:
    from perdure.orchestrations.agent_orchestrator import (
        AgentBasedGroupChatOrchestrator as AgentBasedGroupChatOrchestrator,
    )
    from perdure.orchestrations.agent_workflow import condition as condition
    from perdure.orchestrations.agent_workflow.approvals import (
        ApprovalContext as ApprovalContext,
        ApprovalDecision as ApprovalDecision,
        ApprovalRequest as ApprovalRequest,
    )
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow as AgentWorkflow
    from perdure.orchestrations.agent_workflow.conditions import Condition as Condition
    from perdure.orchestrations.agent_workflow.definition import (
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
    from perdure.orchestrations.agent_workflow.definitions import (
        DefinitionInfo as DefinitionInfo,
        DefinitionStore as DefinitionStore,
        StoredDefinition as StoredDefinition,
    )
    from perdure.orchestrations.agent_workflow.events import (
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
    from perdure.orchestrations.agent_workflow.instance import AgentWorkflowInstance as AgentWorkflowInstance
    from perdure.orchestrations.agent_workflow.node_options import AgentNodeOptions as AgentNodeOptions
    from perdure.orchestrations.agent_workflow.result import WorkflowResult as WorkflowResult
    from perdure.orchestrations.agent_workflow.session_log import (
        SessionEntry as SessionEntry,
        SessionHead as SessionHead,
    )
    from perdure.orchestrations.agent_workflow.sessions import (
        InMemorySessionStore as InMemorySessionStore,
        JsonSessionStore as JsonSessionStore,
        SessionStore as SessionStore,
        SqliteSessionStore as SqliteSessionStore,
    )
    from perdure.orchestrations.agent_workflow.stores import (
        MultiAgentCheckpointRetention as MultiAgentCheckpointRetention,
    )
    from perdure.orchestrations.concurrent import ConcurrentBuilder as ConcurrentBuilder
    from perdure.orchestrations.conversations import (
        clean_conversation_for_handoff as clean_conversation_for_handoff,
        create_completion_message as create_completion_message,
    )
    from perdure.orchestrations.group_chat import GroupChatBuilder as GroupChatBuilder
    from perdure.orchestrations.group_chat_orchestrator import (
        BaseGroupChatOrchestrator as BaseGroupChatOrchestrator,
        GroupChatOrchestrator as GroupChatOrchestrator,
    )
    from perdure.orchestrations.group_chat_types import (
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
    from perdure.orchestrations.handoff import (
        HandoffBuilder as HandoffBuilder,
        get_handoff_tool_name as get_handoff_tool_name,
    )
    from perdure.orchestrations.handoff_executor import HandoffAgentExecutor as HandoffAgentExecutor
    from perdure.orchestrations.handoff_messages import (
        HandoffAgentUserRequest as HandoffAgentUserRequest,
        HandoffSentEvent as HandoffSentEvent,
    )
    from perdure.orchestrations.magentic import MagenticBuilder as MagenticBuilder
    from perdure.orchestrations.magentic_ledger import (
        MAGENTIC_MANAGER_NAME as MAGENTIC_MANAGER_NAME,
        MagenticContext as MagenticContext,
        MagenticOrchestratorEvent as MagenticOrchestratorEvent,
        MagenticOrchestratorEventType as MagenticOrchestratorEventType,
        MagenticProgressLedger as MagenticProgressLedger,
        MagenticProgressLedgerItem as MagenticProgressLedgerItem,
        MagenticResetSignal as MagenticResetSignal,
        MagenticTaskLedger as MagenticTaskLedger,
    )
    from perdure.orchestrations.magentic_manager import (
        MagenticManagerBase as MagenticManagerBase,
        StandardMagenticManager as StandardMagenticManager,
    )
    from perdure.orchestrations.magentic_orchestrator import MagenticOrchestrator as MagenticOrchestrator
    from perdure.orchestrations.magentic_participant import MagenticAgentExecutor as MagenticAgentExecutor
    from perdure.orchestrations.magentic_prompts import (
        ORCHESTRATOR_FINAL_ANSWER_PROMPT as ORCHESTRATOR_FINAL_ANSWER_PROMPT,
        ORCHESTRATOR_PROGRESS_LEDGER_PROMPT as ORCHESTRATOR_PROGRESS_LEDGER_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT as ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT,
    )
    from perdure.orchestrations.magentic_review import (
        MagenticPlanReviewRequest as MagenticPlanReviewRequest,
        MagenticPlanReviewResponse as MagenticPlanReviewResponse,
    )
    from perdure.orchestrations.request_info import (
        AgentApprovalExecutor as AgentApprovalExecutor,
        AgentRequestInfoResponse as AgentRequestInfoResponse,
    )
    from perdure.orchestrations.sequential import SequentialBuilder as SequentialBuilder

_HOME: dict[str, str] = {
    "AgentApprovalExecutor": "perdure.orchestrations.request_info",
    "AgentBasedGroupChatOrchestrator": "perdure.orchestrations.agent_orchestrator",
    "AgentConfig": "perdure.orchestrations.agent_workflow.definition",
    "AgentNodeOptions": "perdure.orchestrations.agent_workflow.node_options",
    "AgentOrchestrationOutput": "perdure.orchestrations.group_chat_types",
    "AgentRequestInfoResponse": "perdure.orchestrations.request_info",
    "AgentWorkflow": "perdure.orchestrations.agent_workflow.builder",
    "AgentWorkflowEvent": "perdure.orchestrations.agent_workflow.events",
    "AgentWorkflowInstance": "perdure.orchestrations.agent_workflow.instance",
    "ApprovalConfig": "perdure.orchestrations.agent_workflow.definition",
    "ApprovalContext": "perdure.orchestrations.agent_workflow.approvals",
    "ApprovalDecision": "perdure.orchestrations.agent_workflow.approvals",
    "ApprovalRequest": "perdure.orchestrations.agent_workflow.approvals",
    "BaseGroupChatOrchestrator": "perdure.orchestrations.group_chat_orchestrator",
    "ConcurrentBuilder": "perdure.orchestrations.concurrent",
    "Condition": "perdure.orchestrations.agent_workflow.conditions",
    "ConversationConfig": "perdure.orchestrations.agent_workflow.definition",
    "DefinitionInfo": "perdure.orchestrations.agent_workflow.definitions",
    "DefinitionStore": "perdure.orchestrations.agent_workflow.definitions",
    "EdgeConfig": "perdure.orchestrations.agent_workflow.definition",
    "ErrorConfig": "perdure.orchestrations.agent_workflow.definition",
    "EventMetadata": "perdure.orchestrations.agent_workflow.events",
    "GroupChatBuilder": "perdure.orchestrations.group_chat",
    "GroupChatOrchestrator": "perdure.orchestrations.group_chat_orchestrator",
    "GroupChatParticipantMessage": "perdure.orchestrations.group_chat_types",
    "GroupChatRequestMessage": "perdure.orchestrations.group_chat_types",
    "GroupChatRequestSentEvent": "perdure.orchestrations.group_chat_types",
    "GroupChatResponseMessage": "perdure.orchestrations.group_chat_types",
    "GroupChatResponseReceivedEvent": "perdure.orchestrations.group_chat_types",
    "GroupChatSelectionFunction": "perdure.orchestrations.group_chat_types",
    "GroupChatState": "perdure.orchestrations.group_chat_types",
    "HandoffAgentExecutor": "perdure.orchestrations.handoff_executor",
    "HandoffAgentUserRequest": "perdure.orchestrations.handoff_messages",
    "HandoffBuilder": "perdure.orchestrations.handoff",
    "HandoffConfig": "perdure.orchestrations.agent_workflow.definition",
    "HandoffSentEvent": "perdure.orchestrations.handoff_messages",
    "InMemorySessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "JsonSessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "MAGENTIC_MANAGER_NAME": "perdure.orchestrations.magentic_ledger",
    "MagenticAgentExecutor": "perdure.orchestrations.magentic_participant",
    "MagenticBuilder": "perdure.orchestrations.magentic",
    "MagenticContext": "perdure.orchestrations.magentic_ledger",
    "MagenticManagerBase": "perdure.orchestrations.magentic_manager",
    "MagenticOrchestrator": "perdure.orchestrations.magentic_orchestrator",
    "MagenticOrchestratorEvent": "perdure.orchestrations.magentic_ledger",
    "MagenticOrchestratorEventType": "perdure.orchestrations.magentic_ledger",
    "MagenticPlanReviewRequest": "perdure.orchestrations.magentic_review",
    "MagenticPlanReviewResponse": "perdure.orchestrations.magentic_review",
    "MagenticProgressLedger": "perdure.orchestrations.magentic_ledger",
    "MagenticProgressLedgerItem": "perdure.orchestrations.magentic_ledger",
    "MagenticResetSignal": "perdure.orchestrations.magentic_ledger",
    "MagenticTaskLedger": "perdure.orchestrations.magentic_ledger",
    "MapConfig": "perdure.orchestrations.agent_workflow.definition",
    "MultiAgentCheckpointRetention": "perdure.orchestrations.agent_workflow.stores",
    "NodeConfig": "perdure.orchestrations.agent_workflow.definition",
    "ORCHESTRATOR_FINAL_ANSWER_PROMPT": "perdure.orchestrations.magentic_prompts",
    "ORCHESTRATOR_PROGRESS_LEDGER_PROMPT": "perdure.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT": "perdure.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT": "perdure.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT": "perdure.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT": "perdure.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT": "perdure.orchestrations.magentic_prompts",
    "OrchestrationState": "perdure.orchestrations.group_chat_types",
    "ParticipantRegistry": "perdure.orchestrations.group_chat_types",
    "RetryConfig": "perdure.orchestrations.agent_workflow.definition",
    "SequentialBuilder": "perdure.orchestrations.sequential",
    "SessionEntry": "perdure.orchestrations.agent_workflow.session_log",
    "SessionHead": "perdure.orchestrations.agent_workflow.session_log",
    "SessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "SettingsConfig": "perdure.orchestrations.agent_workflow.definition",
    "SqliteSessionStore": "perdure.orchestrations.agent_workflow.sessions",
    "StandardMagenticManager": "perdure.orchestrations.magentic_manager",
    "StoredDefinition": "perdure.orchestrations.agent_workflow.definitions",
    "TerminationCondition": "perdure.orchestrations.group_chat_types",
    "WorkflowAgentCompletedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowAgentSkippedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowAgentStartedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowApprovalRequestedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowApprovalResolvedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowCompletedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowConfig": "perdure.orchestrations.agent_workflow.definition",
    "WorkflowDiagnosticEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowEdgeTraversedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowLayerCompletedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowLayerStartedEvent": "perdure.orchestrations.agent_workflow.events",
    "WorkflowResult": "perdure.orchestrations.agent_workflow.result",
    "WorkflowStartedEvent": "perdure.orchestrations.agent_workflow.events",
    "clean_conversation_for_handoff": "perdure.orchestrations.conversations",
    "condition": "perdure.orchestrations.agent_workflow",
    "create_completion_message": "perdure.orchestrations.conversations",
    "get_handoff_tool_name": "perdure.orchestrations.handoff",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazily(__name__, _HOME)
