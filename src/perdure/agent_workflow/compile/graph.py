"""A draft as a graph of the engine: a conductor, and an executor for each node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.agent_workflow.conversations.policy import Conversations
from perdure.agent_workflow.definition.config import END, START
from perdure.agent_workflow.definition.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.execution.conductor import Conductor
from perdure.agent_workflow.execution.edge_graph import NodeEdge
from perdure.agent_workflow.execution.node import AgentNode
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.execution.turn import ConcurrencyLimit, NodeParts
from perdure.agent_workflow.execution.values import HANDOFF, MATCHED_TYPE, needs_of, outputs_by_node
from perdure.errors import PredicateFailed
from perdure.graph.sub_workflow import WorkflowExecutor
from perdure.isolation import isolate
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow


def create_planner(draft: Draft) -> Planner:
    """The planner of a checked draft; handoffs and fallbacks become edges."""
    nodes = draft.nodes
    edges = [_edge(edge, index) for index, edge in enumerate(draft.edges)]
    handoffs = set[tuple[str, str]]()
    for link in draft.links():
        ends = link.source, link.target
        if link.kind == "fallback":
            edges.append(NodeEdge(*ends, description=f"{link.source} failed", kind="fallback"))
        elif link.kind != "edge" and ends not in handoffs:
            handoffs.add(ends)
            edges.append(_handoff(*ends))
    return Planner(
        tuple(nodes),
        edges,
        error_modes={node_id: node.config.on_error.mode for node_id, node in nodes.items()},
        routers={node_id for node_id, node in nodes.items() if node.config.output_mode == "handoff"},
        max_passes=draft.settings.max_iterations,
        converges=draft.settings.convergence,
        needs=needs_of(draft),
        # With a conversation, a repeated turn knows more messages than the turn before.
        skips_unchanged=draft.settings.conversation.mode == "none",
    )


def _edge(edge: EdgeDraft, index: int) -> NodeEdge:
    config = edge.config
    tests: list[Callable[[Mapping[str, Any]], bool]] = []
    described = []
    if config.when is not None:
        tests.append(config.when.holds)
        described.append(str(config.when))
    if (predicate := edge.predicate) is not None:
        tests.append(isolate_predicate(predicate, f"edges[{index}].predicate"))
        described.append(_name_of(predicate))
    if config.matched_type is not None:
        wanted = config.matched_type
        tests.append(lambda outputs: outputs.get(MATCHED_TYPE) == wanted)
        described.append(f"{MATCHED_TYPE} equals {wanted!r}")
    if config.is_default:
        described.append("default")
    test = (lambda outputs: all(each(outputs) for each in tests)) if tests else None
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


def isolate_predicate(predicate: Callable[[Any], bool], path: str) -> Callable[[Any], bool]:
    """A predicate that gets a copy of its argument, and whose failures name its path."""

    def evaluate(argument: Any) -> bool:
        try:
            return bool(predicate(isolate(argument)))
        except Exception as error:
            raise PredicateFailed(f"{path}: {type(error).__name__}: {error}") from error

    return evaluate


def _name_of(predicate: Any) -> str:
    """The same name in every process: the graph's signature in checkpoints contains it."""
    while isinstance(predicate, functools.partial):
        predicate = predicate.func
    return str(getattr(predicate, "__name__", None) or type(predicate).__qualname__)


MAX_SUPERSTEPS = 1_000_000
"""Loops are limited by `max_iterations` of the definition instead."""


def compile_graph(draft: Draft, planner: Planner, *, storage: Any, is_inner: bool) -> Workflow:
    """The graph. `is_inner`: it is a node of another workflow, and a failure ends it with a result."""
    settings = draft.settings
    conversations = None
    if settings.conversation.mode != "none":
        conversations = Conversations(settings.conversation, draft.name, draft.session_store)
    conductor = Conductor(
        draft.name,
        planner,
        {node_id: node.config.output_key for node_id, node in draft.nodes.items()},
        needs_of(draft),
        version={"name": draft.name, "version": draft.version, "number": draft.number},
        timeout=settings.timeout,
        max_passes=settings.max_iterations,
        conversations=conversations,
    )
    builder = WorkflowBuilder(
        MAX_SUPERSTEPS,
        draft.name,
        draft.description,
        start_executor=conductor,
        checkpoint_storage=storage,
        output_from=[conductor],
        durability=draft.durability,
        clock=draft.clock,
    )
    executors: dict[str, AgentNode] = {}
    for node_id, node in draft.nodes.items():
        inner_id = None if node.workflow is None else f"{node_id}.workflow"
        parts = _parts(node_id, node, draft, conversations, inner_id)
        executor = executors[node_id] = AgentNode(node_id, node.config, parts, draft.name, is_inner=is_inner)
        builder.add_edge(conductor, executor).add_edge(executor, conductor)
        if inner_id is not None:
            has_retry = node.config.retry is not None or node.retry is not None
            # A failure of it ends it with a result, unless it stops the whole execution.
            contains = is_inner or has_retry or node.config.on_error.mode != "stop"
            graph = compile_graph(node.workflow._draft, node.workflow.planner, storage=None, is_inner=contains)
            inner = WorkflowExecutor(graph, inner_id, propagate_request=True)
            builder.add_edge(executor, inner).add_edge(inner, executor)
    for (source, target), conditions in _conditions_by_edge(planner).items():
        builder.add_edge(executors[source], executors[target], _name_condition(conditions))
    return builder.build()


def _conditions_by_edge(planner: Planner) -> dict[tuple[str, str], list[str]]:
    """The edges between nodes, with their conditions. No message is sent along them, since the conductor sends all. But
    they are part of the graph's signature and of drawings."""
    conditions: dict[tuple[str, str], list[str]] = {}
    for edge in planner.graph.edges:
        if edge.source != START and edge.target != END:
            conditions.setdefault((edge.source, edge.target), []).append(edge.description or "always")
    return conditions


def _name_condition(words: Sequence[str]) -> Callable[[Any], bool] | None:
    if list(words) == ["always"]:
        return None

    def never(_: Any) -> bool:
        return False

    never.__name__ = never.__qualname__ = " or ".join(sorted(words))
    return never


def _parts(
    node_id: str, node: NodeDraft, draft: Draft, conversations: Conversations | None, inner_id: str | None
) -> NodeParts:
    predicate = None
    if node.needs_approval is not None:
        predicate = isolate_predicate(node.needs_approval, f"agents.{node_id}.approval.predicate")
    return NodeParts(
        node.agent,
        node.types,
        node.tools,
        predicate,
        inner_id,
        conversations,
        outputs_by_node(draft),
        node.retry,
        ConcurrencyLimit(node.config.max_concurrent),
    )
