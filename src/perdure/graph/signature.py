"""The structure of a graph as readable data, to compare a checkpoint's graph with the present one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.graph.graph import EdgeGroup, FanOutEdgeGroup, Graph
from perdure.graph.sub_workflow import WorkflowExecutor
from perdure.names import stable_name


def graph_signature(graph: Graph) -> dict[str, Any]:
    """Nodes with the names of their types, edges with kind and condition name. The same in every process."""
    signature: dict[str, Any] = {
        "start": graph.start_executor_id,
        "executors": {key: stable_name(executor.code) for key, executor in sorted(graph.executors.items())},
        "edges": sorted(line for group in graph.edge_groups for line in _lines(group)),
    }
    children = {
        executor_id: graph_signature(executor.graph)
        for executor_id, executor in sorted(graph.executors.items())
        if isinstance(executor, WorkflowExecutor)
    }
    if children:
        signature["children"] = children
    return signature


def signature_hash(signature: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(signature, order="sorted")).hexdigest()


def _lines(group: EdgeGroup) -> list[str]:
    selection = (
        f" by {group.selection_func_name}" if isinstance(group, FanOutEdgeGroup) and group.selection_func else ""
    )
    kind = group.type.removesuffix("EdgeGroup")
    return [
        f"{kind}{selection}: {edge.id}" + (f" if {edge.condition_name}" if edge.condition_name else "")
        for edge in group.edges
    ]


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Breaking changes, and additions, between a checkpoint's signature and the present one."""
    breaking, added = [], []
    if stored.get("start") != current["start"]:
        breaking.append(f"the start executor was {stored.get('start')!r} and is {current['start']!r}")
    then, now = stored.get("executors", {}), current["executors"]
    for executor_id in sorted({*then, *now}):
        if executor_id not in now:
            breaking.append(f"executor {executor_id!r} is gone")
        elif executor_id not in then:
            added.append(f"executor {executor_id!r} is new")
        elif then[executor_id] != now[executor_id]:
            breaking.append(f"executor {executor_id!r} was a {then[executor_id]} and is a {now[executor_id]}")
    edges_then, edges_now = set(stored.get("edges", ())), set(current["edges"])
    breaking += [f"edge {line!r} is gone" for line in sorted(edges_then - edges_now)]
    added += [f"edge {line!r} is new" for line in sorted(edges_now - edges_then)]
    for executor_id in sorted({*stored.get("children", {})} & {*current.get("children", {})}):
        inner = differences(stored["children"][executor_id], current["children"][executor_id])
        breaking += [f"in sub-workflow {executor_id!r} {change}" for change in inner[0]]
        added += [f"in sub-workflow {executor_id!r} {change}" for change in inner[1]]
    return breaking, added
