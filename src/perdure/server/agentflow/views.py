"""A thread's state and the default workflow's graph in AgentFlow's format."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.agents.conversation.message import Message
from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import Tool
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.events import WorkflowRunState
from perdure.records import ThreadInfo
from perdure.server.agentflow.messages import messages_to_client
from perdure.server.problems import HttpProblem
from perdure.server.threads.tenancy import Space
from perdure.server.threads.to_json import schema_of, to_json
from perdure.workflows.workflow import Workflow

OWN_KEYS = frozenset({"context", "context_summary", "execution_meta"})
"""Keys that are not part of the shared state."""

_STATUSES = {
    WorkflowRunState.IDLE.value: "completed",
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value: "interrupted_before",
    WorkflowRunState.FAILED.value: "error",
    WorkflowRunState.CANCELLED.value: "interrupted_before",
}


def execution_meta(info: ThreadInfo, head: WorkflowCheckpoint, space: Space) -> dict[str, Any]:
    waiting = next(iter(head.pending_request_info_events.values()), None)
    due = next(iter(head.deliveries), None)
    last = head.outputs[-1].executor_id if head.outputs else None
    return {
        "current_node": due.target_id if due is not None else (waiting and waiting.source_executor_id) or last,
        "step": head.iteration_count,
        "status": _STATUSES.get(info.status, "running"),
        "interrupted_node": None if waiting is None else waiting.source_executor_id,
        "interrupt_reason": None if waiting is None else "input_required",
        "interrupt_data": None
        if waiting is None
        else {"request_id": waiting.request_id, "value": to_json(waiting.data)},
        "thread_id": space.public_id(info.thread_id),
        "stop_current_execution": "stopped" if info.status == WorkflowRunState.CANCELLED.value else "none",
        "internal_data": {},
    }


def state_to_client(info: ThreadInfo, head: WorkflowCheckpoint, context: list[Message], space: Space) -> dict[str, Any]:
    return {
        **to_json({key: value for key, value in head.state.items() if key not in OWN_KEYS}),
        "context": messages_to_client(context),
        "context_summary": to_json(head.state.get("context_summary")),
        "execution_meta": execution_meta(info, head, space),
    }


def merge_state(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge dicts recursively; None is ignored; any other value replaces the stored one."""
    after = dict(stored)
    for key, value in changes.items():
        if value is None:
            continue
        before = after.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        after[key] = merge_state(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return after


def with_state(head: WorkflowCheckpoint, changes: Mapping[str, Any]) -> WorkflowCheckpoint:
    """The head with these changes in its shared state. Raises HttpProblem for a value of another type."""
    return msgspec.structs.replace(head, state=update_state(head.state, changes))


def update_state(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The state with these changes. Raises HttpProblem for a value of another type."""
    after = merge_state(
        before, {key: value for key, value in changes.items() if key not in ("context", "execution_meta")}
    )
    for key, value in after.items():
        stored = before.get(key)
        if key in before and stored is not None and not _is_same_type(stored, value):
            raise HttpProblem(
                422,
                "wrong_state_type",
                f"state.{key} holds {type(stored).__name__}, not {type(value).__name__}. Nothing was written.",
                field=f"state.{key}",
            )
    return after


def _is_same_type(stored: Any, value: Any) -> bool:
    if type(stored) is float and type(value) is int:
        return True
    return type(stored) is type(value)


STATE_SCHEMA: dict[str, Any] = {
    "title": "State",
    "type": "object",
    "properties": {
        "context": {"type": "array", "items": {"$ref": "#/$defs/Message"}, "description": "The messages so far."},
        "context_summary": {"type": ["string", "null"]},
        "execution_meta": {"type": "object", "readOnly": True, "description": "The status of the thread."},
    },
    "additionalProperties": True,
    "$defs": {
        "Message": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "message_id": {"type": "string"},
                "role": {"enum": ["user", "assistant", "system", "tool"]},
                "content": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}


START, END = "__start__", "__end__"


def graph_to_client(workflow: Workflow, storage: StoreCheckpointStorage) -> dict[str, Any]:
    nodes = [START, *workflow.executors, END]
    edges = [(START, workflow.start_executor_id)]
    edges += [(edge.source_id, edge.target_id) for group in workflow.edge_groups for edge in group.edges]
    leaves = [node for node in workflow.executors if all(source != node for source, _ in edges)]
    edges += [(node, END) for node in leaves]
    info = {
        "name": workflow.name,
        "node_count": len(nodes),
        "edge_count": len(edges),
        "is_realtime": False,
        "checkpointer": True,
        "checkpointer_type": type(storage).__name__,
        "publisher": False,
        "store": False,
        "interrupt_before": None,
        "interrupt_after": None,
        "context_type": None,
        "id_generator": "time-ordered",
        "id_type": "string",
        "state_type": "AgentState",
        "state_fields": ["context", "context_summary", "execution_meta"],
    }
    return {
        "info": info,
        "nodes": [{"id": node, "name": node} for node in nodes],
        "edges": [{"id": f"{source}->{target}", "source": source, "target": target} for source, target in edges],
    }


def tools_to_client(workflow: Workflow) -> dict[str, Any]:
    """The tools of each agent, by node."""
    agents = (
        (node, executor.agent) for node, executor in workflow.executors.items() if isinstance(executor, AgentExecutor)
    )
    return {"nodes": [{"node": node, "tools": _tools(agent)} for node, agent in agents]}


def _tools(agent: Any) -> list[dict[str, Any]]:
    tools = getattr(agent, "tools", None)
    entries: list[Any] = list(tools.values()) if isinstance(tools, Mapping) else list(tools or ())
    return [
        {"name": tool.name, "description": tool.description, "source": "local", "parameters": _parameters(tool)}
        for tool in entries
        if isinstance(tool, Tool)
    ]


def _parameters(tool: Tool) -> dict[str, Any]:
    hidden = {"return", tool.context_parameter}
    annotations = {name: annotation for name, annotation in tool._annotations.items() if name not in hidden}
    parameters = inspect.signature(tool.function).parameters
    required = [
        name for name in annotations if name in parameters and parameters[name].default is inspect.Parameter.empty
    ]
    return {
        "type": "object",
        "properties": {name: schema_of(annotation) for name, annotation in annotations.items()},
        "required": required,
    }
