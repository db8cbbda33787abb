"""What is said in a handoff: to the user, to whoever watches, and between the agents."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from perdure.agents.message import Message, as_messages
from perdure.agents.response import AgentResponse

UserAnswer: TypeAlias = list[str | Message] | Message | str
"""What a HandoffAgentUserRequest is answered with: messages, as `create_response` makes them, or just a text."""


class HandoffSentEvent(msgspec.Struct, frozen=True):
    """The data of a `handoff_sent` event."""

    source: str
    target: str


class HandoffAgentUserRequest(msgspec.Struct, frozen=True):
    """An agent has answered without a handoff: it is the user's turn."""

    agent_response: AgentResponse

    @staticmethod
    def create_response(response: Any) -> list[Message]:
        """What the user says: a text, a Message, or several. Raises ValueError for nothing, which would be
        `terminate()`."""
        said = as_messages(response)
        if not said:
            raise ValueError("An answer without messages would end the conversation: say so with terminate().")
        return said

    @staticmethod
    def terminate() -> list[Message]:
        """Nothing more: the conversation ends."""
        return []


class TakeTurn(msgspec.Struct, frozen=True):
    """It is an agent's turn: all that it has not heard yet."""

    messages: list[Message]


class TurnTaken(msgspec.Struct, frozen=True):
    """What an agent made of its turn."""

    agent: str
    response: AgentResponse
    target: str | None
    """Whom it hands off to."""
