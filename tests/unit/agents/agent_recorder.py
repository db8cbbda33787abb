"""Agents that record the messages they receive, turn by turn, and their sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.testing.scripted import ScriptedAgent


class AgentRecorder:
    def __init__(self) -> None:
        self.received: dict[str, list[list[str]]] = {}
        self.arguments: dict[str, list[dict[str, Any]]] = {}
        self.session_ids: list[str] = []

    def agent(self, name: str, replies: Sequence[Any], *, sees_session: bool = False, **options: Any) -> ScriptedAgent:
        """Return an agent that records. With `sees_session` the earlier messages of the session count as received."""
        received, arguments, recorder = self.received.setdefault(name, []), self.arguments.setdefault(name, []), self

        class Recorded(ScriptedAgent):
            async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
                before = session.messages if session is not None and sees_session else []
                received.append([message.text for message in (*before, *messages)])
                arguments.append({key: value for key, value in kwargs.items() if key.endswith("kwargs")})
                recorder.session_ids += [session.session_id] if session is not None else []
                return await super().turn(messages, session, **kwargs)

        return Recorded(name, replies, **options)
