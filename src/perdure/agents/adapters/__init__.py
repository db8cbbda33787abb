"""Agents of other frameworks, each in one module, which is imported when one of its agents is used."""

from __future__ import annotations

import sys
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


_MARKS = {"agents": "Runner"}
"""What a package must have to be the one that is meant: many call one of their own `agents`."""


def adapted(agent: Any) -> Any:
    """The agent with the protocol of `SupportsAgentRun`; as it is, if it needs nothing."""
    if getattr(agent, "records_itself", None) is not None:
        return agent
    for kind in type(agent).__mro__:
        package = kind.__module__.partition(".")[0]
        module = ADAPTERS.get(package)
        if module is not None and hasattr(sys.modules.get(package), _MARKS.get(package, "__name__")):
            adapter: Any = import_module(f"perdure.agents.adapters.{module}")
            return adapter.adapt(agent)
    return agent
