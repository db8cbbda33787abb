"""What a Magentic team knows of its task: facts and plan, progress, and the conversation with its counts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Self

import msgspec

from perdure.agents.conversation.content import Serialised
from perdure.agents.conversation.message import Message

MAGENTIC_MANAGER_NAME = "magentic_manager"
"""The author of what the manager says to the team."""


class MagenticTaskLedger(Serialised, frozen=True):
    """What the manager knows of the task, and how it is to be done."""

    facts: Message
    plan: Message


class MagenticProgressLedgerItem(Serialised, frozen=True):
    """One judgement, with its reason."""

    reason: str
    answer: str | bool


class MagenticProgressLedger(Serialised, frozen=True):
    """Where the work stands, as the manager judges it before each turn."""

    is_request_satisfied: MagenticProgressLedgerItem
    is_in_loop: MagenticProgressLedgerItem
    is_progress_being_made: MagenticProgressLedgerItem
    next_speaker: MagenticProgressLedgerItem
    instruction_or_question: MagenticProgressLedgerItem

    @property
    def is_stalled(self) -> bool:
        """Whether this turn brought nothing."""
        return bool(self.is_in_loop.answer) or not self.is_progress_being_made.answer


# As a model is asked for them: a verdict is true or false, and no text that says so; the reason comes first, so that
# the answer follows from it. What is written below is told to the model.


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    answer: bool


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    reason: str | None = None
    answer: str | None = None
    """None where nothing is left to be done."""


class ProgressAnswer(msgspec.Struct, frozen=True):
    """Where the work stands, and who speaks next."""

    is_request_satisfied: _Verdict
    is_in_loop: _Verdict
    is_progress_being_made: _Verdict
    next_speaker: _Choice
    instruction_or_question: _Choice

    def ledger(self) -> MagenticProgressLedger:
        parts = {name: getattr(self, name) for name in self.__struct_fields__}
        return MagenticProgressLedger(
            **{
                name: MagenticProgressLedgerItem(part.reason or "", "" if part.answer is None else part.answer)
                for name, part in parts.items()
            }
        )


class MagenticContext(msgspec.Struct):
    """What a manager is told: the task, the team, all that was said, and how often it went round."""

    task: str
    chat_history: list[Message] = msgspec.field(default_factory=list)
    participant_descriptions: dict[str, str] = msgspec.field(default_factory=dict)
    round_count: int = 0
    """How often progress was judged."""
    stall_count: int = 0
    """Turns without progress: each adds one, and each with progress takes one away."""
    reset_count: int = 0
    """How often the work was begun anew."""

    def reset(self) -> None:
        """Forget the conversation and the stalls. Task, team and rounds stay."""
        self.chat_history.clear()
        self.stall_count = 0
        self.reset_count += 1

    def clone(self, *, deep: bool = True) -> MagenticContext:
        """Another one: what is done to it, or with `deep` to its lists, is not done to this one."""
        made = msgspec.structs.replace(self)
        if deep:
            made.chat_history = list(self.chat_history)
            made.participant_descriptions = dict(self.participant_descriptions)
        return made

    def to_dict(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]  # a Struct becomes a dict

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for what is none."""
        try:
            return msgspec.convert(dict(data), cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"No {cls.__name__}: {error}") from error


class MagenticOrchestratorEventType(str, Enum):
    """What the manager did."""

    PLAN_CREATED = "plan_created"
    REPLANNED = "replanned"
    PROGRESS_LEDGER_UPDATED = "progress_ledger_updated"


class MagenticOrchestratorEvent(msgspec.Struct, frozen=True):
    """The data of a `magentic_orchestrator` event."""

    event_type: MagenticOrchestratorEventType
    content: Message | MagenticProgressLedger


class MagenticResetSignal(msgspec.Struct, frozen=True):
    """Told to the participants when the work begins anew: whoever takes it forgets what was said."""

    reset_count: int
    """How often that was, in this thread."""
