"""The engine's events and requests as those of a workflow of agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.agent_workflow import events as told
from perdure.agent_workflow.definition.config import START
from perdure.agent_workflow.events import WorkflowApprovalRequestedEvent
from perdure.agent_workflow.execution.approvals import ApprovalDecision, ApprovalRequest
from perdure.agent_workflow.execution.edge_graph import Ways
from perdure.agent_workflow.state import ExecutionState, NodeOutcome, NodeStanding, Status
from perdure.agents.conversation.content import Content
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import DamagedCheckpoint, DamagedStore, InvalidRun, UnknownRequest
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.workflows.workflow import Workflow

_INNER = ".workflow"


class Views:
    """Of one call that moves an execution. Counts what has settled, so that progress is true."""

    def __init__(self, workflow_name: str, execution_id: str, ways: Ways, standing: ExecutionState | None) -> None:
        self._name = workflow_name
        self._execution_id = execution_id
        self._ways = ways
        known = {} if standing is None else standing.nodes
        self._settled = {node for node, one in known.items() if one.is_settled and node != START}
        self._seen: dict[str, tuple[Status, dict[str, Any]]] = {}
        """What nodes came to in this call, also where it is not committed yet."""

    def of(self, event: WorkflowEvent) -> Iterator[told.AgentWorkflowEvent | WorkflowEvent]:
        """What its consumer sees of an event of the engine: none or one."""
        metadata = _metadata(event.executor_id)
        data = event.data
        if event.type == told.EVENT:
            metadata = _of_node(metadata, data)
            named = msgspec.structs.replace(data, execution_id=self._execution_id, metadata=metadata)
            yield self._counted(named) if metadata.depth == 0 else named
        elif event.type == "request_info":
            yield self.request(event)
        elif event.type == "data" or event.type in ("group_chat", "handoff_sent", "magentic_orchestrator"):
            yield event  # of an agent, as it is
        elif event.type in ("warning", "executor_retrying"):
            yield self._diagnostic(event)
        elif event.type == "executor_bypassed" and isinstance(data, list) and metadata.depth == 0:
            self.take_in(one for one in data if isinstance(one, NodeOutcome))

    def take_in(self, outcomes: Iterable[NodeOutcome]) -> None:
        """Of nodes that had ended before this call: they are not told again, and count."""
        for one in outcomes:
            self._settled.add(one.node)
            self._seen[one.node] = (one.status, one.outputs)

    def _counted(self, event: told.AgentWorkflowEvent) -> told.AgentWorkflowEvent:
        if isinstance(event, told.WorkflowAgentStartedEvent):
            self._settled.discard(event.agent_id)
        elif isinstance(event, told.WorkflowEdgeTraversedEvent) and event.to_node_id in self._settled:
            self._settled -= self._ways.reached_from([event.to_node_id])  # another pass
        elif isinstance(event, told.WorkflowAgentSkippedEvent):
            self._settled.add(event.agent_id)
            self._seen[event.agent_id] = ("skipped", {})
        elif isinstance(event, told.WorkflowAgentCompletedEvent):
            self._settled.add(event.agent_id)
            self._seen[event.agent_id] = ("done" if event.success else "failed", event.outputs)
            return msgspec.structs.replace(event, progress=len(self._settled) / max(1, len(self._ways.nodes)))
        return event

    def failed(self, node: str, error: str) -> told.WorkflowAgentCompletedEvent | None:
        """For a node that stopped the execution and has not told so itself: a workflow in which an agent failed."""
        if self._seen.get(node, ("", {}))[0] == "failed":
            return None
        self._seen[node] = ("failed", {})
        self._settled.add(node)
        return told.WorkflowAgentCompletedEvent(
            workflow_name=self._name,
            execution_id=self._execution_id,
            metadata=told.EventMetadata(node, None, None, (node,), 0),
            agent_id=node,
            agent_name=node,
            layer_index=self._ways.layer_of(node),
            success=False,
            duration=0.0,
            progress=len(self._settled) / max(1, len(self._ways.nodes)),
            error_message=error,
        )

    def seen(self, standing: ExecutionState | None) -> ExecutionState | None:
        """Where it stands, with what nodes came to since the last commit."""
        if standing is None:
            return None
        since = {node: NodeStanding(status, outputs) for node, (status, outputs) in self._seen.items()}
        return msgspec.structs.replace(standing, nodes={**standing.nodes, **since})

    @staticmethod
    def node_at(executor_id: str) -> str | None:
        """The outermost node of a path."""
        chain = _metadata(executor_id).agent_chain
        return chain[0] if chain else None

    def request(self, event: WorkflowEvent) -> told.WorkflowApprovalRequestedEvent:
        data, metadata = event.data, _metadata(event.executor_id)
        message, description, outputs = "", None, {}
        if isinstance(data, ApprovalRequest):
            message, description, outputs = data.message, data.description, data.outputs
        elif isinstance(data, Content) and data.function_call is not None:
            call = data.function_call
            message = f"May it call {call.name}?"
            outputs = {"tool": call.name, "arguments": call.parse_arguments()}
        else:
            message = str(data)
        return told.WorkflowApprovalRequestedEvent(
            workflow_name=self._name,
            execution_id=self._execution_id,
            metadata=metadata,
            request_id=public_id(self._execution_id, str(event.request_id)),
            agent_id=metadata.agent_id or "",
            message=message,
            description=description,
            outputs=outputs,
            deadline=None if event.terms is None else event.terms.deadline,
            request=data,
        )

    def _diagnostic(self, event: WorkflowEvent) -> told.WorkflowDiagnosticEvent:
        metadata = _metadata(event.executor_id)
        if event.type == "warning":
            return self.diagnostic("warning", "workflow", str(event.data), metadata.agent_id)
        failure = "" if event.details is None else f"{event.details.error_type}: {event.details.message}"
        told_of: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
        text = f"Attempt {told_of.get('attempt')} failed ({failure}); the next one in {told_of.get('delay_seconds')} s."
        return self.diagnostic("warning", "retry", text, metadata.agent_id)

    def diagnostic(
        self, level: told.Level, source: str, message: str, node_id: str | None = None
    ) -> told.WorkflowDiagnosticEvent:
        return told.WorkflowDiagnosticEvent(
            workflow_name=self._name,
            execution_id=self._execution_id,
            level=level,
            source=source,
            message=message,
            node_id=node_id,
        )


def public_id(execution_id: str, request_id: str) -> str:
    """Of a request, among those of all executions: what a tool asks is named only within its own."""
    prefix = f"{execution_id}:"
    return request_id if request_id.startswith(prefix) else prefix + request_id


def _metadata(executor_id: str | None) -> told.EventMetadata:
    """From the path of the executor: `review.workflow/check` is the node `check` in the workflow that is `review`."""
    parts = [one for one in (executor_id or "").split("/") if one]
    outer = [one.removesuffix(_INNER) for one in parts if one.endswith(_INNER)]
    own = next((one for one in parts if not one.endswith(_INNER) and "." not in one), None)
    chain = (*outer, own) if own is not None else tuple(outer)
    return told.EventMetadata(own, None, outer[-1] if outer else None, chain, len(outer))


def _of_node(metadata: told.EventMetadata, event: Any) -> told.EventMetadata:
    """What the conductor tells of a node is that node's."""
    node, name = getattr(event, "agent_id", None), getattr(event, "agent_name", None)
    if node is not None and metadata.agent_id is None:
        metadata = msgspec.structs.replace(metadata, agent_id=node, agent_chain=(*metadata.agent_chain, node))
    return metadata if name is None else msgspec.structs.replace(metadata, agent_name=name)


logger = get_logger("agent_workflow")


@dataclass(frozen=True)
class FoundRequest:
    execution_id: str
    request_id: str
    """What it is called in its execution."""
    data: Any
    """What is asked; None if it is not pending: then the engine says what became of it."""


async def find_request(workflow: Workflow, request_id: str, execution_id: str | None) -> FoundRequest:
    """By its public id or, in a given execution, by its own. Raises UnknownRequest."""
    found = await workflow.checkpoint_storage.pending_requests(workflow_name=workflow.name, thread_id=execution_id)
    chosen, own_id = execution_id or request_id.rpartition(":")[0], request_id
    for one in found:
        if request_id in (public_id(one.thread_id, one.request_id), one.request_id if execution_id else None):
            chosen, own_id = one.thread_id, one.request_id
    checkpoint = await workflow.head(chosen) if chosen else None
    if checkpoint is None:
        raise UnknownRequest(request_id, chosen, [public_id(one.thread_id, one.request_id) for one in found])
    own_id = own_id.removeprefix(f"{chosen}:")
    asked = checkpoint.pending_request_info_events.get(own_id)
    return FoundRequest(chosen, own_id, None if asked is None else asked.data)


async def pending_approvals(
    workflow: Workflow, ways: Ways, execution_id: str | None
) -> list[WorkflowApprovalRequestedEvent]:
    """Those that wait longest first. An execution that cannot be read does not hide the others."""
    found = await workflow.checkpoint_storage.pending_requests(workflow_name=workflow.name, thread_id=execution_id)
    heads: dict[str, WorkflowCheckpoint | None] = {}
    asked = []
    for one in found:
        try:
            if one.thread_id not in heads:
                heads[one.thread_id] = await workflow.head(one.thread_id)
        except (DamagedCheckpoint, DamagedStore) as error:
            if execution_id is not None:
                raise
            logger.warning("execution %s cannot be read, so what it asks is not listed: %s", one.thread_id, error)
            heads[one.thread_id] = None
        head = heads[one.thread_id]
        event = None if head is None else head.pending_request_info_events.get(one.request_id)
        if event is not None:  # else it was answered since
            asked.append(Views(workflow.name, one.thread_id, ways, None).request(event))
    return asked


def answer_to(request: Any, approved: bool, reason: str | None, data: Any) -> Any:
    """In the form that whoever asked takes: a node of the workflow, or a tool of an agent."""
    if data is not None and not (isinstance(data, Mapping) and all(isinstance(one, str) for one in data)):
        raise InvalidRun(f"data: expected a mapping with texts as keys, got {data!r:.200}. Nothing was answered.")
    if request is None or isinstance(request, ApprovalRequest):
        return ApprovalDecision(approved, reason, dict(data or {}))
    answer: dict[str, Any] = {"approved": approved, "reason": reason, "arguments": None if data is None else dict(data)}
    return {key: value for key, value in answer.items() if value is not None}
