"""The structure of a graph: whether it is valid, and how it differs from the one that made a checkpoint.

A signature is the structure as readable data, the same in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import GenericAlias
from typing import Any

import msgspec

from perdure.errors import (
    DuplicateExecutorId,
    EdgeDuplicationError,
    GraphConnectivityError,
    TypeCompatibilityError,
    ValidationTypeEnum,
    WorkflowValidationError,
    did_you_mean,
)
from perdure.graph.edges import Edge, EdgeGroup, FanInEdgeGroup
from perdure.graph.executor import Executor, accepts
from perdure.graph.graph import Graph, WorkflowExecutor
from perdure.log import get_logger
from perdure.names import stable_name

logger = get_logger("graph")


def validate_workflow_graph(
    edge_groups: Sequence[EdgeGroup],
    executors: Mapping[str, Executor],
    start_executor: Executor,
    output_executors: Sequence[str] | str | None = None,
    intermediate_executors: Sequence[str] | str | None = None,
    *,
    fallbacks: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The kinds of outputs by executor. Raises the first WorkflowValidationError found: duplicate edges, then types,
    then connectivity, then outputs."""
    start_executor_id = start_executor.id
    executors = executors or {start_executor_id: start_executor}
    if start_executor_id not in executors:
        raise GraphConnectivityError(f"Start executor {start_executor_id!r} is not present in the workflow graph.")
    _check_duplicate_edges(edge_groups)
    for group in edge_groups:
        for edge in group.edges:
            _check_types(edge, executors, joined=isinstance(group, FanInEdgeGroup))
    _check_fallbacks(fallbacks or {}, executors)
    _check_reachable(edge_groups, executors, start_executor_id, fallbacks or {})
    ends = sorted(executors.keys() - {edge.source_id for group in edge_groups for edge in group.edges})
    if ends:
        logger.debug(
            "Dead-end executors detected (no outgoing edges): %s. Verify these are intended as final nodes", ends
        )
    return designate(executors, output_executors, intermediate_executors)


def _check_fallbacks(fallbacks: Mapping[str, str], executors: Mapping[str, Executor]) -> None:
    for executor_id, fallback_id in fallbacks.items():
        sent, accepted = executors[executor_id].input_types, executors[fallback_id].input_types
        if sent and accepted and not any(accepts(executors[fallback_id], kind) for kind in sent):
            raise TypeCompatibilityError(executor_id, fallback_id, sent, accepted)
        seen = {executor_id}
        while fallback_id and fallback_id not in seen:
            seen.add(fallback_id)
            fallback_id = fallbacks.get(fallback_id, "")
        if fallback_id == executor_id:
            raise GraphConnectivityError(
                f"Executor {executor_id!r} is a fallback of itself, so a failed message would circulate forever. "
                "Let the last fallback stop, skip or isolate."
            )


def check_paths(executors: Mapping[str, Executor]) -> None:
    """Raises DuplicateExecutorId for an id that equals a path in a sub-workflow, such as `executor/inner`."""
    paths = [path for executor in executors.values() for path in _inner_paths(executor)]
    taken = next((path for path in paths if path in executors), None)
    if taken is not None:
        raise DuplicateExecutorId(taken)


def _inner_paths(executor: Executor) -> list[str]:
    if not isinstance(executor, WorkflowExecutor):
        return []
    below = [path for inner in executor.graph.executors.values() for path in (inner.id, *_inner_paths(inner))]
    return [f"{executor.id}/{path}" for path in below]


def _check_duplicate_edges(edge_groups: Sequence[EdgeGroup]) -> None:
    seen: set[str] = set()
    for group in edge_groups:
        for edge_id in dict.fromkeys(edge.id for edge in group.edges):
            # Two cases of one switch may share a target.
            if edge_id in seen:
                raise EdgeDuplicationError(edge_id)
            seen.add(edge_id)


def _check_types(edge: Edge, executors: Mapping[str, Executor], *, joined: bool) -> None:
    sent = executors[edge.source_id].output_types
    accepted = executors[edge.target_id].input_types
    if edge.source_id == edge.target_id:
        text = "Self-loop detected: Executor %r connects to itself. This may cause infinite recursion"
        logger.warning(text, edge.source_id)
    skipped = "Type compatibility validation will be skipped for edges"
    if not sent:
        logger.warning("Executor %r has no output type annotations. %s from this executor", edge.source_id, skipped)
    if not accepted:
        logger.warning("Executor %r has no input type annotations. %s to this executor", edge.target_id, skipped)
    arriving = [GenericAlias(list, (kind,)) for kind in sent] if joined else sent
    fitting = [kind for kind in arriving if accepts(executors[edge.target_id], kind)]
    if sent and accepted and not fitting:
        raise TypeCompatibilityError(edge.source_id, edge.target_id, arriving, accepted)
    if fitting:
        logger.debug(
            "Type compatibility validated for edge %r -> %r. Compatible type pairs: %s with %s",
            *(edge.source_id, edge.target_id, fitting, accepted),
        )


def _check_reachable(
    edge_groups: Sequence[EdgeGroup], executors: Mapping[str, Executor], start_id: str, fallbacks: Mapping[str, str]
) -> None:
    targets = {executor_id: {fallback_id} for executor_id, fallback_id in fallbacks.items()}
    for group in edge_groups:
        for edge in group.edges:
            targets.setdefault(edge.source_id, set()).add(edge.target_id)
    reached = {start_id}
    frontier = [start_id]
    while frontier:
        for target in targets.get(frontier.pop(), set()) - reached:
            reached.add(target)
            frontier.append(target)
    unreachable = [executor_id for executor_id in executors if executor_id not in reached]
    if unreachable:
        raise GraphConnectivityError(
            f"The following executors are unreachable from the start executor {start_id!r}: "
            f"{sorted(unreachable)}. Add an edge to each, or leave it out."
        )


def designate(
    executors: Mapping[str, Executor], output: Sequence[str] | str | None, intermediate: Sequence[str] | str | None
) -> dict[str, str]:
    """The graph's `output_kinds`, from `output_from` and `intermediate_output_from`. Both None: all are results."""
    if output is None and intermediate is None:
        return dict.fromkeys(executors, "output")
    yielding = [executor_id for executor_id, executor in executors.items() if executor.workflow_output_types]
    outputs = _resolve(output, yielding, executors, "output_from")
    others = [executor_id for executor_id in yielding if executor_id not in outputs]
    intermediates = _resolve(
        others if intermediate == "all_other" else intermediate, yielding, executors, "intermediate_output_from"
    )
    both = sorted(set(outputs) & set(intermediates))
    if both:
        raise _wrong_output(
            f"Executors cannot be both output and intermediate designated: {both}. Name each of them in one of the two."
        )
    return dict.fromkeys(outputs, "output") | dict.fromkeys(intermediates, "intermediate")


def _resolve(names: Any, yielding: list[str], executors: Mapping[str, Executor], parameter: str) -> list[str]:
    if names is None:
        return []
    if names == "all":
        return list(yielding)
    kind = "output" if parameter == "output_from" else "intermediate"
    twice = sorted({executor_id for executor_id in names if names.count(executor_id) > 1})
    if twice:
        raise _wrong_output(
            f"Duplicate {kind} executor designation(s) in {parameter}: {twice}. Name each of them once."
        )
    for executor_id in names:
        if executor_id not in executors:
            raise _wrong_output(
                f"{kind.title()} executor {executor_id!r} is not present in the workflow graph, but {parameter} names "
                f"it{did_you_mean(executor_id, executors)}."
            )
        # A sub-workflow may have outputs without declaring their types.
        if executor_id not in yielding and not isinstance(executors[executor_id], WorkflowExecutor):
            raise _wrong_output(
                f"{kind.title()} executor {executor_id!r} must have output type annotations defined, because "
                f"{parameter} names it. Annotate the context of its handler: WorkflowContext[Sent, Yielded]."
            )
    return list(names)


def _wrong_output(message: str) -> WorkflowValidationError:
    return WorkflowValidationError(message, ValidationTypeEnum.OUTPUT_VALIDATION)


def graph_signature(graph: Graph) -> dict[str, Any]:
    """Nodes with the names of their types, edges with kind and condition name."""
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
    name = getattr(group, "selection_func_name", None)
    kind = group.type.removesuffix("EdgeGroup") + (f" by {name}" if name else "")
    edges = zip(group.edges, group.condition_names, strict=True)
    return [f"{kind}: {edge.id}" + (f" if {condition}" if condition else "") for edge, condition in edges]


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
