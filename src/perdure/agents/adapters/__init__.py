"""Adapters for agents of other frameworks. Each module is imported with the first agent of its framework."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

ADAPTERS = {
    "agent_framework": "perdure.agents.adapters.agent_framework",
    "pydantic_ai": "perdure.agents.pydantic.agent",
    "agents": "perdure.agents.adapters.openai_agents",
    "langgraph": "perdure.agents.adapters.langgraph",
    "langchain_core": "perdure.agents.adapters.langgraph",
}
"""By the package of an agent's class: the module with its `adapt`."""


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
            adapter: Any = import_module(module)
            return adapter.adapt(agent)
    return agent
