"""Ready-made teams of agents. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.names import homes_of, lazy_exports

if TYPE_CHECKING:
    from perdure.agent_workflow.public import *  # noqa: F403  # each import of it is public
    from perdure.orchestrations.fixed_order import (
        ConcurrentBuilder as ConcurrentBuilder,
        SequentialBuilder as SequentialBuilder,
    )
    from perdure.orchestrations.group_chat import (
        AgentOrchestrationOutput as AgentOrchestrationOutput,
        BaseGroupChatOrchestrator as BaseGroupChatOrchestrator,
        GroupChatOrchestrator as GroupChatOrchestrator,
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
    from perdure.orchestrations.group_chat_builder import (
        AgentBasedGroupChatOrchestrator as AgentBasedGroupChatOrchestrator,
        GroupChatBuilder as GroupChatBuilder,
    )
    from perdure.orchestrations.handoff import (
        HandoffAgentExecutor as HandoffAgentExecutor,
        HandoffAgentUserRequest as HandoffAgentUserRequest,
        HandoffSentEvent as HandoffSentEvent,
    )
    from perdure.orchestrations.handoff_builder import (
        HandoffBuilder as HandoffBuilder,
        get_handoff_tool_name as get_handoff_tool_name,
    )
    from perdure.orchestrations.magentic import (
        MAGENTIC_MANAGER_NAME as MAGENTIC_MANAGER_NAME,
        MagenticContext as MagenticContext,
        MagenticManagerBase as MagenticManagerBase,
        MagenticOrchestratorEvent as MagenticOrchestratorEvent,
        MagenticOrchestratorEventType as MagenticOrchestratorEventType,
        MagenticPlanReviewRequest as MagenticPlanReviewRequest,
        MagenticPlanReviewResponse as MagenticPlanReviewResponse,
        MagenticProgressLedger as MagenticProgressLedger,
        MagenticProgressLedgerItem as MagenticProgressLedgerItem,
        MagenticResetSignal as MagenticResetSignal,
        MagenticTaskLedger as MagenticTaskLedger,
    )
    from perdure.orchestrations.magentic_builder import (
        MagenticAgentExecutor as MagenticAgentExecutor,
        MagenticBuilder as MagenticBuilder,
        MagenticOrchestrator as MagenticOrchestrator,
    )
    from perdure.orchestrations.magentic_manager import (
        ORCHESTRATOR_FINAL_ANSWER_PROMPT as ORCHESTRATOR_FINAL_ANSWER_PROMPT,
        ORCHESTRATOR_PROGRESS_LEDGER_PROMPT as ORCHESTRATOR_PROGRESS_LEDGER_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT as ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT,
        ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT as ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT,
        StandardMagenticManager as StandardMagenticManager,
    )
    from perdure.orchestrations.participants import (
        AgentApprovalExecutor as AgentApprovalExecutor,
        AgentRequestInfoResponse as AgentRequestInfoResponse,
        clean_conversation_for_handoff as clean_conversation_for_handoff,
        create_completion_message as create_completion_message,
    )

_HOME = homes_of(
    {
        "perdure.agent_workflow": "condition",
        "perdure.agent_workflow.builder.node": "AgentNodeOptions",
        "perdure.agent_workflow.builder.workflow": "AgentWorkflow",
        "perdure.agent_workflow.condition": "Condition",
        "perdure.agent_workflow.definition": (
            "AgentConfig ApprovalConfig ConversationConfig EdgeConfig ErrorConfig HandoffConfig MapConfig NodeConfig "
            "RetryConfig SettingsConfig WorkflowConfig"
        ),
        "perdure.agent_workflow.events": (
            "AgentWorkflowEvent EventMetadata WorkflowAgentCompletedEvent WorkflowAgentSkippedEvent "
            "WorkflowAgentStartedEvent WorkflowApprovalRequestedEvent WorkflowApprovalResolvedEvent "
            "WorkflowCompletedEvent WorkflowDiagnosticEvent WorkflowEdgeTraversedEvent WorkflowLayerCompletedEvent "
            "WorkflowLayerStartedEvent WorkflowStartedEvent"
        ),
        "perdure.agent_workflow.execution.execution": "WorkflowResult",
        "perdure.agent_workflow.execution.node": "ApprovalContext ApprovalDecision ApprovalRequest",
        "perdure.agent_workflow.instance": "AgentWorkflowInstance",
        "perdure.agent_workflow.sessions": (
            "InMemorySessionStore JsonSessionStore SessionEntry SessionHead SessionStore SqliteSessionStore "
            "StorageSessionStore"
        ),
        "perdure.agent_workflow.store": "DefinitionInfo DefinitionStore MultiAgentCheckpointRetention StoredDefinition",
        "perdure.orchestrations.fixed_order": "ConcurrentBuilder SequentialBuilder",
        "perdure.orchestrations.group_chat": (
            "AgentOrchestrationOutput BaseGroupChatOrchestrator GroupChatOrchestrator GroupChatParticipantMessage "
            "GroupChatRequestMessage GroupChatRequestSentEvent GroupChatResponseMessage GroupChatResponseReceivedEvent "
            "GroupChatSelectionFunction GroupChatState OrchestrationState ParticipantRegistry TerminationCondition"
        ),
        "perdure.orchestrations.group_chat_builder": "AgentBasedGroupChatOrchestrator GroupChatBuilder",
        "perdure.orchestrations.handoff": "HandoffAgentExecutor HandoffAgentUserRequest HandoffSentEvent",
        "perdure.orchestrations.handoff_builder": "HandoffBuilder get_handoff_tool_name",
        "perdure.orchestrations.magentic": (
            "MAGENTIC_MANAGER_NAME MagenticContext MagenticManagerBase MagenticOrchestratorEvent "
            "MagenticOrchestratorEventType MagenticPlanReviewRequest MagenticPlanReviewResponse MagenticProgressLedger "
            "MagenticProgressLedgerItem MagenticResetSignal MagenticTaskLedger"
        ),
        "perdure.orchestrations.magentic_builder": "MagenticAgentExecutor MagenticBuilder MagenticOrchestrator",
        "perdure.orchestrations.magentic_manager": (
            "ORCHESTRATOR_FINAL_ANSWER_PROMPT ORCHESTRATOR_PROGRESS_LEDGER_PROMPT "
            "ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT "
            "ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT "
            "ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT StandardMagenticManager"
        ),
        "perdure.orchestrations.participants": (
            "AgentApprovalExecutor AgentRequestInfoResponse clean_conversation_for_handoff create_completion_message"
        ),
    }
)

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
