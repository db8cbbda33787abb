"""WorkflowExecutor: a whole workflow as one executor of another. Described here, run by engine/children.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.errors import AnswerRejected
from perdure.events import WorkflowEvent
from perdure.graph.executor import Executor, HandlerTable
from perdure.graph.graph import Graph
from perdure.graph.handlers import Handler, Returns
from perdure.graph.policy import STOP, RetryPolicy, Seconds
from perdure.graph.types.coercion import coerce


@dataclass(frozen=True)
class SubWorkflowRequestMessage:
    """A question that a sub-workflow asks: sent to whichever executor of the parent accepts it."""

    source_event: WorkflowEvent
    """The `request_info` event of the child."""
    executor_id: str
    """The WorkflowExecutor: send the answer there, `ctx.send_message(answer, target_id=request.executor_id)`."""

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """The answer. Raises AnswerRejected if it is not of the type that was asked for."""
        event = self.source_event
        try:
            value = coerce(data, event.response_type)
        except (ValueError, TypeError) as error:
            raise AnswerRejected(str(event.request_id), event.response_type, data, str(error)) from error
        return SubWorkflowResponseMessage(value, event)


@dataclass(frozen=True)
class SubWorkflowResponseMessage:
    """The answer to a SubWorkflowRequestMessage, on its way back to the child that asked."""

    data: Any
    source_event: WorkflowEvent


class WorkflowExecutor(Executor):
    """Runs a workflow as part of another: each message that it gets starts a child of its own.

    A child runs in its parent's thread: every superstep of the thread advances all children, and is committed with
    them. What the child yields is sent on, or yielded by the parent with `allow_direct_output`. What it asks is sent
    to an executor of the parent as a SubWorkflowRequestMessage, or asked outside with `propagate_request`.
    """

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
    found = find_graph(workflow)
    if found is None:
        raise TypeError(f"WorkflowExecutor takes a Workflow, or a function marked @workflow, got {workflow!r}.")
    return found


def find_graph(thing: Any) -> Graph | None:
    found = getattr(thing, "graph", None) if not isinstance(thing, (type, Executor)) else None
    return found if isinstance(found, Graph) else None


def _handlers(graph: Graph, allow_direct_output: bool, propagate_request: bool) -> list[Handler]:
    yielded = graph.output_types
    sent = () if allow_direct_output else yielded
    # One that declares nothing may send anything: then its questions must not look like all that it sends.
    if not propagate_request and yielded:
        sent = (*sent, SubWorkflowRequestMessage)
    outputs = yielded if allow_direct_output else ()
    start = graph.executors[graph.start_executor_id]
    # What answers a child of its own is nothing that comes from outside.
    kinds = [one.message_type for one in start.table.handlers]
    accepted = [kind for kind in kinds if kind is not SubWorkflowResponseMessage]
    return [
        *(Handler("start_child", _start_child, one, None, sent, outputs, True, Returns.NOTHING) for one in accepted),
        Handler("answer_child", _answer_child, SubWorkflowResponseMessage, None, (), (), True, Returns.NOTHING),
    ]


# The engine's context has a `delivery` beside what WorkflowContext promises to users.


async def _start_child(executor: WorkflowExecutor, message: Any, ctx: Any) -> None:
    ctx.delivery.start_child()


async def _answer_child(executor: WorkflowExecutor, answer: SubWorkflowResponseMessage, ctx: Any) -> None:
    ctx.delivery.answer_child(answer)
