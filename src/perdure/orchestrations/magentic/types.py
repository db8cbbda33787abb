"""The data of a Magentic team: ledgers, the conversation with its counts, plan reviews, and its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self, TypeAlias

import msgspec

from perdure.agents.conversation.content import JsonStruct
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest, session_id_for
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor, accepts
from perdure.graph.handlers import handler
from perdure.orchestrations.group_chat.types import GroupChatParticipantMessage, GroupChatRequestMessage

MAGENTIC_MANAGER_NAME = "magentic_manager"
"""The author of the manager's messages to the team."""


class MagenticTaskLedger(JsonStruct, frozen=True):
    """The manager's facts about the task, and its plan."""

    facts: Message
    plan: Message


class MagenticProgressLedgerItem(JsonStruct, frozen=True):
    """One judgement, with its reason."""

    reason: str
    answer: str | bool


class MagenticProgressLedger(JsonStruct, frozen=True):
    """The manager's judgement of the progress before each turn."""

    is_request_satisfied: MagenticProgressLedgerItem
    is_in_loop: MagenticProgressLedgerItem
    is_progress_being_made: MagenticProgressLedgerItem
    next_speaker: MagenticProgressLedgerItem
    instruction_or_question: MagenticProgressLedgerItem

    @property
    def is_stalled(self) -> bool:
        """Whether this turn brought no progress."""
        return bool(self.is_in_loop.answer) or not self.is_progress_being_made.answer


# The form of a model's answer: a verdict is true or false, not a text. The reason comes first, so that the answer
# follows from it. The model reads the docstrings below.


class _BoolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    answer: bool


class _TextAnswer(msgspec.Struct, frozen=True, kw_only=True):
    reason: str | None = None
    answer: str | None = None
    """None if nothing is left to do."""


class ProgressAnswer(msgspec.Struct, frozen=True):
    """The state of the work, and the next speaker."""

    is_request_satisfied: _BoolAnswer
    is_in_loop: _BoolAnswer
    is_progress_being_made: _BoolAnswer
    next_speaker: _TextAnswer
    instruction_or_question: _TextAnswer

    def ledger(self) -> MagenticProgressLedger:
        parts = {name: getattr(self, name) for name in self.__struct_fields__}
        return MagenticProgressLedger(
            **{
                name: MagenticProgressLedgerItem(part.reason or "", "" if part.answer is None else part.answer)
                for name, part in parts.items()
            }
        )


class MagenticContext(msgspec.Struct):
    """The manager's input: the task, the team, the conversation, and counts."""

    task: str
    chat_history: list[Message] = msgspec.field(default_factory=list)
    participant_descriptions: dict[str, str] = msgspec.field(default_factory=dict)
    round_count: int = 0
    """How often progress was judged."""
    stall_count: int = 0
    """Turns without progress: each adds one, and each with progress takes one away."""
    reset_count: int = 0
    """How often the work was reset."""

    def reset(self) -> None:
        """Clear the conversation and the stalls. Task, team and rounds stay."""
        self.chat_history.clear()
        self.stall_count = 0
        self.reset_count += 1

    def clone(self, *, deep: bool = True) -> MagenticContext:
        """A copy; with `deep`, also of its lists."""
        copy = msgspec.structs.replace(self)
        if deep:
            copy.chat_history = list(self.chat_history)
            copy.participant_descriptions = dict(self.participant_descriptions)
        return copy

    def to_dict(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]  # a Struct becomes a dict

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for invalid data."""
        try:
            return msgspec.convert(dict(data), cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"Not a {cls.__name__}: {error}") from error


class MagenticOrchestratorEventType(str, Enum):
    """What the manager has done."""

    PLAN_CREATED = "plan_created"
    REPLANNED = "replanned"
    PROGRESS_LEDGER_UPDATED = "progress_ledger_updated"


class MagenticOrchestratorEvent(msgspec.Struct, frozen=True):
    """The data of a `magentic_orchestrator` event."""

    event_type: MagenticOrchestratorEventType
    content: Message | MagenticProgressLedger


class MagenticResetSignal(msgspec.Struct, frozen=True):
    """Sent to the participants at a reset: a participant with a handler for it clears its conversation."""

    reset_count: int
    """The number of resets in this thread."""


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
    takes_requests = accepts(executor, AgentExecutorRequest)
    in_turns = (GroupChatParticipantMessage, GroupChatRequestMessage)
    if not takes_requests and not all(accepts(executor, kind) for kind in in_turns):
        raise TypeError(
            f"Executor {executor.id!r} has no handler for AgentExecutorRequest, which a Magentic team sends, "
            "nor for GroupChatParticipantMessage and GroupChatRequestMessage in its place."
        )
    return Member(executor.id, description or NO_DESCRIPTION, takes_requests, accepts(executor, MagenticResetSignal))
