"""The default workflow as clients of AgentFlow see it: nodes, edges, tools."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import Tool
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.server.threads.to_json import schema_of
from perdure.workflows.workflow import Workflow

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
    """Those of each agent, by node."""
    agents = ((node, one.agent) for node, one in workflow.executors.items() if isinstance(one, AgentExecutor))
    return {"nodes": [{"node": node, "tools": _tools(agent)} for node, agent in agents]}


def _tools(agent: Any) -> list[dict[str, Any]]:
    found = getattr(agent, "tools", None)
    known: list[Any] = list(found.values()) if isinstance(found, Mapping) else list(found or ())
    return [
        {"name": one.name, "description": one.description, "source": "local", "parameters": _parameters(one)}
        for one in known
        if isinstance(one, Tool)
    ]


def _parameters(tool: Tool) -> dict[str, Any]:
    hidden = {"return", tool.context_parameter}
    own = {name: one for name, one in tool._annotations.items() if name not in hidden}
    given = inspect.signature(tool.function).parameters
    needed = [name for name in own if name in given and given[name].default is inspect.Parameter.empty]
    return {
        "type": "object",
        "properties": {name: schema_of(one) for name, one in own.items()},
        "required": needed,
    }
