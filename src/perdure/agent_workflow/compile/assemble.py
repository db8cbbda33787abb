"""A draft made into a graph: a conductor, and an executor for each node."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any

from perdure.agent_workflow import store as stores
from perdure.agent_workflow.builder.draft import Draft, NodeDraft
from perdure.agent_workflow.checks.checks import check
from perdure.agent_workflow.checks.outputs import givers_of, needs_of
from perdure.agent_workflow.compile.edges import placed, planner_of
from perdure.agent_workflow.conversations.policy import Conversations
from perdure.agent_workflow.definition.config import END, START, AgentConfig, WorkflowConfig
from perdure.agent_workflow.definition.references import resolve
from perdure.agent_workflow.execution.conductor import Conductor
from perdure.agent_workflow.execution.deadlines import Turnstile
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.node.executor import AgentNode
from perdure.agent_workflow.node.turn import NodeParts
from perdure.agents.adapters import adapted
from perdure.clock import SystemClock
from perdure.errors import InvalidDefinition
from perdure.graph.participants import is_agent
from perdure.graph.sub_workflow import WorkflowExecutor
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow

LONGEST = 60
"""Characters of nodes' ids in the name of a workflow."""
ENOUGH = 1_000_000
"""Supersteps: loops are limited by `max_iterations` of the definition."""


def assembled(draft: Draft) -> AgentWorkflowInstance:
    """Raises InvalidDefinition, with all that is wrong."""
    draft = draft.copy()
    draft.name = draft.name or named_after(draft.nodes)
    settings = draft.settings
    check(draft)
    planner = planner_of(draft)
    clock = draft.clock or SystemClock()
    storage = draft.store if settings.checkpointing and draft.store is not None else stores.memory_storage(None)
    workflow = compiled(draft, planner, storage=storage, is_inner=False)
    return AgentWorkflowInstance(
        definition_of(draft), workflow, clock, draft, planner, store=draft.store, is_kept=settings.checkpointing
    )


def named_after(nodes: Collection[str]) -> str:
    """Of a workflow that was given no name: the same in every process, and another for other nodes."""
    names = "-".join(nodes)
    if len(names) > LONGEST:
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        names = f"{names[:LONGEST]}-{digest}"
    return f"agent-workflow-{names}"


def definition_of(draft: Draft) -> WorkflowConfig:
    return WorkflowConfig(
        name=draft.name,
        version=draft.version,
        description=draft.description,
        agents={node_id: node.config for node_id, node in draft.nodes.items()},
        edges=tuple(edge.config for edge in draft.edges),
        settings=draft.settings,
    )


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
