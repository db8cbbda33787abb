"""What a group chat is made of: its state, its messages and events, and what an orchestrator decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import msgspec

from perdure.agents.conversation.message import Message
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest
from perdure.graph.executor import Executor

TerminationCondition: TypeAlias = Callable[[list[Message]], "bool | Awaitable[bool]"]
"""Whether the conversation is over."""


@dataclass(frozen=True, slots=True)
class GroupChatState:
    """What the next speaker is chosen by."""

    current_round: int
    """How many have been asked since the last input."""
    participants: dict[str, str]
    """Descriptions by name, in their order."""
    conversation: list[Message]


GroupChatSelectionFunction: TypeAlias = Callable[[GroupChatState], "str | Awaitable[str]"]
"""The name of the next speaker."""


class AgentOrchestrationOutput(msgspec.Struct, frozen=True):
    """What an orchestrator decides."""

    terminate: bool
    """Whether the conversation ends here."""
    reason: str
    next_speaker: str | None = None
    """Needed, unless the conversation ends."""
    final_message: str | None = None
    """What it ends with."""


# ---------------------------------------------------------------- between orchestrator and participants


class GroupChatParticipantMessage(msgspec.Struct, frozen=True):
    """What was said since a participant was last told; for executors. Agents get an AgentExecutorRequest."""

    messages: list[Message]


class GroupChatRequestMessage(msgspec.Struct, frozen=True):
    """It is the participant's turn; for executors."""

    additional_instruction: str | None = None
    metadata: dict[str, Any] | None = None


class GroupChatResponseMessage(msgspec.Struct, frozen=True):
    """What an executor says in its turn."""

    message: Message


GroupChatRequest: TypeAlias = AgentExecutorRequest | GroupChatRequestMessage | GroupChatParticipantMessage


class GroupChatRequestSentEvent(msgspec.Struct, frozen=True):
    """Data of a `group_chat` event: it is somebody's turn."""

    round_index: int
    """How many were asked before."""
    participant_name: str


class GroupChatResponseReceivedEvent(msgspec.Struct, frozen=True):
    """Data of a `group_chat` event: somebody has spoken."""

    round_index: int
    """How many were asked until then."""
    participant_name: str


# ---------------------------------------------------------------- who takes part, and how far it is


class ParticipantRegistry:
    """Who takes part in a group chat."""

    NO_DESCRIPTION = "(no description: go by the name)"

    def __init__(self, participants: Iterable[Executor]) -> None:
        known = {participant.id: participant for participant in participants}
        self._agents = frozenset(name for name, one in known.items() if isinstance(one, AgentExecutor))
        self._descriptions = {
            name: getattr(one, "description", None) or self.NO_DESCRIPTION for name, one in known.items()
        }

    @property
    def participants(self) -> dict[str, str]:
        """Descriptions by name."""
        return dict(self._descriptions)

    def is_agent(self, name: str) -> bool:
        return name in self._agents


class OrchestrationState(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How far an orchestration is. An orchestrator keeps one in each thread, and so in each checkpoint."""

    conversation: list[Message] = []  # msgspec copies it
    round_index: int = 0
    orchestrator_name: str = ""
    """Where it is not the orchestrator's id."""
    metadata: dict[str, Any] = {}
    """Whatever else an orchestrator keeps."""
    task: Message | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as they are, without those that say nothing."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value not in ("", None)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{name: data[name] for name in cls.__struct_fields__ if name in data})
