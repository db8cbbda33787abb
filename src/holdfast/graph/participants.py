"""What may stand in a graph: executors, workflows, agents, and functions that make one of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeGuard

from holdfast.graph.context import WorkflowContext
from holdfast.graph.executor import Executor
from holdfast.graph.graph import Node
from holdfast.graph.handlers import handler
from holdfast.graph.workflow_executor import WorkflowExecutor, find_graph


class AgentNode(Executor):
    """An agent as an executor: it is given the message, and its response goes on and out."""

    may_end_here = True
    """A terminal agent's response has been yielded already, so nobody needs to be told that no edge takes it."""

    def __init__(self, agent: Any, id: str | None = None) -> None:
        super().__init__(id or agent_name(agent))
        self.agent = agent

    @handler(input=object, output=object, workflow_output=object)
    async def respond(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        response = await self.agent.run(message)
        await ctx.yield_output(response)
        await ctx.send_message(response)


def agent_name(agent: Any) -> str:
    name = getattr(agent, "name", None) or getattr(agent, "id", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"The agent {agent!r} has neither a name nor an id. Checkpoints need one that stays the same.")
    return name


def is_agent(thing: object) -> bool:
    return (
        not isinstance(thing, (type, Executor))
        and callable(getattr(thing, "run", None))
        and (hasattr(thing, "name") or hasattr(thing, "id"))
    )


def node_of(thing: Any) -> Node:
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
    if is_agent(thing):
        return Node(AgentNode(thing), lambda: AgentNode(thing))
    if _is_factory(thing):
        return Node(_made_by(thing), lambda: _made_by(thing))
    raise TypeError(
        f"Expected an Executor, an agent (something with run() and a name), or a function that makes one, got "
        f"{thing!r}."
    )


def _is_factory(thing: object) -> TypeGuard[Callable[[], Any]]:
    return callable(thing) and not inspect.iscoroutinefunction(thing)


def _made_by(factory: Callable[[], Any]) -> Executor:
    try:
        made = factory()
    except TypeError as error:
        raise TypeError(f"The factory {factory!r} could not be called without arguments: {error}") from error
    if isinstance(made, Executor):
        return made
    if is_agent(made):
        return AgentNode(made)
    raise TypeError(f"The factory {factory!r} made {made!r}, expected an Executor or an agent.")
