"""The engine's events and requests as those of a workflow of agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.agent_workflow import events
from perdure.agent_workflow.definition import START
from perdure.agent_workflow.events import WorkflowApprovalRequestedEvent, logger
from perdure.agent_workflow.execution.node import INNER, ApprovalDecision, ApprovalRequest
from perdure.agent_workflow.execution.planner import EdgeGraph
from perdure.agent_workflow.state import ExecutionState, NodeOutcome, NodeState, Status
from perdure.agents.conversation.content import Content
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import DamagedCheckpoint, DamagedStore, InvalidRun, UnknownRequest
from perdure.events import WorkflowEvent
from perdure.workflows.workflow import Workflow


class EventViews:
    """Converts the engine's events during one call. Counts settled nodes for the progress."""

    def __init__(self, workflow_name: str, execution_id: str, graph: EdgeGraph, state: ExecutionState | None) -> None:
        self.ids: dict[str, Any] = {"workflow_name": workflow_name, "execution_id": execution_id}
        """Fields of all events."""
        self._graph = graph
        nodes = {} if state is None else state.nodes
        self._settled = {name for name, node in nodes.items() if node.is_settled and name != START}
        self.outcomes: dict[str, NodeState] = {}
        """Outcomes of nodes in this call, including uncommitted ones."""

    def convert(self, event: WorkflowEvent) -> Iterator[events.AgentWorkflowEvent | WorkflowEvent]:
        """The public view of an engine event: none or one."""
        metadata = metadata_of(event.executor_id)
        data = event.data
        if event.type == events.EVENT:
            metadata = _of_node(metadata, data)
            named = msgspec.structs.replace(data, execution_id=self.ids["execution_id"], metadata=metadata)
            yield self._count(named) if metadata.depth == 0 else named
        elif event.type == "request_info":
            yield self.request(event)
        elif event.type == "data" or event.type in ("group_chat", "handoff_sent", "magentic_orchestrator"):
            yield event  # an agent's event, unchanged
        elif event.type in ("warning", "executor_retrying"):
            yield self._diagnostic(event)
        elif event.type == "executor_bypassed" and isinstance(data, list) and metadata.depth == 0:
            self.add_outcomes(item for item in data if isinstance(item, NodeOutcome))

    def add_outcomes(self, outcomes: Iterable[NodeOutcome]) -> None:
        """Count nodes that ended before this call. Their events are not emitted again."""
        for outcome in outcomes:
            self._settle(outcome.node, outcome.status, outcome.outputs)

    def _settle(self, node: str, status: Status, outputs: dict[str, Any]) -> float:
        """Returns the progress."""
        self._settled.add(node)
        self.outcomes[node] = NodeState(status, outputs)
        return len(self._settled) / max(1, len(self._graph.nodes))

    def _count(self, event: events.AgentWorkflowEvent) -> events.AgentWorkflowEvent:
        if isinstance(event, events.WorkflowAgentStartedEvent):
            self._settled.discard(event.agent_id)
        elif isinstance(event, events.WorkflowEdgeTraversedEvent) and event.to_node_id in self._settled:
            self._settled -= self._graph.reached_from([event.to_node_id])  # another pass
        elif isinstance(event, events.WorkflowAgentSkippedEvent):
            self._settle(event.agent_id, "skipped", {})
        elif isinstance(event, events.WorkflowAgentCompletedEvent):
            progress = self._settle(event.agent_id, "done" if event.success else "failed", event.outputs)
            return msgspec.structs.replace(event, progress=progress)
        return event

    def report_failure(self, node: str, error: str) -> events.WorkflowAgentCompletedEvent | None:
        """The event of a failed node that did not emit it itself: a workflow with a failed agent."""
        if node in self.outcomes and self.outcomes[node].status == "failed":
            return None
        return events.WorkflowAgentCompletedEvent(
            **self.ids,
            metadata=events.EventMetadata(node, None, None, (node,), 0),
            agent_id=node,
            agent_name=node,
            layer_index=self._graph.layer_of[node],
            success=False,
            duration=0.0,
            progress=self._settle(node, "failed", {}),
            error_message=error,
        )

    def request(self, event: WorkflowEvent) -> events.WorkflowApprovalRequestedEvent:
        data, metadata = event.data, metadata_of(event.executor_id)
        message, description, outputs = str(data), None, {}
        if isinstance(data, ApprovalRequest):
            message, description, outputs = data.message, data.description, data.outputs
        elif isinstance(data, Content) and (call := data.function_call) is not None:
            message = f"May it call {call.name}?"
            outputs = {"tool": call.name, "arguments": call.parse_arguments()}
        return events.WorkflowApprovalRequestedEvent(
            **self.ids,
            metadata=metadata,
            request_id=public_id(self.ids["execution_id"], str(event.request_id)),
            agent_id=metadata.agent_id or "",
            message=message,
            description=description,
            outputs=outputs,
            deadline=None if event.terms is None else event.terms.deadline,
            request=data,
        )

    def _diagnostic(self, event: WorkflowEvent) -> events.WorkflowDiagnosticEvent:
        metadata = metadata_of(event.executor_id)
        if event.type == "warning":
            return self.diagnostic("warning", "workflow", str(event.data), metadata.agent_id)
        failure = "" if event.details is None else f"{event.details.error_type}: {event.details.message}"
        attempt: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
        text = f"Attempt {attempt.get('attempt')} failed ({failure}); the next one in {attempt.get('delay_seconds')} s."
        return self.diagnostic("warning", "retry", text, metadata.agent_id)

    def diagnostic(
        self, level: events.Level, source: str, message: str, node_id: str | None = None
    ) -> events.WorkflowDiagnosticEvent:
        return events.WorkflowDiagnosticEvent(**self.ids, level=level, source=source, message=message, node_id=node_id)


def public_id(execution_id: str, request_id: str) -> str:
    """The id of a request among all executions. A tool names its request only within its execution."""
    prefix = f"{execution_id}:"
    return request_id if request_id.startswith(prefix) else prefix + request_id


def metadata_of(executor_id: str | None) -> events.EventMetadata:
    """From the path of the executor: `review.workflow/check` is the node `check` in the workflow of `review`."""
    parts = [part for part in (executor_id or "").split("/") if part]
    outer = [part.removesuffix(INNER) for part in parts if part.endswith(INNER)]
    own = next((part for part in parts if not part.endswith(INNER) and "." not in part), None)
    chain = (*outer, own) if own is not None else tuple(outer)
    return events.EventMetadata(own, None, outer[-1] if outer else None, chain, len(outer))


def _of_node(metadata: events.EventMetadata, event: Any) -> events.EventMetadata:
    """An event that the conductor emits about a node belongs to that node."""
    node, name = getattr(event, "agent_id", None), getattr(event, "agent_name", None)
    if node is not None and metadata.agent_id is None:
        metadata = msgspec.structs.replace(metadata, agent_id=node, agent_chain=(*metadata.agent_chain, node))
    return metadata if name is None else msgspec.structs.replace(metadata, agent_name=name)


async def find_request(workflow: Workflow, request_id: str, execution_id: str | None) -> tuple[str, str, Any]:
    """Find a request by its public id or, in a named execution, by its inner id: the execution, the inner id, and the
    request, which is None if it is not pending; the engine then reports why. Raises UnknownRequest."""
    pending = await workflow.checkpoint_storage.pending_requests(workflow_name=workflow.name, thread_id=execution_id)
    thread_id, inner_id = execution_id or request_id.rpartition(":")[0], request_id
    for request in pending:
        inner = request.request_id if execution_id else None
        if request_id in (public_id(request.thread_id, request.request_id), inner):
            thread_id, inner_id = request.thread_id, request.request_id
    checkpoint = await workflow.head(thread_id) if thread_id else None
    if checkpoint is None:
        known = [public_id(request.thread_id, request.request_id) for request in pending]
        raise UnknownRequest(request_id, thread_id, known)
    inner_id = inner_id.removeprefix(f"{thread_id}:")
    event = checkpoint.pending_request_info_events.get(inner_id)
    return thread_id, inner_id, None if event is None else event.data


async def pending_approvals(
    workflow: Workflow, graph: EdgeGraph, execution_id: str | None
) -> list[WorkflowApprovalRequestedEvent]:
    """Pending approvals, the oldest first. An unreadable execution does not hide the others."""
    pending = await workflow.checkpoint_storage.pending_requests(workflow_name=workflow.name, thread_id=execution_id)
    heads: dict[str, WorkflowCheckpoint | None] = {}
    approvals = []
    for request in pending:
        thread_id = request.thread_id
        try:
            if thread_id not in heads:
                heads[thread_id] = await workflow.head(thread_id)
        except (DamagedCheckpoint, DamagedStore) as error:
            if execution_id is not None:
                raise
            logger.warning("execution %s cannot be read, its requests are not listed: %s", thread_id, error)
            heads[thread_id] = None
        head = heads[thread_id]
        event = None if head is None else head.pending_request_info_events.get(request.request_id)
        if event is not None:  # else it was answered since
            approvals.append(EventViews(workflow.name, thread_id, graph, None).request(event))
    return approvals


def answer_to(request: Any, approved: bool, reason: str | None, data: Any) -> Any:
    """The answer in the form that the requester accepts: a node of the workflow, or a tool of an agent."""
    if data is not None and not (isinstance(data, Mapping) and all(isinstance(key, str) for key in data)):
        raise InvalidRun(f"data: expected a mapping with texts as keys, got {data!r:.200}. Nothing was answered.")
    if request is None or isinstance(request, ApprovalRequest):
        return ApprovalDecision(approved, reason, dict(data or {}))
    answer: dict[str, Any] = {"approved": approved, "reason": reason, "arguments": None if data is None else dict(data)}
    return {key: value for key, value in answer.items() if value is not None}
