"""Documents to drafts and back: JSON, YAML, dicts and `WorkflowConfig`, with import paths for Python objects."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from perdure.agent_workflow.condition import Condition
from perdure.agent_workflow.definition import (
    FORMAT,
    Draft,
    EdgeConfig,
    EdgeDraft,
    NodeConfig,
    NodeDraft,
    WorkflowConfig,
)
from perdure.agent_workflow.documents.text import check_tree, read_file, to_yaml
from perdure.agent_workflow.documents.validate import Problem, at, below, read_config, takes_value
from perdure.agents.tools import Tool
from perdure.errors import InvalidDefinition, did_you_mean
from perdure.tree_reader import fields_of

_MAIN = "__main__"


def resolve(import_path: str, path: str) -> Any:
    """The object of an import path. Raises InvalidDefinition with the path in the document."""
    module_name, colon, name = import_path.partition(":")
    if not colon or not module_name or not name:
        problem = f"expected an import path such as 'package.module:name', got {import_path!r}"
        raise InvalidDefinition([(path, problem)])
    main = sys.modules.get(_MAIN)
    try:
        # The running program is not imported a second time: that would run it again.
        is_main = main is not None and module_name == _importable_name(_MAIN, main)
        value: Any = main if is_main else importlib.import_module(module_name)
    except Exception as error:
        raise InvalidDefinition([(path, f"{module_name!r} cannot be imported: {error}")]) from error
    for part in name.split("."):
        if not hasattr(value, part):
            names = [known for known in vars(value) if not known.startswith("_")] if hasattr(value, "__dict__") else []
            raise InvalidDefinition([(path, f"{module_name!r} has no {name!r}{did_you_mean(part, names)}")])
        value = getattr(value, part)
    return value


def _importable_name(module_name: str, module: ModuleType) -> str | None:
    """The name by which another process can import the module, also if it is the program of this process."""
    if module_name != _MAIN:
        return module_name
    if module.__spec__ is not None:  # python -m package.module
        return module.__spec__.name
    file = getattr(module, "__file__", None)
    stem = None if file is None else Path(file).stem
    return stem if stem is not None and stem.isidentifier() else None


def find_import_path(thing: Any) -> str | None:
    """The import path of this very object: a function, a class, or another object with a name in a module; None if it
    has none."""
    own = _own_path(thing)
    if own is not None:
        return own
    paths = sorted(_paths_to(thing), key=lambda path: (":_" in path, path.count("."), path))
    return paths[0] if paths else None


def _own_path(thing: Any) -> str | None:
    """The path of its definition, if it still leads to this object."""
    module_name, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    importable = None if module is None else _importable_name(str(module_name), module)
    if importable is None or not isinstance(name, str):
        return None
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return f"{importable}:{name}" if value is thing else None


def _paths_to(thing: Any) -> Iterator[str]:
    for module_name, module in list(sys.modules.items()):
        named = list(getattr(module, "__dict__", {}).items())
        for name in [name for name, value in named if value is thing]:
            importable = _importable_name(module_name, module)
            if importable is not None and name.isidentifier():
                yield f"{importable}:{name}"


def tree_of(part: msgspec.Struct) -> dict[str, Any]:
    """A part of a definition as in a document, without default values."""
    tree: dict[str, Any] = {"format": FORMAT} if isinstance(part, WorkflowConfig) else {}
    for key, field in fields_of(type(part)).items():
        value = getattr(part, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.required or type(value) is not type(default) or value != default:
            tree[key] = as_tree(value)
    if isinstance(part, Condition) and takes_value(part.type):
        tree["value"] = as_tree(part.value)  # null is a value too
    return tree


def as_tree(value: Any) -> Any:
    """A copy of the value, with parts of definitions as trees."""
    if isinstance(value, msgspec.Struct):
        return tree_of(value) if type(value).__module__ in _OWN else value
    if isinstance(value, list | tuple):
        return [as_tree(item) for item in value]
    if isinstance(value, Mapping):
        return {key: as_tree(item) for key, item in value.items()}
    return value


_OWN = frozenset({Condition.__module__, WorkflowConfig.__module__})
"""Other Structs, in `context`, are not parts of a document."""


def read_draft(source: str | os.PathLike[str] | Mapping[str, Any] | WorkflowConfig) -> Draft:
    """From a file of JSON or YAML, a dict, or a WorkflowConfig. Raises InvalidDefinition with all problems of its form;
    `build` checks the content."""
    if isinstance(source, WorkflowConfig | Mapping):
        tree = check_tree(as_tree(check_tree(source)))
        return Draft.from_config(config_of(tree))
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"from_config expects the path of a file, a dict or a WorkflowConfig, got {source!r:.200}.")
    file = str(Path(source))
    return Draft.from_config(config_of(read_file(source), file), file)


def config_of(tree: Any, source: str | None = None) -> WorkflowConfig:
    """The definition from the content of a document. Raises InvalidDefinition."""
    config, problems = read_config(tree)
    if problems:
        raise InvalidDefinition(problems, source)
    return cast(WorkflowConfig, config)


def export_draft(draft: Draft, format: str) -> str:
    """As `json` or `yaml`. Raises InvalidDefinition with all objects that have no import path."""
    if format not in ("json", "yaml"):
        raise ValueError(f"export_config expects 'json' or 'yaml', got {format!r}.")
    tree = tree_of(config_for(draft))
    return to_yaml(tree) if format == "yaml" else json.dumps(tree, ensure_ascii=False, indent=2) + "\n"


def config_for(draft: Draft) -> WorkflowConfig:
    """The definition, with Python objects by their import paths. Raises InvalidDefinition."""
    writer = _ImportPathWriter()
    agents = {node_id: writer.node(node, at("agents", node_id)) for node_id, node in draft.nodes.items()}
    edges = tuple(writer.edge(edge, at("edges", index)) for index, edge in enumerate(draft.edges))
    if writer.problems:
        raise InvalidDefinition(writer.problems)
    config = msgspec.structs.replace(draft.to_config(), agents=agents, edges=edges)
    return config_of(tree_of(config))  # equal to what a reader gets


class _ImportPathWriter:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def _import_path(self, thing: Any, path: str, what: str) -> Any:
        """None, and a recorded problem, if the object has none."""
        import_path = find_import_path(thing)
        if import_path is None:
            advice = "Define it at the top of a module that can be imported"
            problem = f"{what} {thing!r:.200} has no import path, so it cannot be exported. {advice}"
            self.problems.append((path, problem))
        return import_path

    def _import_paths(self, things: Iterable[Any], path: str, what: str) -> tuple[Any, ...]:
        return tuple(self._import_path(thing, at(path, index), what) for index, thing in enumerate(things))

    def edge(self, edge: EdgeDraft, path: str) -> EdgeConfig:
        config = edge.config
        if config.predicate is None and edge.predicate is not None:
            import_path = self._import_path(edge.predicate, f"{path}.predicate", "the function")
            config = msgspec.structs.replace(config, predicate=import_path)
        return config

    def node(self, node: NodeDraft, path: str) -> NodeConfig:
        config = node.config
        changes: dict[str, Any] = {}
        if config.agent is None and node.agent is not None:
            changes["agent"] = self._import_path(node.agent, f"{path}.agent", "the agent")
        if config.workflow is None and node.workflow is not None:
            changes["workflow"] = self._workflow(node.workflow, f"{path}.workflow")
        if not config.output_types and node.types:
            changes["output_types"] = self._import_paths(node.types, f"{path}.output_types", "the type")
        if not config.tools and node.tools:
            changes["tools"] = self._import_paths(map(_importable_form, node.tools), f"{path}.tools", "the tool")
        if node.retry is not None:
            how = "a document holds a number of attempts, a strategy and delays, or only_transient"
            self.problems.append((f"{path}.retry", f"{node.retry!r} cannot be exported: {how}"))
        approval = config.approval
        if approval is not None and approval.predicate is None and node.needs_approval is not None:
            import_path = self._import_path(node.needs_approval, f"{path}.approval.predicate", "the function")
            changes["approval"] = msgspec.structs.replace(approval, predicate=import_path)
        return msgspec.structs.replace(config, **changes)

    def _workflow(self, workflow: Any, path: str) -> WorkflowConfig | str | None:
        """As a part of this document or, if that is not possible, by its import path."""
        try:
            config: WorkflowConfig = workflow.to_config()
        except InvalidDefinition as error:
            import_path = find_import_path(workflow)
            if import_path is None:
                self.problems += below(path, error.problems)
            return import_path
        return config


def _importable_form(tool: Tool) -> Any:
    """The tool if a module has a name for it, else its function if that gives an equal tool."""
    if find_import_path(tool) is not None:
        return tool
    other, fields = Tool(tool.function), ("name", "description", "approval", "retry", "timeout", "ends_turn")
    return tool.function if all(getattr(tool, field) == getattr(other, field) for field in fields) else tool
