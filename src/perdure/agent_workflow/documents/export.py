"""A workflow written down, so that another process can make the same of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.agent_workflow.builder.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.config import EdgeConfig, NodeConfig, WorkflowConfig
from perdure.agent_workflow.definition.references import find_path, path_of
from perdure.agent_workflow.documents.read import config_of
from perdure.agent_workflow.documents.rules import Problem, at, below
from perdure.agent_workflow.documents.shape import tree_of
from perdure.agents.tools import Tool
from perdure.errors import InvalidDefinition


def exported(draft: Draft, format: str) -> str:
    """`json` or `yaml`. Raises InvalidDefinition for what cannot be written down, all of it at once."""
    if format not in ("json", "yaml"):
        raise ValueError(f"export_config expects 'json' or 'yaml', got {format!r}.")
    tree = tree_of(config_for(draft))
    if format == "json":
        return json.dumps(tree, ensure_ascii=False, indent=2) + "\n"
    from perdure.agent_workflow.documents.read import to_yaml

    return to_yaml(tree)


def config_for(draft: Draft) -> WorkflowConfig:
    """The definition, with what only Python has written by its import path. Raises InvalidDefinition."""
    from perdure.agent_workflow.compile.assemble import definition_of

    writing = _Writing()
    agents = {node_id: writing.node(node, at("agents", node_id)) for node_id, node in draft.nodes.items()}
    edges = tuple(writing.edge(edge, at("edges", index)) for index, edge in enumerate(draft.edges))
    if writing.problems:
        raise InvalidDefinition(writing.problems)
    whole = msgspec.structs.replace(definition_of(draft), agents=agents, edges=edges)
    return config_of(tree_of(whole))  # as it will be read


class _Writing:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def _written(self, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except InvalidDefinition as error:
            self.problems += error.problems
            return None

    def _path(self, thing: Any, place: str, what: str) -> Any:
        return self._written(lambda: path_of(thing, place, what))

    def edge(self, edge: EdgeDraft, place: str) -> EdgeConfig:
        config = edge.config
        if config.predicate is None and edge.predicate is not None:
            path = self._path(edge.predicate, f"{place}.predicate", "the function")
            config = msgspec.structs.replace(config, predicate=path)
        return config

    def node(self, node: NodeDraft, place: str) -> NodeConfig:
        config = node.config
        changes: dict[str, Any] = {}
        if config.agent is None and node.agent is not None:
            changes["agent"] = self._path(node.agent, f"{place}.agent", "the agent")
        if config.workflow is None and node.workflow is not None:
            changes["workflow"] = self._workflow(node.workflow, f"{place}.workflow")
        if not config.output_types and node.types:
            changes["output_types"] = tuple(
                self._path(one, f"{place}.output_types[{index}]", "the type") for index, one in enumerate(node.types)
            )
        if not config.tools and node.tools:
            changes["tools"] = tuple(
                self._path(_written_as(one), f"{place}.tools[{index}]", "the tool")
                for index, one in enumerate(node.tools)
            )
        if node.retry is not None:
            how = "a document says a number of attempts, a strategy and delays, or only_transient"
            self.problems.append((f"{place}.retry", f"{node.retry!r} cannot be written down: {how}"))
        approval = config.approval
        if approval is not None and approval.predicate is None and node.needs_approval is not None:
            path = self._path(node.needs_approval, f"{place}.approval.predicate", "the function")
            changes["approval"] = msgspec.structs.replace(approval, predicate=path)
        return msgspec.structs.replace(config, **changes)

    def _workflow(self, workflow: Any, place: str) -> WorkflowConfig | str | None:
        """As part of this document or, where that cannot be, by its import path."""
        try:
            config: WorkflowConfig = workflow.to_config()
        except InvalidDefinition as error:
            path = find_path(workflow)
            if path is None:
                self.problems += below(place, error.problems)
            return path
        return config


def _written_as(tool: Tool) -> Any:
    """The tool if a module has a name for it, else its function, if that makes the same tool again."""
    if find_path(tool) is not None:
        return tool
    again = Tool(tool.function)
    is_same = all(getattr(tool, one) == getattr(again, one) for one in _OF_A_TOOL)
    return tool.function if is_same else tool


_OF_A_TOOL = ("name", "description", "approval", "retry", "timeout", "ends_turn")
