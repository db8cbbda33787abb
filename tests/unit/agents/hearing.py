"""Agents that are overheard: what each was told, turn by turn, and in which session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.testing.scripted import ScriptedAgent


class Hearing:
    def __init__(self) -> None:
        self.told: dict[str, list[list[str]]] = {}
        self.arguments: dict[str, list[dict[str, Any]]] = {}
        self.session_ids: list[str] = []

    def agent(self, name: str, replies: Sequence[Any], *, sees_session: bool = False, **options: Any) -> ScriptedAgent:
        """With `sees_session` all that was said before counts as told."""
        told, arguments, hearing = self.told.setdefault(name, []), self.arguments.setdefault(name, []), self

        class Overheard(ScriptedAgent):
            async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
                before = session.messages if session is not None and sees_session else []
                told.append([one.text for one in (*before, *messages)])
                arguments.append({key: value for key, value in kwargs.items() if key.endswith("kwargs")})
                hearing.session_ids += [session.session_id] if session is not None else []
                return await super().turn(messages, session, **kwargs)

        return Overheard(name, replies, **options)
