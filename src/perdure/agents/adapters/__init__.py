"""Adapters for agents of other frameworks. Each module is imported with the first agent of its framework."""

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
"""By the package of an agent's class: the module here with its `adapt`."""


_MARKS = {"agents": "Runner"}
"""A name that identifies the package: other projects have a package `agents` too."""


def adapt_agent(agent: Any) -> Any:
    """The agent with the protocol of `SupportsAgentRun`; unchanged if it has it already."""
    if getattr(agent, "records_itself", None) is not None:
        return agent
    for kind in type(agent).__mro__:
        package = kind.__module__.partition(".")[0]
        module = ADAPTERS.get(package)
        if module is not None and hasattr(sys.modules.get(package), _MARKS.get(package, "__name__")):
            adapter: Any = import_module(f"perdure.agents.adapters.{module}")
            return adapter.adapt(agent)
    return agent
