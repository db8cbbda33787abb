"""The edges of a draft as the planner takes them: with functions for what they say."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from perdure.agent_workflow.builder.draft import Draft, EdgeDraft
from perdure.agent_workflow.checks.edge_graph import NodeEdge
from perdure.agent_workflow.checks.outputs import needs_of
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.node.outputs import HANDOFF, MATCHED_TYPE
from perdure.errors import InvalidDefinition, PredicateFailed
from perdure.graph.function_executor import is_async
from perdure.isolation import isolated


def planner_of(draft: Draft) -> Planner:
    """Of a draft that was checked, with the edges that handoffs and fallbacks are."""
    nodes = draft.nodes
    edges = [_edge(edge, index) for index, edge in enumerate(draft.edges)]
    for node_id, node in nodes.items():
        config = node.config
        targets = dict.fromkeys((*(one.target for one in config.handoffs), config.default_handoff))
        edges += [_handoff(node_id, one) for one in targets if one is not None]
        if config.on_error.mode == "fallback" and config.on_error.fallback is not None:
            described = f"{node_id} failed"
            edges.append(NodeEdge(node_id, config.on_error.fallback, description=described, kind="fallback"))
    return Planner(
        tuple(nodes),
        edges,
        error_modes={node_id: node.config.on_error.mode for node_id, node in nodes.items()},
        routers={node_id for node_id, node in nodes.items() if node.config.output_mode == "handoff"},
        max_passes=draft.settings.max_iterations,
        converges=draft.settings.convergence,
        needs=needs_of(draft),
        keeps=draft.settings.conversation.mode == "none",  # else it would know more than when it was asked before
    )


def _edge(edge: EdgeDraft, index: int) -> NodeEdge:
    config = edge.config
    tests: list[Callable[[Mapping[str, Any]], bool]] = []
    described = []
    if config.when is not None:
        tests.append(config.when.holds)
        described.append(str(config.when))
    if (predicate := edge.predicate) is not None:
        tests.append(placed(predicate, f"edges[{index}].predicate"))
        described.append(_name_of(predicate))
    if config.matched_type is not None:
        wanted = config.matched_type
        tests.append(lambda outputs: outputs.get(MATCHED_TYPE) == wanted)
        described.append(f"{MATCHED_TYPE} equals {wanted!r}")
    if config.is_default:
        described.append("default")
    test = (lambda outputs: all(one(outputs) for one in tests)) if tests else None
    return NodeEdge(
        config.source,
        config.target,
        test,
        " and ".join(described) or None,
        config.is_default,
        config.delay,
    )


def _handoff(source: str, target: str) -> NodeEdge:
    return NodeEdge(
        source, target, lambda outputs: outputs.get(HANDOFF) == target, f"{HANDOFF} equals {target!r}", kind="handoff"
    )


def placed(predicate: Callable[[Any], bool], place: str) -> Callable[[Any], bool]:
    """The same, whose failures name their place. It is given copies: what it does to them is nobody's. Raises
    InvalidDefinition for one that is async."""
    if is_async(predicate):
        problem = f"expected a plain function, {getattr(predicate, '__name__', predicate)!r} is async"
        raise InvalidDefinition([(place, f"{problem}: an agent can find out what takes time")])

    def told(given: Any) -> bool:
        try:
            return bool(predicate(isolated(given)))
        except Exception as error:
            raise PredicateFailed(f"{place}: {type(error).__name__}: {error}") from error

    return told


def _name_of(predicate: Any) -> str:
    """The same in every process: a checkpoint must fit it."""
    while isinstance(predicate, functools.partial):
        predicate = predicate.func
    return str(getattr(predicate, "__name__", None) or type(predicate).__qualname__)
