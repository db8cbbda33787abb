"""From a draft to an instance: import paths are resolved, the draft is checked, the graph is compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from perdure.agent_workflow import store as stores
from perdure.agent_workflow.compile.check import content_problems, form_problems
from perdure.agent_workflow.compile.graph import compiled, planner_of
from perdure.agent_workflow.definition.config import AgentConfig, SettingsConfig, WorkflowConfig
from perdure.agent_workflow.definition.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.references import resolve
from perdure.agent_workflow.documents.validate import Problem, at, below
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.tools import as_tool
from perdure.clock import SystemClock
from perdure.errors import InvalidDefinition
from perdure.graph.sub_workflow import is_agent

LONGEST = 60
"""Characters of nodes' ids in the name of a workflow."""


def assembled(draft: Draft) -> AgentWorkflowInstance:
    """Raises InvalidDefinition, with all that is wrong."""
    draft = draft.copy()
    draft.name = draft.name or named_after(draft.nodes)
    settings = draft.settings
    problems = form_problems(draft)
    if not problems:  # checks of the content need a definition of the right form
        problems = [*resolve_imports(draft), *content_problems(draft)]
    if problems:
        raise InvalidDefinition(problems, draft.source)
    planner = planner_of(draft)
    clock = draft.clock or SystemClock()
    storage = draft.store if settings.checkpointing and draft.store is not None else stores.memory_storage(None)
    workflow = compiled(draft, planner, storage=storage, is_inner=False)
    return AgentWorkflowInstance(
        draft.to_config(), workflow, clock, draft, planner, store=draft.store, is_kept=settings.checkpointing
    )


def named_after(nodes: Collection[str]) -> str:
    """Of a workflow that was given no name: the same in every process, and another for other nodes."""
    names = "-".join(nodes)
    if len(names) > LONGEST:
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        names = f"{names[:LONGEST]}-{digest}"
    return f"agent-workflow-{names}"


def resolve_imports(draft: Draft) -> list[Problem]:
    """Puts what it finds into the draft. Gives what cannot be found, or is something else than it must be."""
    finding = _Finding(draft)
    for node_id, node in draft.nodes.items():
        finding.node(node, at("agents", node_id))
    for index, edge in enumerate(draft.edges):
        finding.edge(edge, at("edges", index))
    return finding.problems


class _Finding:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.problems: list[Problem] = []

    def _found(self, path: str, place: str, words: str, allows: Callable[[Any], bool]) -> Any:
        """None for what cannot be used."""
        try:
            found = resolve(path, place)
        except InvalidDefinition as error:
            self.problems += error.problems
            return None
        if allows(found):
            return found
        self.problems.append((place, f"expected {words}; {path!r} is {found!r:.200}"))
        return None

    def edge(self, edge: EdgeDraft, place: str) -> None:
        if edge.config.predicate is not None:
            where = f"{place}.predicate"
            edge.predicate = self._found(edge.config.predicate, where, "a function of the outputs", callable)

    def node(self, node: NodeDraft, place: str) -> None:
        config = node.config
        if config.output_types:
            kinds = [
                self._found(path, f"{place}.output_types[{index}]", "a type", _is_type)
                for index, path in enumerate(config.output_types)
            ]
            node.types = tuple(one for one in kinds if one is not None)
        if config.tools:
            tools = self._tools(config.tools, f"{place}.tools")
            node.tools = tuple(map(as_tool, tools))
        if config.approval is not None and config.approval.predicate is not None:
            where, words = f"{place}.approval.predicate", "a function of an ApprovalContext"
            node.needs_approval = self._found(config.approval.predicate, where, words, callable)
        if isinstance(config.agent, AgentConfig):
            self._tools(config.agent.tools, f"{place}.agent.tools")
        elif config.agent is not None:
            self._found(config.agent, f"{place}.agent", "an agent, or a function that makes one", _is_agent)
        if config.workflow is not None:
            node.workflow = self._workflow(config.workflow, f"{place}.workflow")

    def _tools(self, paths: tuple[str, ...], place: str) -> list[Any]:
        found = [self._found(path, at(place, index), "a function", callable) for index, path in enumerate(paths)]
        return [one for one in found if one is not None]

    # ------------------------------------------------------------ workflows

    def _workflow(self, given: WorkflowConfig | str, place: str) -> Any:
        if isinstance(given, str):
            return self._found(given, place, "a workflow that was built", _is_workflow)

        inner, outer = Draft.from_config(given), self._draft
        inner.settings = _inner_settings(inner.settings, outer.settings)
        inner.session_store, inner.clock, inner.durability = outer.session_store, outer.clock, outer.durability
        try:
            return assembled(inner)
        except InvalidDefinition as error:
            self.problems += below(place, error.problems)
            return None


def _inner_settings(own: SettingsConfig, outer: SettingsConfig) -> SettingsConfig:
    """It is part of the outer execution, which is what a store keeps; its agents may share the outer model."""
    return msgspec.structs.replace(own, checkpointing=False, model=own.model or outer.model)


def _is_workflow(thing: Any) -> bool:
    return isinstance(thing, AgentWorkflowInstance)


def _is_agent(thing: Any) -> bool:
    return is_agent(thing) or (callable(thing) and not isinstance(thing, type))


def _is_type(thing: Any) -> bool:
    return isinstance(thing, type) or hasattr(thing, "__origin__")
