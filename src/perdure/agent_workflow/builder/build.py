"""From a draft to an instance: import paths are resolved, the draft is checked, the graph is compiled."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from perdure.agent_workflow import condition
from perdure.agent_workflow.builder.check import content_problems
from perdure.agent_workflow.conversations import Conversations
from perdure.agent_workflow.definition import END, START, AgentConfig, Draft, EdgeDraft, NodeDraft, WorkflowConfig
from perdure.agent_workflow.documents.convert import resolve, tree_of
from perdure.agent_workflow.documents.validate import Problem, at, below, read_config
from perdure.agent_workflow.execution.conductor import Conductor
from perdure.agent_workflow.execution.node import AgentNode
from perdure.agent_workflow.execution.planner import EdgeGraph, NodeEdge, Planner
from perdure.agent_workflow.execution.turn import Turns
from perdure.agent_workflow.execution.values import HANDOFF, MATCHED_TYPE, needs_of, outputs_by_node
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.base import adapt_agent
from perdure.agents.tools import as_tool
from perdure.checkpoints.history.retention import LatestOnly
from perdure.errors import InvalidDefinition, PredicateFailed
from perdure.graph.graph import WorkflowExecutor, is_agent
from perdure.isolation import isolate
from perdure.names import join_names
from perdure.storages import InMemoryCheckpointStorage
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow


def build_instance(draft: Draft) -> AgentWorkflowInstance:
    """Raises InvalidDefinition with all problems."""
    draft = draft.copy()
    if not draft.config.name:
        draft.change(name=join_names("agent-workflow", draft.nodes))
    # Checks of the content need a definition of the right form, and agents need a definition without problems.
    _, problems = read_config(tree_of(draft.to_config()), is_document=False)
    problems = problems or [*resolve_imports(draft), *content_problems(draft)]
    problems = problems or _create_agents(draft)
    if problems:
        raise InvalidDefinition(problems, draft.source)
    planner = create_planner(draft)
    storage = draft.store if draft.settings.checkpointing else None
    if storage is None:
        storage = InMemoryCheckpointStorage(retention=LatestOnly)
    return AgentWorkflowInstance(draft, compile_graph(draft, planner, storage=storage, is_inner=False), planner)


def resolve_imports(draft: Draft) -> list[Problem]:
    """Put the imported objects into the draft. Returns the problems of missing or unsuitable objects."""
    resolver = _Resolver(draft)
    for node_id, node in draft.nodes.items():
        resolver.node(node, at("agents", node_id))
    for index, edge in enumerate(draft.edges):
        if edge.config.predicate is not None:
            path, words = f"{at('edges', index)}.predicate", "a function of the outputs"
            edge.predicate = resolver.resolve(edge.config.predicate, path, words, callable)
    return resolver.problems


class _Resolver:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.problems: list[Problem] = []

    def resolve(self, import_path: str, path: str, words: str, allows: Callable[[Any], bool]) -> Any:
        """None, and a recorded problem, if the object is missing or unsuitable."""
        try:
            value = resolve(import_path, path)
        except InvalidDefinition as error:
            self.problems += error.problems
            return None
        if allows(value):
            return value
        self.problems.append((path, f"expected {words}; {import_path!r} is {value!r:.200}"))
        return None

    def node(self, node: NodeDraft, path: str) -> None:
        config = node.config
        if config.output_types:
            node.types = tuple(self._resolve_all(config.output_types, f"{path}.output_types", "a type", _is_type))
        if config.tools:
            node.tools = tuple(map(as_tool, self._resolve_all(config.tools, f"{path}.tools", "a function", callable)))
        if config.approval is not None and config.approval.predicate is not None:
            where, words = f"{path}.approval.predicate", "a function of an ApprovalContext"
            node.needs_approval = self.resolve(config.approval.predicate, where, words, callable)
        if isinstance(config.agent, AgentConfig):
            self._resolve_all(config.agent.tools, f"{path}.agent.tools", "a function", callable)
        elif config.agent is not None:
            words = "an agent, or a function that makes one"
            node.agent = self.resolve(config.agent, f"{path}.agent", words, _is_agent)
        if config.workflow is not None:
            node.workflow = self._workflow(config.workflow, f"{path}.workflow")

    def _resolve_all(
        self, import_paths: tuple[str, ...], path: str, words: str, allows: Callable[[Any], bool]
    ) -> list[Any]:
        values = [self.resolve(name, at(path, index), words, allows) for index, name in enumerate(import_paths)]
        return [value for value in values if value is not None]

    def _workflow(self, workflow: WorkflowConfig | str, path: str) -> Any:
        if isinstance(workflow, str):
            words = "a workflow that was built"
            return self.resolve(workflow, path, words, lambda thing: isinstance(thing, AgentWorkflowInstance))
        inner, outer = Draft.from_config(workflow), self._draft
        # It is part of the outer execution, which the store saves. Its agents may share the outer model.
        inner.change_settings(checkpointing=False, model=inner.settings.model or outer.settings.model)
        inner.session_store, inner.clock, inner.durability = outer.session_store, outer.clock, outer.durability
        try:
            return build_instance(inner)
        except InvalidDefinition as error:
            self.problems += below(path, error.problems)
            return None


def _is_agent(thing: Any) -> bool:
    return is_agent(thing) or (callable(thing) and not isinstance(thing, type))


def _is_type(thing: Any) -> bool:
    return isinstance(thing, type) or hasattr(thing, "__origin__")


def _create_agents(draft: Draft) -> list[Problem]:
    """Put the agent of each node into the draft. Returns the problems of those that cannot be created or used."""
    problems: list[Problem] = []
    for node_id, node in draft.nodes.items():
        path, config = at("agents", node_id) + ".agent", node.config.agent
        try:
            if isinstance(config, AgentConfig):
                node.agent = create_agent(config, node_id, config.model or draft.settings.model or "")
            elif config is not None:
                node.agent = _call_factory(node.agent, config, path)
        except InvalidDefinition as error:
            problems += error.problems
            continue
        if isinstance(node.agent, type):
            problems.append((path, f"expected an agent, got the class {node.agent.__name__}: give an object of it"))
        elif node.workflow is None and not is_agent(adapt_agent(node.agent)):
            problems.append((path, f"expected an agent, with a name and run(messages), got {node.agent!r:.200}"))
    return problems


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


def create_agent(config: AgentConfig, node_id: str, model: str) -> Any:
    """Raises MissingExtra."""
    from perdure.agents.pydantic.agent import Agent

    path = f"agents.{node_id}.agent"
    tools = [resolve(import_path, f"{path}.tools[{index}]") for index, import_path in enumerate(config.tools)]
    return Agent(
        model,
        name=config.name or node_id,
        instructions=config.instructions,
        description=config.description,
        tools=tools,
        model_settings=config.model_settings or None,
    )


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
            is_chosen = condition.equals(HANDOFF, link.target)
            edges.append(NodeEdge(*ends, is_chosen.holds, str(is_chosen), kind="handoff"))
    return Planner(
        graph=EdgeGraph(tuple(nodes), edges),
        error_modes={node_id: node.config.on_error.mode for node_id, node in nodes.items()},
        routers={node_id for node_id, node in nodes.items() if node.config.output_mode == "handoff"},
        max_passes=draft.settings.max_iterations or 1,
        converges=draft.settings.convergence,
        needs=needs_of(draft),
        # With a conversation, a repeated turn knows more messages than the turn before.
        skips_unchanged=draft.settings.conversation.mode == "none",
    )


def _edge(edge: EdgeDraft, index: int) -> NodeEdge:
    config = edge.config
    tests: list[tuple[Callable[[Mapping[str, Any]], bool], str]] = []
    if config.when is not None:
        tests.append((config.when.holds, str(config.when)))
    if edge.predicate is not None:
        tests.append((isolate_predicate(edge.predicate, f"edges[{index}].predicate"), _name_of(edge.predicate)))
    if config.matched_type is not None:
        is_matched = condition.equals(MATCHED_TYPE, config.matched_type)
        tests.append((is_matched.holds, str(is_matched)))
    test = (lambda outputs: all(each(outputs) for each, _ in tests)) if tests else None
    described = [words for _, words in tests] + ["default"] * config.is_default
    description = " and ".join(described) or None
    return NodeEdge(config.source, config.target, test, description, config.is_default, config.delay)


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
    config, conversations = draft.settings.conversation, None
    if config.mode != "none":
        conversations = Conversations(config, draft.config.name, draft.session_store)
    conductor = Conductor(draft, planner, conversations)
    builder = WorkflowBuilder(
        MAX_SUPERSTEPS,
        draft.config.name,
        draft.config.description,
        start_executor=conductor,
        checkpoint_storage=storage,
        output_from=[conductor],
        durability=draft.durability,
        clock=draft.clock,
    )
    executors: dict[str, AgentNode] = {}
    known_outputs = outputs_by_node(draft)
    for node_id, node in draft.nodes.items():
        if node.needs_approval is not None:
            predicate = isolate_predicate(node.needs_approval, f"agents.{node_id}.approval.predicate")
            node = replace(node, needs_approval=predicate)
        turns = Turns(node_id, node, known_outputs)
        executor = AgentNode(turns, draft.config.name, conversations=conversations, is_inner=is_inner)
        executors[node_id] = executor
        builder.add_edge(conductor, executor).add_edge(executor, conductor)
        if node.workflow is not None:
            has_retry = node.config.retry is not None or node.retry is not None
            # A failure of it ends it with a result, unless it stops the whole execution.
            contains = is_inner or has_retry or node.config.on_error.mode != "stop"
            graph = compile_graph(node.workflow._draft, node.workflow.planner, storage=None, is_inner=contains)
            inner = WorkflowExecutor(graph, executor.inner_id, propagate_request=True)
            builder.add_edge(executor, inner).add_edge(inner, executor)
    # No message is sent along edges between nodes, since the conductor sends all. But they are part of the graph's
    # signature and of drawings.
    conditions: dict[tuple[str, str], list[str]] = {}
    for edge in planner.graph.edges:
        if edge.source != START and edge.target != END:
            conditions.setdefault((edge.source, edge.target), []).append(edge.description or "always")
    for (source, target), words in conditions.items():
        builder.add_edge(executors[source], executors[target], _name_condition(words))
    return builder.build()


def _name_condition(words: Sequence[str]) -> Callable[[Any], bool] | None:
    if list(words) == ["always"]:
        return None

    def never(_: Any) -> bool:
        return False

    never.__name__ = never.__qualname__ = " or ".join(sorted(words))
    return never
