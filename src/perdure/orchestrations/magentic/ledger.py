"""The data of a Magentic task: facts and plan, progress, and the conversation with its counts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Self

import msgspec

from perdure.agents.conversation.content import JsonStruct
from perdure.agents.conversation.message import Message

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
