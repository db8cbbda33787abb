"""The data of a Magentic team: ledgers, the conversation with its counts, plan reviews; and its managers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Self, TypeAlias

import msgspec

from perdure.agents.conversation.json_struct import JsonStruct
from perdure.agents.conversation.message import Message, as_messages
from perdure.errors import WorkflowRunnerException

MAGENTIC_MANAGER_NAME = "magentic_manager"
"""The author of the manager's messages to the team."""


class _Ledger(JsonStruct):
    def _encode_field(self, name: str, value: Any) -> Any:
        return value.to_dict()


class MagenticTaskLedger(_Ledger):
    """The manager's facts about the task, and its plan."""

    facts: Message
    plan: Message


class MagenticProgressLedgerItem(JsonStruct):
    """One judgement, with its reason."""

    reason: str
    answer: str | bool


class MagenticProgressLedger(_Ledger):
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


class BoolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    answer: bool


class TextAnswer(msgspec.Struct, frozen=True, kw_only=True):
    reason: str | None = None
    answer: str | None = None
    """None if nothing is left to do."""


class ProgressAnswer(msgspec.Struct, frozen=True):
    """The state of the work, and the next speaker."""

    is_request_satisfied: BoolAnswer
    is_in_loop: BoolAnswer
    is_progress_being_made: BoolAnswer
    next_speaker: TextAnswer
    instruction_or_question: TextAnswer

    def ledger(self) -> MagenticProgressLedger:
        items = {
            name: MagenticProgressLedgerItem(part.reason or "", "" if part.answer is None else part.answer)
            for name, part in msgspec.structs.asdict(self).items()
        }
        return MagenticProgressLedger(**items)


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
    """The act of the manager."""

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


class MagenticManagerBase(ABC):
    """Base of managers: a subclass plans, judges the progress and gives the answer.

    Each method gets its own copy of the context, for reading. State in `self` between calls is saved by
    `on_checkpoint_save` and `on_checkpoint_restore`, as plain data. Like an executor, the manager itself serves the
    first thread, and a copy each other one. Each call is recorded as a whole, and a recorded call is not repeated.
    """

    value_types: tuple[Any, ...] = ()
    """Types of its state, and of results of its agent's tools: a checkpoint may hold them."""

    def __init__(
        self, *, max_stall_count: int = 3, max_reset_count: int | None = None, max_round_count: int | None = None
    ) -> None:
        self.max_stall_count = check_number("max_stall_count", max_stall_count, minimum=0)
        self.max_reset_count = (
            None if max_reset_count is None else check_number("max_reset_count", max_reset_count, minimum=0)
        )
        self.max_round_count = (
            None if max_round_count is None else check_number("max_round_count", max_round_count, minimum=1)
        )

    @abstractmethod
    async def plan(self, magentic_context: MagenticContext) -> Message:
        """A first plan, for the team."""

    @abstractmethod
    async def replan(self, magentic_context: MagenticContext) -> Message:
        """Another plan, after a stall or a review. The conversation is complete."""

    @abstractmethod
    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        """The state of the work, and the next speaker."""

    @abstractmethod
    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        """The answer from the conversation so far."""

    def on_checkpoint_save(self) -> dict[str, Any]:
        """The state of `self` to save in this thread."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Restore the saved state."""
        return


def check_number(name: str, value: int, *, minimum: int) -> int:
    if type(value) is not int or value < minimum:
        raise ValueError(f"{name} is a number of at least {minimum}, got {value!r}.")
    return value


class MagenticState(msgspec.Struct):
    """The state of a thread, in the orchestrator's private state."""

    context: MagenticContext
    plan: Message | None = None
    """The newest plan; part of the conversation once the team works on it."""
    progress: MagenticProgressLedger | None = None
    manager: dict[str, Any] = msgspec.field(default_factory=dict)
    """The manager's state."""
    begins_at: int = 0
    """The index of the plan in the conversation: participants get the messages from there on."""
    seen: dict[str, int] = msgspec.field(default_factory=dict)
    """How many messages of the conversation each participant has seen."""
    has_begun: bool = False
    """Whether a participant has spoken since the last plan."""
    has_work: bool = False
    """Whether a participant has spoken on this task."""
    resets: int = 0
    """Over all tasks of the thread."""
    dialogue: list[Message] = msgspec.field(default_factory=list)
    """Messages of people to the team, and its answers: tasks, remarks, reviews. A reset keeps them."""
    is_done: bool = False

    def add_from_user(self, messages: list[Message]) -> None:
        self.context.chat_history += messages
        self.dialogue += messages

    def enter_plan(self) -> None:
        """The team works on the plan from here on."""
        self.begins_at = len(self.context.chat_history)
        self.seen, self.has_begun = {}, False
        if self.plan is not None:
            self.context.chat_history.append(self.plan)

    def reset(self) -> None:
        """Remove the team's messages; keep those of people."""
        self.context.reset()
        self.context.chat_history += self.dialogue
        self.resets += 1


class ManagerOutcome(msgspec.Struct, frozen=True):
    """The recorded result of a call of the manager."""

    value: Any
    manager: dict[str, Any]


def check_result(value: object, expected: type, source: str, task: str) -> None:
    """Raises an error for a result of the manager that the team cannot use. `source` names its method."""
    if not isinstance(value, expected):
        raise TypeError(f"{source} returned {value!r}, expected a {expected.__name__}.")
    if isinstance(value, Message) and not value.text.strip():
        raise WorkflowRunnerException(
            f"{source} returned a message without text for the task {task!r}. Nothing was sent to the team, and the "
            "thread is unchanged. Correct the manager, then resume."
        )
