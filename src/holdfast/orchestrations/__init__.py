"""Ready-made teams of agents. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.orchestrations.agent_orchestrator import (
        AgentBasedGroupChatOrchestrator as AgentBasedGroupChatOrchestrator,
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
    "AgentOrchestrationOutput": "holdfast.orchestrations.group_chat_types",
    "AgentRequestInfoResponse": "holdfast.orchestrations.request_info",
    "BaseGroupChatOrchestrator": "holdfast.orchestrations.group_chat_orchestrator",
    "ConcurrentBuilder": "holdfast.orchestrations.concurrent",
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
    "HandoffSentEvent": "holdfast.orchestrations.handoff_messages",
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
    "ORCHESTRATOR_FINAL_ANSWER_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_PROGRESS_LEDGER_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT": "holdfast.orchestrations.magentic_prompts",
    "OrchestrationState": "holdfast.orchestrations.group_chat_types",
    "ParticipantRegistry": "holdfast.orchestrations.group_chat_types",
    "SequentialBuilder": "holdfast.orchestrations.sequential",
    "StandardMagenticManager": "holdfast.orchestrations.magentic_manager",
    "TerminationCondition": "holdfast.orchestrations.group_chat_types",
    "clean_conversation_for_handoff": "holdfast.orchestrations.conversations",
    "create_completion_message": "holdfast.orchestrations.conversations",
    "get_handoff_tool_name": "holdfast.orchestrations.handoff",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazily(__name__, _HOME)
