"""What may stand in a graph: executors, workflows, agents, and functions that make one of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeGuard
from uuid import UUID

from perdure.graph.executor import Executor
from perdure.graph.graph import Node
from perdure.graph.sub_workflow import WorkflowExecutor, find_graph


def agent_name(agent: Any) -> str:
    name = getattr(agent, "name", None) or getattr(agent, "id", None)
    if not isinstance(name, str) or not name or _is_drawn(name):
        raise ValueError(f"The agent {agent!r} has neither a name nor an id. Checkpoints need one that stays the same.")
    return name


def _is_drawn(name: str) -> bool:
    """Whether it is a UUID, which is another one in each process."""
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def resolve_agent_id(agent: Any) -> str:
    """The id of the executor that an agent stands in: its name or, without one, its id."""
    return agent_name(agent)


def is_agent(thing: object) -> bool:
    return (
        not isinstance(thing, (type, Executor))
        and callable(getattr(thing, "run", None))
        and (hasattr(thing, "name") or hasattr(thing, "id"))
    )


AgentHost = Callable[[Any], Executor]
"""Makes the executor that an agent stands in."""


def node_of(thing: Any, host: AgentHost | None) -> Node:
    """The node for an executor, an agent, or a factory of one. Raises TypeError for anything else."""
    if isinstance(thing, Executor):
        if not hasattr(thing, "table"):
            raise TypeError(
                f"{type(thing).__qualname__} did not call super().__init__(id), so it has no handlers. Call it in "
                "__init__ (in a dataclass: in __post_init__)."
            )
        return Node(thing, thing.fresh)
    graph = find_graph(thing)
    if graph is not None:
        name = graph.name
        return Node(WorkflowExecutor(thing, name), lambda: WorkflowExecutor(thing, name))
    if is_agent(thing) and host is not None:
        return Node(host(thing), lambda: host(thing))
    if _is_factory(thing):
        return Node(_made_by(thing, host), lambda: _made_by(thing, host))
    raise TypeError(
        f"Expected an Executor, an agent (something with run() and a name), or a function that makes one, got "
        f"{thing!r}."
    )


def _is_factory(thing: object) -> TypeGuard[Callable[[], Any]]:
    return callable(thing) and not inspect.iscoroutinefunction(thing)


def _made_by(factory: Callable[[], Any], host: AgentHost | None) -> Executor:
    try:
        made = factory()
    except TypeError as error:
        raise TypeError(f"The factory {factory!r} could not be called without arguments: {error}") from error
    if isinstance(made, Executor):
        return made
    if is_agent(made) and host is not None:
        return host(made)
    raise TypeError(f"The factory {factory!r} made {made!r}, expected an Executor or an agent.")
