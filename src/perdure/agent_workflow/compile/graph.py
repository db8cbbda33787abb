"""A draft as a graph of the engine: a conductor, and an executor for each node."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from perdure.agent_workflow.compile.outputs import needs_of, outputs_by_node
from perdure.agent_workflow.conversations.policy import Conversations
from perdure.agent_workflow.definition.config import END, START, AgentConfig
from perdure.agent_workflow.definition.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.references import resolve
from perdure.agent_workflow.execution.conductor import Conductor
from perdure.agent_workflow.execution.edge_graph import NodeEdge
from perdure.agent_workflow.execution.node import AgentNode
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.execution.turn import ConcurrencyLimit, NodeParts
from perdure.agent_workflow.execution.values import HANDOFF, MATCHED_TYPE
from perdure.agents.adapters import adapt_agent
from perdure.errors import InvalidDefinition, PredicateFailed
from perdure.graph.executor import is_async
from perdure.graph.sub_workflow import WorkflowExecutor, is_agent
from perdure.isolation import isolate
from perdure.workflows.workflow import Workflow, WorkflowBuilder


def create_planner(draft: Draft) -> Planner:
    """The planner of a checked draft; handoffs and fallbacks become edges."""
    nodes = draft.nodes
    edges = [_edge(edge, index) for index, edge in enumerate(draft.edges)]
    for node_id, node in nodes.items():
        config = node.config
        targets = dict.fromkeys((*(handoff.target for handoff in config.handoffs), config.default_handoff))
        edges += [_handoff(node_id, target) for target in targets if target is not None]
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
    """A predicate that gets a copy of its argument, and whose failures name its path. Raises InvalidDefinition for an
    async function."""
    if is_async(predicate):
        problem = f"expected a plain function, {getattr(predicate, '__name__', predicate)!r} is async"
        raise InvalidDefinition([(path, f"{problem}: use an agent for work that takes time")])

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
            contains = is_inner or has_retry or node.config.on_error.mode != "stop"
            inner = WorkflowExecutor(node.workflow.inner(contains=contains), inner_id, propagate_request=True)
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
    config, path = node.config, f"agents.{node_id}"
    agent = None if node.workflow is not None else _check_agent(_find_agent(node_id, node, draft), f"{path}.agent")
    predicate = None
    if node.needs_approval is not None:
        predicate = isolate_predicate(node.needs_approval, f"{path}.approval.predicate")
    return NodeParts(
        agent,
        node.types,
        node.tools,
        predicate,
        inner_id,
        conversations,
        outputs_by_node(draft),
        node.retry,
        ConcurrencyLimit(config.max_concurrent),
    )


def _find_agent(node_id: str, node: NodeDraft, draft: Draft) -> Any:
    """The agent object, or the agent of a config or an import path."""
    config, path = node.config.agent, f"agents.{node_id}.agent"
    if node.agent is not None:
        return node.agent
    if isinstance(config, str):
        return _call_factory(resolve(config, path), config, path)
    if config is None:
        raise InvalidDefinition([(path, "missing: a node needs an agent, or a workflow")])
    return create_agent(config, node_id, draft.settings.model)


def _call_factory(value: Any, import_path: str, path: str) -> Any:
    """An agent unchanged; the result of a function without parameters."""
    if not isinstance(value, FunctionType) or hasattr(value, "run"):
        return value
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        problem = f"{import_path!r} does not make an agent: it needs arguments ({error})"
        raise InvalidDefinition([(path, problem)]) from error
    try:
        return value()
    except Exception as error:
        problem = f"{import_path!r} failed to make an agent: {type(error).__name__}: {error}"
        raise InvalidDefinition([(path, problem)]) from error


def _check_agent(agent: Any, path: str) -> Any:
    if isinstance(agent, type):
        problem = f"expected an agent, got the class {agent.__name__}: give an object of it"
        raise InvalidDefinition([(path, problem)])
    if not is_agent(adapt_agent(agent)):
        raise InvalidDefinition([(path, f"expected an agent, with a name and run(messages), got {agent!r:.200}")])
    return agent


def create_agent(config: AgentConfig, node_id: str, model: str | None) -> Any:
    """Raises MissingExtra, and InvalidDefinition without a model."""
    from perdure.agents.pydantic.agent import Agent

    path = f"agents.{node_id}.agent"
    model_name = config.model or model
    if model_name is None:
        problem = "missing: name a model here, or one for the whole workflow (settings.model, with_model)"
        raise InvalidDefinition([(f"{path}.model", problem)])
    tools = [resolve(import_path, f"{path}.tools[{index}]") for index, import_path in enumerate(config.tools)]
    return Agent(
        model_name,
        name=config.name or node_id,
        instructions=config.instructions,
        description=config.description,
        tools=tools,
        model_settings=config.model_settings or None,
    )
