"""Graph: nodes and edges. The engine follows them (engine/thread/compiled.py). A node is an executor: also a workflow
as an executor of another, or that of an agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from perdure.errors import AnswerRejected
from perdure.events import WorkflowEvent
from perdure.graph.coercion import coerce
from perdure.graph.edges import EdgeGroup
from perdure.graph.executor import Executor
from perdure.graph.handlers import Handler, HandlerTable, Returns
from perdure.graph.policy import STOP, FailurePolicy, Reducer, RetryPolicy, Seconds


@dataclass(frozen=True)
class Node:
    """An executor of the graph, and a factory of further instances, like `Executor.fresh`."""

    executor: Executor
    make: Callable[..., Executor]
    is_shared: bool = False
    """Whether every thread uses the executor itself."""


@dataclass(frozen=True, eq=False)
class Graph:
    name: str
    description: str | None
    start_executor_id: str
    nodes: Mapping[str, Node]
    edge_groups: tuple[EdgeGroup, ...]
    max_iterations: int
    output_kinds: Mapping[str, str]
    """By executor: whether its outputs are results, `output`, or `intermediate`. Those of any other are hidden."""
    reducers: Mapping[str, Reducer]
    policies: Mapping[str, FailurePolicy] = field(default_factory=dict)
    """Failure policies by executor. A failure of any other executor ends the superstep."""
    has_designations: bool = False
    """Whether `output_kinds` was chosen. Otherwise every output of any executor is a result."""
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    """Executor -> the one that gets its message when it fails."""

    @cached_property
    def executors(self) -> dict[str, Executor]:
        return {executor_id: node.executor for executor_id, node in self.nodes.items()}

    @cached_property
    def output_types(self) -> tuple[Any, ...]:
        """The declared types of its results."""
        executors = (executor for key, executor in self.executors.items() if self.output_kinds.get(key) == "output")
        return tuple(dict.fromkeys(kind for executor in executors for kind in executor.workflow_output_types))

    @cached_property
    def annotations(self) -> tuple[Any, ...]:
        """Every type that its handlers name, and so a checkpoint of it may contain."""
        kinds: list[Any] = []
        for executor in self.executors.values():
            for handler in (*executor.table.handlers, *executor.table.responses):
                kinds += (handler.message_type, handler.request_type)
                kinds += (*handler.output_types, *handler.workflow_output_types)
            kinds += executor.value_types
        return tuple(dict.fromkeys(kind for kind in kinds if kind is not None))


@dataclass(frozen=True)
class SubWorkflowRequestMessage:
    """A request of a sub-workflow, sent to the executor of the parent that accepts it."""

    source_event: WorkflowEvent
    """The `request_info` event of the child."""
    executor_id: str
    """The WorkflowExecutor: send the answer there, `ctx.send_message(answer, target_id=request.executor_id)`."""

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """The answer. Raises AnswerRejected if it has another type than requested."""
        return SubWorkflowResponseMessage(coerce_answer(self.source_event, data), self.source_event)


def coerce_answer(request: WorkflowEvent, data: Any) -> Any:
    """The answer as the type that the request asks for. Raises AnswerRejected for another type."""
    try:
        return coerce(data, request.response_type)
    except (ValueError, TypeError) as error:
        reason = f"Response data type {type(data)} does not match expected type {request.response_type} ({error})"
        raise AnswerRejected(str(request.request_id), request.response_type, data, reason) from error


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
        graph = find_graph(workflow)
        if graph is None:
            raise TypeError(f"WorkflowExecutor takes a Workflow, or a function marked @workflow, got {workflow!r}.")
        self.workflow = workflow
        self.graph = graph
        self.allow_direct_output = allow_direct_output
        self.propagate_request = propagate_request
        self.table = HandlerTable(id, _handlers(self.graph, allow_direct_output, propagate_request))

    def to_dict(self) -> dict[str, Any]:
        describe = getattr(self.workflow, "to_dict", dict)
        return {**super().to_dict(), "workflow": describe()}


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
        executor = thing
    elif (graph := find_graph(thing)) is not None:
        executor = WorkflowExecutor(thing, graph.name)
    elif is_agent(thing):
        executor = host(thing)
    elif callable(thing) and not inspect.iscoroutinefunction(thing):
        return Node(_make_executor(thing, host), lambda shares=False: _make_executor(thing, host))
    else:
        raise TypeError(
            "WorkflowBuilder expected an Executor or SupportsAgentRun instance (an agent: run() and a name), or a "
            f"function that makes one, got {thing!r}."
        )
    return Node(executor, executor.fresh, executor.is_stateless)


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
