"""Participants of a Magentic team: plan reviews, and how the orchestrator asks and resets each participant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest, session_id_for
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.graph.types.matching import is_type_compatible
from perdure.orchestrations.group_chat.types import GroupChatParticipantMessage, GroupChatRequestMessage
from perdure.orchestrations.magentic.ledger import MAGENTIC_MANAGER_NAME, MagenticProgressLedger, MagenticResetSignal

Feedback: TypeAlias = str | Message | Sequence[str | Message]


class MagenticPlanReviewResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The review of a plan: no messages approve it; messages request changes. As JSON: `{"review": []}`."""

    review: list[Message]

    @staticmethod
    def approve() -> MagenticPlanReviewResponse:
        return MagenticPlanReviewResponse([])

    @staticmethod
    def revise(feedback: Feedback) -> MagenticPlanReviewResponse:
        """Raises ValueError without text: that would approve the plan."""
        review = as_messages(feedback)
        if not any(message.text.strip() for message in review):
            raise ValueError("A revision needs feedback, got no text. To approve the plan, use approve().")
        return MagenticPlanReviewResponse(review)

    @property
    def is_approved(self) -> bool:
        return not self.review


class MagenticPlanReviewRequest(msgspec.Struct, frozen=True):
    """Requests a review of the plan. Answer with `run(responses={request.request_id: request.approve()})`."""

    plan: Message
    current_progress: MagenticProgressLedger | None = None
    """The last progress ledger; None before the team has worked."""
    is_stalled: bool = False
    """Whether the plan replaces a stalled one."""
    request_id: str = ""

    def approve(self) -> MagenticPlanReviewResponse:
        """Approve the plan."""
        return MagenticPlanReviewResponse.approve()

    def revise(self, feedback: Feedback) -> MagenticPlanReviewResponse:
        """Request another plan with this feedback; it is reviewed again."""
        return MagenticPlanReviewResponse.revise(feedback)


NO_DESCRIPTION = "(no description: the name says what they do)"


class MagenticAgentExecutor(AgentExecutor):
    """An agent of the team. A reset gives it a new session without earlier messages."""

    @handler
    async def forget(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        ctx.private.clear()
        # A new id too: services that store conversations by id must not find the old one.
        ctx.private["session"] = AgentSession(session_id=f"{session_id_for(ctx)}/{signal.reset_count}")


@dataclass(frozen=True)
class Member:
    """A participant, for the orchestrator."""

    name: str
    description: str
    takes_requests: bool
    """Whether it gets one AgentExecutorRequest. Others get the messages first, and then the request to speak."""
    can_reset: bool

    async def ask(self, new: Sequence[Message], instruction: str, ctx: WorkflowContext[Any, Any]) -> None:
        if self.takes_requests:
            request = Message("user", instruction, MAGENTIC_MANAGER_NAME)
            await ctx.send_message(AgentExecutorRequest([*new, request]), target_id=self.name)
            return
        await ctx.send_message(GroupChatParticipantMessage(list(new)), target_id=self.name)
        await ctx.send_message(GroupChatRequestMessage(instruction), target_id=self.name)


def member_of(executor: Executor, description: str | None) -> Member:
    """Raises TypeError for an executor without the handlers."""

    def takes(kind: type) -> bool:
        return any(is_type_compatible(kind, accepted) for accepted in executor.input_types)

    takes_requests = takes(AgentExecutorRequest)
    if not takes_requests and not (takes(GroupChatParticipantMessage) and takes(GroupChatRequestMessage)):
        raise TypeError(
            f"Executor {executor.id!r} has no handler for AgentExecutorRequest, which a Magentic team sends, "
            "nor for GroupChatParticipantMessage and GroupChatRequestMessage in its place."
        )
    return Member(executor.id, description or NO_DESCRIPTION, takes_requests, takes(MagenticResetSignal))
