"""Agents of other frameworks, each in one module, which is imported when one of its agents is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ADAPTERS = {
    "agent_framework": "agent_framework",
    "pydantic_ai": "pydantic_ai",
    "agents": "openai_agents",
    "langgraph": "langgraph",
    "langchain_core": "langgraph",
}
"""By the package that an agent's class comes from: the module here that has its `adapt`."""


def adapted(agent: Any) -> Any:
    """The agent with the protocol of `SupportsAgentRun`; as it is, if it needs nothing."""
    if getattr(agent, "records_itself", None) is not None:
        return agent
    for kind in type(agent).__mro__:
        module = ADAPTERS.get(kind.__module__.partition(".")[0])
        if module is not None:
            adapter: Any = import_module(f"holdfast.agents.adapters.{module}")
            return adapter.adapt(agent)
    return agent
