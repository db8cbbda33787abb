"""From a draft to an instance: import paths are resolved, the draft is checked, the graph is compiled."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any

import msgspec

from perdure.agent_workflow.compile.check import content_problems, form_problems
from perdure.agent_workflow.compile.graph import compile_graph, create_planner
from perdure.agent_workflow.definition.config import AgentConfig, SettingsConfig, WorkflowConfig
from perdure.agent_workflow.definition.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.references import resolve
from perdure.agent_workflow.documents.validate import Problem, at, below
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.base import adapt_agent
from perdure.agents.tools import as_tool
from perdure.checkpoints.history.retention import LatestOnly
from perdure.clock import SystemClock
from perdure.errors import InvalidDefinition
from perdure.graph.sub_workflow import is_agent
from perdure.storages import InMemoryCheckpointStorage

MAX_NAME_CHARACTERS = 60
"""Of the nodes' ids in the name of a workflow."""


def build_instance(draft: Draft) -> AgentWorkflowInstance:
    """Raises InvalidDefinition with all problems."""
    draft = draft.copy()
    draft.name = draft.name or default_name(draft.nodes)
    settings = draft.settings
    # Checks of the content need a definition of the right form, and agents need a definition without problems.
    problems = form_problems(draft)
    problems = problems or [*resolve_imports(draft), *content_problems(draft)]
    problems = problems or _create_agents(draft)
    if problems:
        raise InvalidDefinition(problems, draft.source)
    planner = create_planner(draft)
    clock = draft.clock or SystemClock()
    storage = draft.store if settings.checkpointing else None
    if storage is None:
        storage = InMemoryCheckpointStorage(retention=LatestOnly)
    workflow = compile_graph(draft, planner, storage=storage, is_inner=False)
    return AgentWorkflowInstance(
        draft.to_config(), workflow, clock, draft, planner, store=draft.store, is_durable=settings.checkpointing
    )


def default_name(nodes: Collection[str]) -> str:
    """The name of a workflow without one: equal in every process, and different for other nodes."""
    names = "-".join(nodes)
    if len(names) > MAX_NAME_CHARACTERS:
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        names = f"{names[:MAX_NAME_CHARACTERS]}-{digest}"
    return f"agent-workflow-{names}"


def resolve_imports(draft: Draft) -> list[Problem]:
    """Put the imported objects into the draft. Returns the problems of missing or unsuitable objects."""
    resolver = _Resolver(draft)
    for node_id, node in draft.nodes.items():
        resolver.node(node, at("agents", node_id))
    for index, edge in enumerate(draft.edges):
        resolver.edge(edge, at("edges", index))
    return resolver.problems


class _Resolver:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.problems: list[Problem] = []

    def _resolve(self, import_path: str, path: str, words: str, allows: Callable[[Any], bool]) -> Any:
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

    def edge(self, edge: EdgeDraft, path: str) -> None:
        if edge.config.predicate is not None:
            where = f"{path}.predicate"
            edge.predicate = self._resolve(edge.config.predicate, where, "a function of the outputs", callable)

    def node(self, node: NodeDraft, path: str) -> None:
        config = node.config
        if config.output_types:
            kinds = [
                self._resolve(import_path, f"{path}.output_types[{index}]", "a type", _is_type)
                for index, import_path in enumerate(config.output_types)
            ]
            node.types = tuple(kind for kind in kinds if kind is not None)
        if config.tools:
            tools = self._tools(config.tools, f"{path}.tools")
            node.tools = tuple(map(as_tool, tools))
        if config.approval is not None and config.approval.predicate is not None:
            where, words = f"{path}.approval.predicate", "a function of an ApprovalContext"
            node.needs_approval = self._resolve(config.approval.predicate, where, words, callable)
        if isinstance(config.agent, AgentConfig):
            self._tools(config.agent.tools, f"{path}.agent.tools")
        elif config.agent is not None:
            words = "an agent, or a function that makes one"
            node.agent = self._resolve(config.agent, f"{path}.agent", words, _is_agent)
        if config.workflow is not None:
            node.workflow = self._workflow(config.workflow, f"{path}.workflow")

    def _tools(self, import_paths: tuple[str, ...], path: str) -> list[Any]:
        tools = [
            self._resolve(import_path, at(path, index), "a function", callable)
            for index, import_path in enumerate(import_paths)
        ]
        return [tool for tool in tools if tool is not None]

    def _workflow(self, workflow: WorkflowConfig | str, path: str) -> Any:
        if isinstance(workflow, str):
            return self._resolve(workflow, path, "a workflow that was built", _is_workflow)
        inner, outer = Draft.from_config(workflow), self._draft
        inner.settings = _inner_settings(inner.settings, outer.settings)
        inner.session_store, inner.clock, inner.durability = outer.session_store, outer.clock, outer.durability
        try:
            return build_instance(inner)
        except InvalidDefinition as error:
            self.problems += below(path, error.problems)
            return None


def _inner_settings(own: SettingsConfig, outer: SettingsConfig) -> SettingsConfig:
    """The inner workflow is part of the outer execution, which the store saves. Its agents may share the outer
    model."""
    return msgspec.structs.replace(own, checkpointing=False, model=own.model or outer.model)


def _is_workflow(thing: Any) -> bool:
    return isinstance(thing, AgentWorkflowInstance)


def _is_agent(thing: Any) -> bool:
    return is_agent(thing) or (callable(thing) and not isinstance(thing, type))


def _is_type(thing: Any) -> bool:
    return isinstance(thing, type) or hasattr(thing, "__origin__")


def _create_agents(draft: Draft) -> list[Problem]:
    """Put the agent of each node into the draft. Returns the problems of those that cannot be created or used."""
    problems: list[Problem] = []
    for node_id, node in draft.nodes.items():
        path = at("agents", node_id) + ".agent"
        try:
            if node.workflow is None:
                node.agent = _check_agent(_find_agent(node, node_id, path, draft.settings.model), path)
        except InvalidDefinition as error:
            problems += error.problems
    return problems


def _find_agent(node: NodeDraft, node_id: str, path: str, model: str | None) -> Any:
    """The agent object, or the agent of a config or a function."""
    config = node.config.agent
    if isinstance(config, AgentConfig):
        return create_agent(config, node_id, config.model or model or "")
    return node.agent if config is None else _call_factory(node.agent, config, path)


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
