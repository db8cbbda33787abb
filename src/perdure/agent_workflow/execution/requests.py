"""What executions ask people: found, listed, and answered in the form that whoever asked takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.agent_workflow.checks.edge_graph import Ways
from perdure.agent_workflow.events import WorkflowApprovalRequestedEvent
from perdure.agent_workflow.execution.views import Views, public_id
from perdure.agent_workflow.node.approvals import ApprovalDecision, ApprovalRequest
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import DamagedCheckpoint, DamagedStore, InvalidRun, UnknownRequest
from perdure.log import get_logger
from perdure.workflows.workflow import Workflow

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
