"""The types of a group chat: its state, its messages and events, and an orchestrator's decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import msgspec

from perdure.agents.conversation.message import Message
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest
from perdure.graph.executor import Executor

TerminationCondition: TypeAlias = Callable[[list[Message]], "bool | Awaitable[bool]"]
"""Whether the conversation has ended."""


@dataclass(frozen=True, slots=True)
class GroupChatState:
    """The input for the selection of the next speaker."""

    current_round: int
    """How many participants have spoken since the last input."""
    participants: dict[str, str]
    """Descriptions by name, in their order."""
    conversation: list[Message]


GroupChatSelectionFunction: TypeAlias = Callable[[GroupChatState], "str | Awaitable[str]"]
"""Returns the name of the next speaker."""


class AgentOrchestrationOutput(msgspec.Struct, frozen=True):
    """The decision of an orchestrator."""

    terminate: bool
    """Whether the conversation ends here."""
    reason: str
    next_speaker: str | None = None
    """Required unless the conversation ends."""
    final_message: str | None = None
    """The last message of the conversation."""


class GroupChatParticipantMessage(msgspec.Struct, frozen=True):
    """New messages for a participant that is an executor. Agents get an AgentExecutorRequest."""

    messages: list[Message]


class GroupChatRequestMessage(msgspec.Struct, frozen=True):
    """Asks a participant that is an executor to speak."""

    additional_instruction: str | None = None
    metadata: dict[str, Any] | None = None


class GroupChatResponseMessage(msgspec.Struct, frozen=True):
    """The message of an executor."""

    message: Message


GroupChatRequest: TypeAlias = AgentExecutorRequest | GroupChatRequestMessage | GroupChatParticipantMessage


class GroupChatRequestSentEvent(msgspec.Struct, frozen=True):
    """Data of a `group_chat` event: a participant was asked."""

    round_index: int
    """How many participants were asked before."""
    participant_name: str


class GroupChatResponseReceivedEvent(msgspec.Struct, frozen=True):
    """Data of a `group_chat` event: a participant has answered."""

    round_index: int
    """How many participants were asked until then."""
    participant_name: str


class ParticipantRegistry:
    """The participants of a group chat."""

    NO_DESCRIPTION = "(no description: go by the name)"

    def __init__(self, participants: Iterable[Executor]) -> None:
        executors = {participant.id: participant for participant in participants}
        self._agents = frozenset(name for name, executor in executors.items() if isinstance(executor, AgentExecutor))
        self._descriptions = {
            name: getattr(executor, "description", None) or self.NO_DESCRIPTION for name, executor in executors.items()
        }

    @property
    def participants(self) -> dict[str, str]:
        """Descriptions by name."""
        return dict(self._descriptions)

    def is_agent(self, name: str) -> bool:
        return name in self._agents


class OrchestrationState(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The state of an orchestration, stored by its orchestrator in each thread."""

    conversation: list[Message] = []  # msgspec copies it
    round_index: int = 0
    orchestrator_name: str = ""
    """Empty if it is the orchestrator's id."""
    metadata: dict[str, Any] = {}
    """Other values of an orchestrator."""
    task: Message | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, without empty ones."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value not in ("", None)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{name: data[name] for name in cls.__struct_fields__ if name in data})
