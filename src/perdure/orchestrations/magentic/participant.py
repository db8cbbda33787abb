"""Participants of a Magentic team: how each is asked, and who of them can forget."""

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

# ---------------------------------------------------------------- magentic review


Feedback: TypeAlias = str | Message | Sequence[str | Message]


class MagenticPlanReviewResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer: no messages approve the plan; any others say what to change. As JSON: `{"review": []}`."""

    review: list[Message]

    @staticmethod
    def approve() -> MagenticPlanReviewResponse:
        return MagenticPlanReviewResponse([])

    @staticmethod
    def revise(feedback: Feedback) -> MagenticPlanReviewResponse:
        """Raises ValueError where nothing is said: that would approve the plan."""
        review = as_messages(feedback)
        if not any(one.text.strip() for one in review):
            raise ValueError("A plan is sent back with what is wrong with it, got no text. To agree: approve().")
        return MagenticPlanReviewResponse(review)

    @property
    def is_approved(self) -> bool:
        return not self.review


class MagenticPlanReviewRequest(msgspec.Struct, frozen=True):
    """Asks for a review of the plan. Answer with `run(responses={request.request_id: request.approve()})`."""

    plan: Message
    current_progress: MagenticProgressLedger | None = None
    """The last judgement; None before anybody has worked."""
    is_stalled: bool = False
    """Whether the plan takes the place of one that led nowhere."""
    request_id: str = ""

    def approve(self) -> MagenticPlanReviewResponse:
        """Go on by this plan."""
        return MagenticPlanReviewResponse.approve()

    def revise(self, feedback: Feedback) -> MagenticPlanReviewResponse:
        """Have another plan made, with this in mind; it will be asked about again."""
        return MagenticPlanReviewResponse.revise(feedback)


NO_DESCRIPTION = "(no description: the name says what they do)"


class MagenticAgentExecutor(AgentExecutor):
    """An agent of the team. When the work begins anew it gets a new session, and knows nothing of the old one."""

    @handler
    async def forget(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        ctx.private.clear()
        # Another id too: whoever keeps conversations by it must not find the old one.
        ctx.private["session"] = AgentSession(session_id=f"{session_id_for(ctx)}/{signal.reset_count}")


@dataclass(frozen=True)
class Member:
    """One of the team, as the orchestrator knows it."""

    name: str
    description: str
    is_asked_at_once: bool
    """With one AgentExecutorRequest. Others are told what was said, and then that it is their turn."""
    can_forget: bool

    async def ask(self, unheard: Sequence[Message], instruction: str, ctx: WorkflowContext[Any, Any]) -> None:
        if self.is_asked_at_once:
            asked = Message("user", instruction, MAGENTIC_MANAGER_NAME)
            await ctx.send_message(AgentExecutorRequest([*unheard, asked]), target_id=self.name)
            return
        await ctx.send_message(GroupChatParticipantMessage(list(unheard)), target_id=self.name)
        await ctx.send_message(GroupChatRequestMessage(instruction), target_id=self.name)


def member_of(executor: Executor, description: str | None) -> Member:
    """Raises TypeError for an executor that could not be asked."""

    def takes(kind: type) -> bool:
        return any(is_type_compatible(kind, one) for one in executor.input_types)

    is_asked_at_once = takes(AgentExecutorRequest)
    if not is_asked_at_once and not (takes(GroupChatParticipantMessage) and takes(GroupChatRequestMessage)):
        raise TypeError(
            f"Executor {executor.id!r} has no handler for AgentExecutorRequest, with which a Magentic team is asked, "
            "nor for GroupChatParticipantMessage and GroupChatRequestMessage in its place."
        )
    return Member(executor.id, description or NO_DESCRIPTION, is_asked_at_once, takes(MagenticResetSignal))
