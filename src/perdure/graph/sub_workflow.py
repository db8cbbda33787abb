"""Participants of a graph beside executors: workflows as executors of others, agents, and factories."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.errors import AnswerRejected
from perdure.events import WorkflowEvent
from perdure.graph.coercion import coerce
from perdure.graph.executor import Executor
from perdure.graph.graph import Graph, Node
from perdure.graph.handlers import Handler, HandlerTable, Returns
from perdure.graph.policy import STOP, RetryPolicy, Seconds


@dataclass(frozen=True)
class SubWorkflowRequestMessage:
    """A request of a sub-workflow, sent to the executor of the parent that accepts it."""

    source_event: WorkflowEvent
    """The `request_info` event of the child."""
    executor_id: str
    """The WorkflowExecutor: send the answer there, `ctx.send_message(answer, target_id=request.executor_id)`."""

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """The answer. Raises AnswerRejected if it has another type than requested."""
        event = self.source_event
        try:
            value = coerce(data, event.response_type)
        except (ValueError, TypeError) as error:
            raise AnswerRejected(str(event.request_id), event.response_type, data, str(error)) from error
        return SubWorkflowResponseMessage(value, event)


@dataclass(frozen=True)
class SubWorkflowResponseMessage:
    """The answer to a SubWorkflowRequestMessage, for the child that asked."""

    data: Any
    source_event: WorkflowEvent


class WorkflowExecutor(Executor):
    """Runs a workflow as part of another: each message starts a child.

    A child runs in its parent's thread: every superstep of the thread advances all children, and is committed with
    them. Outputs of the child are sent as messages, or yielded by the parent with `allow_direct_output`. Its requests
    go to an executor of the parent as SubWorkflowRequestMessage, or to the outside with `propagate_request`.
    """

    is_stateless = True

    def __init__(
        self,
        workflow: Any,
        id: str,
        allow_direct_output: bool = False,
        propagate_request: bool = False,
        *,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> None:
        super().__init__(id, defer_discovery=True, retry=retry, timeout=timeout, on_error=on_error)
        self.workflow = workflow
        self.graph = graph_of(workflow)
        self.allow_direct_output = allow_direct_output
        self.propagate_request = propagate_request
        self.table = HandlerTable(id, _handlers(self.graph, allow_direct_output, propagate_request))


def graph_of(workflow: Any) -> Graph:
    """The graph of a Workflow, or of a function workflow. Raises TypeError for anything else."""
    graph = find_graph(workflow)
    if graph is None:
        raise TypeError(f"WorkflowExecutor takes a Workflow, or a function marked @workflow, got {workflow!r}.")
    return graph


def find_graph(thing: Any) -> Graph | None:
    graph = getattr(thing, "graph", None) if not isinstance(thing, (type, Executor)) else None
    return graph if isinstance(graph, Graph) else None


def _handlers(graph: Graph, allow_direct_output: bool, propagate_request: bool) -> list[Handler]:
    yielded = graph.output_types
    sent = () if allow_direct_output else yielded
    # A workflow without declared outputs may send any type: requests must not become its only declared type.
    if not propagate_request and yielded:
        sent = (*sent, SubWorkflowRequestMessage)
    outputs = yielded if allow_direct_output else ()
    start = graph.executors[graph.start_executor_id]
    # Answers to the child's own children do not come from outside.
    kinds = [handler.message_type for handler in start.table.handlers]
    accepted = [kind for kind in kinds if kind is not SubWorkflowResponseMessage]
    return [
        *(Handler("start_child", _start_child, kind, None, sent, outputs, True, Returns.NOTHING) for kind in accepted),
        Handler("answer_child", _answer_child, SubWorkflowResponseMessage, None, (), (), True, Returns.NOTHING),
    ]


# The engine's context has a `delivery` beside the members of WorkflowContext.


async def _start_child(executor: WorkflowExecutor, message: Any, ctx: Any) -> None:
    ctx.delivery.start_child()


async def _answer_child(executor: WorkflowExecutor, answer: SubWorkflowResponseMessage, ctx: Any) -> None:
    ctx.delivery.answer_child(answer)


def is_agent(thing: object) -> bool:
    return (
        not isinstance(thing, (type, Executor))
        and callable(getattr(thing, "run", None))
        and (hasattr(thing, "name") or hasattr(thing, "id"))
    )


AgentHost = Callable[[Any], Executor]
"""Makes the executor of an agent."""


def node_of(thing: Any, host: AgentHost) -> Node:
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
        child = WorkflowExecutor(thing, graph.name)
        return Node(child, child.fresh)
    if is_agent(thing):
        executor = host(thing)
        return Node(executor, executor.fresh)
    if callable(thing) and not inspect.iscoroutinefunction(thing):
        return Node(_make_executor(thing, host), lambda: _make_executor(thing, host))
    raise TypeError(
        f"Expected an Executor, an agent (something with run() and a name), or a function that makes one, got "
        f"{thing!r}."
    )


def _make_executor(factory: Callable[[], Any], host: AgentHost) -> Executor:
    try:
        product = factory()
    except TypeError as error:
        raise TypeError(f"The factory {factory!r} could not be called without arguments: {error}") from error
    if isinstance(product, Executor):
        return product
    if is_agent(product):
        return host(product)
    raise TypeError(f"The factory {factory!r} returned {product!r}, expected an Executor or an agent.")
