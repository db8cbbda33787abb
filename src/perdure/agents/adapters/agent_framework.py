"""An agent of agent-framework-core: it is given its own types. A turn of it is recorded as a whole."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import agent_framework

from perdure.agents.adapters.framework_messages import put_in_session, told_to
from perdure.agents.base import BaseAgent
from perdure.agents.foreign import as_response, as_update
from perdure.agents.message import Message, as_messages
from perdure.agents.response import AgentResponse, AgentResponseUpdate
from perdure.agents.session import AgentSession
from perdure.agents.tools import as_tool
from perdure.graph.participants import agent_name

STATE = "agent_framework"
"""In the session's state: the session of the agent's own kind, as a dict."""


class FrameworkAgent(BaseAgent):
    """Gives the agent what it expects, and takes what it answers."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent_name(agent), description=getattr(agent, "description", None))
        self.agent = agent

    def run(
        self,
        messages: Any = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        tools: Iterable[Any] = (),
        response_format: Any = None,
        **kwargs: Any,
    ) -> Any:
        given = as_messages(messages)
        options = {name: one for name, one in kwargs.items() if name in inspect.signature(self.agent.run).parameters}
        more = [_as_their_tool(one) for one in tools]
        if more:
            options["tools"] = more
        if response_format is not None:
            options["options"] = {**options.get("options", {}), "response_format": response_format}
        return self._stream(given, session, options) if stream else self._run(given, session, options)

    async def _run(
        self, given: Sequence[Message], session: AgentSession | None, options: dict[str, Any]
    ) -> AgentResponse:
        own = self._own_session(session)
        response = as_response(await self.agent.run(self._told(given, session, own), session=own, **options), self.name)
        _keep(session, own)
        return response

    async def _stream(
        self, given: Sequence[Message], session: AgentSession | None, options: dict[str, Any]
    ) -> AsyncIterator[AgentResponseUpdate]:
        own = self._own_session(session)
        told = self._told(given, session, own)
        async for update in self.agent.run(told, stream=True, session=own, **options):
            yield as_update(update, self.name)
        _keep(session, own)

    def _told(self, given: Sequence[Message], session: AgentSession | None, own: Any) -> list[Any]:
        """What it is given, in its own types, with what people said of its calls in its own session. One that is new
        knows nothing yet: it is told what was said before, too."""
        before: Sequence[Message] = () if session is None else session.messages
        if session is not None and STATE not in session.state and session.service_session_id is None:
            before, given = (), [*before, *given]
        told, edited = told_to(self.name, before, given)
        if isinstance(self.agent, agent_framework.RawAgent):  # which takes the call as it was asked for
            told = put_in_session(edited, told, own)
        return [agent_framework.Message.from_dict(one.to_dict()) for one in told]

    def _own_session(self, session: AgentSession | None) -> Any:
        if session is None:
            return None
        kept = session.state.get(STATE)
        if kept is not None:
            return agent_framework.AgentSession.from_dict(kept)
        return agent_framework.AgentSession(
            session_id=session.session_id, service_session_id=session.service_session_id
        )


def _keep(session: AgentSession | None, own: Any) -> None:
    if session is not None:
        session.state[STATE] = own.to_dict()
        kept = own.service_session_id
        session.service_session_id = kept if isinstance(kept, str) else None


def _as_their_tool(given: Any) -> Any:
    """One of theirs as it is; one of ours as the function that it is made of."""
    if isinstance(given, agent_framework.FunctionTool):
        return given
    tool = as_tool(given)
    approval = "always_require" if tool.approval is True else "never_require"
    return agent_framework.tool(tool.function, name=tool.name, description=tool.description, approval_mode=approval)


def adapt(agent: Any) -> Any:
    return FrameworkAgent(agent)
