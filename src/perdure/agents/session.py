"""AgentSession: a conversation that goes on from one turn to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self
from uuid import uuid4

import msgspec

from perdure.agents.message import Message
from perdure.agents.serialised import read_value, told_value
from perdure.errors import UnreadableValue
from perdure.isolation import isolated


class AgentSession(msgspec.Struct, kw_only=True, omit_defaults=True):
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

    def copy(self, *, session_id: str | None = None) -> AgentSession:
        """One that goes its own way from here."""
        return AgentSession(
            session_id=session_id or self.session_id,
            messages=list(self.messages),
            service_session_id=self.service_session_id,
            state=isolated(self.state),
        )

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON has."""
        told = {"type": "session", "session_id": self.session_id, "service_session_id": self.service_session_id}
        told |= {"state": told_value(self.state, "AgentSession.state")}
        return told | {"messages": [one.to_dict() for one in self.messages]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for what is none."""
        if not isinstance(data, Mapping):
            raise ValueError(f"No AgentSession: expected a dict, got {data!r}.")
        try:
            return cls(
                session_id=msgspec.convert(data["session_id"], str),
                messages=[Message.from_dict(one) for one in data.get("messages") or ()],
                service_session_id=msgspec.convert(data.get("service_session_id"), str | None),
                state=msgspec.convert(read_value(data.get("state") or {}, "AgentSession.state"), dict[str, Any]),
            )
        except (KeyError, msgspec.ValidationError, UnreadableValue) as error:
            raise ValueError(f"No AgentSession: {error}") from error
