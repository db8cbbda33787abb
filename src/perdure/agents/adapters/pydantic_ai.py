"""Agents of pydantic-ai, with their own model and tools, recorded call by call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.tools import DeferredToolRequests

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.pydantic.agent import OutputMode, output_spec, value_types
from perdure.agents.pydantic.toolset import toolset_of
from perdure.agents.pydantic.turn import PydanticTurn, TurnSetting
from perdure.agents.tools import as_tool
from perdure.graph.sub_workflow import agent_name

RUN_OPTIONS = ("deps", "model_settings", "usage_limits", "metadata", "instructions")
"""Arguments that are passed on to its `run`."""


class PydanticAgent(RecordingAgent):
    """Runs an agent of pydantic-ai with the messages of the session."""

    def __init__(self, agent: AbstractAgent[Any, Any]) -> None:
        description = agent.description if isinstance(agent.description, str) else None
        super().__init__(agent_name(agent), description=description)
        if agent.model is None:
            raise ValueError(f"The agent {self.name!r} of pydantic-ai has no model: Agent('openai:...', name=...).")
        self.agent = agent
        self.value_types = value_types(agent.output_type)

    async def turn(
        self,
        messages: list[Message],
        session: AgentSession | None,
        *,
        tools: Iterable[Any] = (),
        response_format: Any = None,
        output_mode: OutputMode | None = None,
        **kwargs: Any,
    ) -> AgentResponse:
        own = {tool.name: tool for tool in map(as_tool, tools)}
        options = {name: kwarg for name, kwarg in kwargs.items() if name in RUN_OPTIONS}
        more = (toolset_of(own.values(), max_retries=1),) if own else ()
        setting = TurnSetting(
            name=self.name,
            id=self.id,
            agent=self.agent,
            model=self.agent.model or "",
            toolsets=(*self.agent.toolsets, *more),
            tools=own,
            output_type=self._output_type(response_format, output_mode),
            has_value=response_format is not None or self.agent.output_type is not str,
            usage_limits=options.pop("usage_limits", None),
            options=options,
        )
        return await PydanticTurn(setting).take([*(session.messages if session is not None else ()), *messages])

    def _output_type(self, response_format: Any, output_mode: OutputMode | None) -> Any:
        """Its own output type, with deferred calls. An agent with output validators does not allow another type."""
        if response_format is not None:
            return output_spec(response_format, output_mode)
        own = self.agent.output_type
        several = own if isinstance(own, (list, tuple)) else (own,)
        is_fixed = isinstance(self.agent, Agent) and bool(getattr(self.agent, "_output_validators", ()))
        return None if is_fixed or DeferredToolRequests in several else [*several, DeferredToolRequests]


def adapt(agent: AbstractAgent[Any, Any]) -> PydanticAgent:
    return PydanticAgent(agent)
