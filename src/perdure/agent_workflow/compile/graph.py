"""A draft as a graph of the engine: a conductor, and an executor for each node."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from perdure.agent_workflow.compile.outputs import givers_of, needs_of
from perdure.agent_workflow.conversations.policy import Conversations
from perdure.agent_workflow.definition.config import END, START, AgentConfig
from perdure.agent_workflow.definition.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.references import resolve
from perdure.agent_workflow.execution.conductor import Conductor
from perdure.agent_workflow.execution.edge_graph import NodeEdge
from perdure.agent_workflow.execution.node import AgentNode
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.execution.turn import NodeParts, Turnstile
from perdure.agent_workflow.execution.values import HANDOFF, MATCHED_TYPE
from perdure.agents.adapters import adapted
from perdure.errors import InvalidDefinition, PredicateFailed
from perdure.graph.function_executor import is_async
from perdure.graph.sub_workflow import WorkflowExecutor, is_agent
from perdure.isolation import isolate
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow


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
            return bool(predicate(isolate(given)))
        except Exception as error:
            raise PredicateFailed(f"{place}: {type(error).__name__}: {error}") from error

    return told


def _name_of(predicate: Any) -> str:
    """The same in every process: a checkpoint must fit it."""
    while isinstance(predicate, functools.partial):
        predicate = predicate.func
    return str(getattr(predicate, "__name__", None) or type(predicate).__qualname__)


ENOUGH = 1_000_000
"""Supersteps: loops are limited by `max_iterations` of the definition."""


def compiled(draft: Draft, planner: Planner, *, storage: Any, is_inner: bool) -> Workflow:
    """The graph. `is_inner`: it is a node of another, and ends with a result also where it would stop."""
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
        ENOUGH,
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
            tries_again = node.config.retry is not None or node.retry is not None
            contains = is_inner or tries_again or node.config.on_error.mode != "stop"
            inner = WorkflowExecutor(node.workflow.inner(contains=contains), inner_id, propagate_request=True)
            builder.add_edge(executor, inner).add_edge(inner, executor)
    for (source, target), words in _shown(planner).items():
        builder.add_edge(executors[source], executors[target], _named(words))
    return builder.build()


def _shown(planner: Planner) -> dict[tuple[str, str], list[str]]:
    """The edges between nodes, and under which conditions they are taken. Nothing is sent along them, since the
    conductor sends all there is; but they are part of what a checkpoint must fit, and of drawings."""
    shown: dict[tuple[str, str], list[str]] = {}
    for edge in planner.ways.edges:
        if edge.source != START and edge.target != END:
            shown.setdefault((edge.source, edge.target), []).append(edge.description or "always")
    return shown


def _named(words: Sequence[str]) -> Callable[[Any], bool] | None:
    if list(words) == ["always"]:
        return None

    def never(_: Any) -> bool:
        return False

    never.__name__ = never.__qualname__ = " or ".join(sorted(words))
    return never


def _parts(
    node_id: str, node: NodeDraft, draft: Draft, conversations: Conversations | None, inner_id: str | None
) -> NodeParts:
    config, place = node.config, f"agents.{node_id}"
    agent = None if node.workflow is not None else _checked(_agent(node_id, node, draft), f"{place}.agent")
    givers = givers_of(draft)
    asked = node.needs_approval
    predicate = None if asked is None else placed(asked, f"{place}.approval.predicate")
    turnstile = Turnstile(config.max_concurrent)
    return NodeParts(agent, node.types, node.tools, predicate, inner_id, conversations, givers, node.retry, turnstile)


def _agent(node_id: str, node: NodeDraft, draft: Draft) -> Any:
    """The agent that was given, or what a config or an import path stands for."""
    config, place = node.config.agent, f"agents.{node_id}.agent"
    if node.agent is not None:
        return node.agent
    if isinstance(config, str):
        return _made_by(resolve(config, place), config, place)
    if config is None:
        raise InvalidDefinition([(place, "missing: a node needs an agent, or a workflow")])
    return made(config, node_id, draft.settings.model)


def _made_by(found: Any, path: str, place: str) -> Any:
    """An agent is itself; a function without parameters makes one."""
    if not isinstance(found, FunctionType) or hasattr(found, "run"):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        problem = f"{path!r} makes no agent: it needs arguments ({error})"
        raise InvalidDefinition([(place, problem)]) from error
    try:
        return found()
    except Exception as error:
        problem = f"{path!r} failed to make an agent: {type(error).__name__}: {error}"
        raise InvalidDefinition([(place, problem)]) from error


def _checked(agent: Any, place: str) -> Any:
    if isinstance(agent, type):
        problem = f"expected an agent, got the class {agent.__name__}: give an object of it"
        raise InvalidDefinition([(place, problem)])
    if not is_agent(adapted(agent)):
        raise InvalidDefinition([(place, f"expected an agent, with a name and run(messages), got {agent!r:.200}")])
    return agent


def made(config: AgentConfig, node_id: str, model: str | None) -> Any:
    """Raises MissingExtra, and InvalidDefinition where no model is named."""
    from perdure.agents.pydantic.agent import Agent

    place = f"agents.{node_id}.agent"
    chosen = config.model or model
    if chosen is None:
        problem = "missing: name a model here, or one for the whole workflow (settings.model, with_model)"
        raise InvalidDefinition([(f"{place}.model", problem)])
    tools = [resolve(path, f"{place}.tools[{index}]") for index, path in enumerate(config.tools)]
    return Agent(
        chosen,
        name=config.name or node_id,
        instructions=config.instructions,
        description=config.description,
        tools=tools,
        model_settings=config.model_settings or None,
    )
