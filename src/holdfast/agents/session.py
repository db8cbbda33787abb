"""AgentSession: a conversation that goes on from one turn to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self
from uuid import uuid4

import msgspec

from holdfast.agents.message import Message


class AgentSession(msgspec.Struct, kw_only=True):
    """The messages of a conversation, in order. Only ever added to: what a checkpoint refers to stays as it was.

    An agent that is run with a session knows what was said before, and adds what is said now.
    """

    session_id: str = msgspec.field(default_factory=lambda: str(uuid4()))
    messages: list[Message] = msgspec.field(default_factory=list)
    service_session_id: str | None = None
    """Of a conversation that the model's service keeps."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """Whatever else an agent keeps from turn to turn."""

    @property
    def version(self) -> int:
        """How many messages it has."""
        return len(self.messages)

    def add(self, messages: Iterable[Message]) -> None:
        self.messages.extend(messages)

    def copy(self) -> AgentSession:
        """One that goes its own way from here."""
        return AgentSession(
            session_id=self.session_id,
            messages=list(self.messages),
            service_session_id=self.service_session_id,
            state=dict(self.state),
        )

    def to_dict(self) -> dict[str, Any]:
        return {"type": "session", **msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return msgspec.convert(data, cls)
