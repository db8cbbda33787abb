"""Documents to drafts and back: JSON, YAML, dicts and `WorkflowConfig`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agent_workflow.definition.condition import Condition
from perdure.agent_workflow.definition.config import FORMAT, EdgeConfig, NodeConfig, WorkflowConfig
from perdure.agent_workflow.definition.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.references import find_path, path_of
from perdure.agent_workflow.documents.validate import (
    SCHEMA_KEY,
    Problem,
    at,
    below,
    form_of,
    problems_in,
    takes_value,
)
from perdure.agent_workflow.documents.yaml_subset import from_yaml, to_yaml
from perdure.agents.tools import Tool
from perdure.errors import InvalidDefinition


def tree_of(part: msgspec.Struct) -> dict[str, Any]:
    """As a document has it: what is as it would be anyway is left out."""
    tree: dict[str, Any] = {"format": FORMAT} if isinstance(part, WorkflowConfig) else {}
    for one in form_of(type(part)).fields:
        value = getattr(part, one.name)
        default = one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory()
        if one.required or type(value) is not type(default) or value != default:
            tree[one.encode_name] = as_tree(value)
    if isinstance(part, Condition) and _compares(part):
        tree["value"] = as_tree(part.value)  # null is a value too
    return tree


def _compares(one: Condition) -> bool:
    return takes_value(one.type)


def as_tree(value: Any) -> Any:
    """A copy of it, with parts of definitions as trees."""
    if isinstance(value, msgspec.Struct):
        return tree_of(value) if type(value).__module__ in _OWN else value
    if isinstance(value, list | tuple):
        return [as_tree(one) for one in value]
    if isinstance(value, Mapping):
        return {key: as_tree(one) for key, one in value.items()}
    return value


_OWN = frozenset({Condition.__module__, WorkflowConfig.__module__})
"""Structs of others, in `context`, are no parts of a document."""
Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | WorkflowConfig"
Format: TypeAlias = Literal["json", "yaml"]
MOST_LEVELS = 100
"""Of mappings and lists in each other."""
MOST_VALUES = 200_000
"""With each alias counted as what it stands for."""
_FORMATS: Mapping[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read(source: Source) -> tuple[Any, str | None]:
    """What is in it, and the file that it was read from. Raises InvalidDefinition."""
    if isinstance(source, WorkflowConfig | Mapping):
        return _measured(as_tree(_measured(source, None)), None), None
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"from_config expects the path of a file, a dict or a WorkflowConfig, got {source!r:.200}.")
    path = Path(source)
    written_in = _FORMATS.get(path.suffix.lower())
    if written_in is None:
        problem = f"expected the path of a file that ends in .json, .yaml or .yml, got {str(source)!r:.200}"
        raise InvalidDefinition([("", problem)])
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidDefinition([("", f"the file cannot be read: {error.strerror or error}")], name) from error
    except UnicodeDecodeError as error:
        raise InvalidDefinition([("", f"the file is not UTF-8, from byte {error.start} on")], name) from error
    return read_text(text, written_in, name), name


def read_text(text: str, format: Format, source: str | None = None) -> Any:
    """What a document's text says. Raises InvalidDefinition, with line and column, or the place."""
    try:
        tree = from_yaml(text, source) if format == "yaml" else _from_json(text, source)
    except RecursionError as error:
        raise InvalidDefinition([("", _TOO_DEEP)], source) from error
    measured = _measured(tree, source)
    repeated = list(_repeated(measured, ""))
    if repeated:
        raise InvalidDefinition(repeated, source)
    return measured


class _WithRepeated(dict[str, Any]):
    """A mapping of which some keys were there twice."""

    repeated: tuple[str, ...] = ()


def _from_json(text: str, source: str | None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_mapping, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidDefinition([(place, f"not JSON: {error.msg}")], source) from error
    except ValueError as error:
        raise InvalidDefinition([("", f"not JSON: {error}")], source) from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    keys = [key for key, _ in pairs]
    odd = _WithRepeated(made)
    odd.repeated = tuple(dict.fromkeys(key for key in keys if keys.count(key) > 1))
    return odd


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number that JSON has")


def _repeated(tree: Any, place: str) -> Iterator[Problem]:
    if isinstance(tree, _WithRepeated):
        yield from ((at(place, key), "the key is there twice") for key in tree.repeated)
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _repeated(value, at(place, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _repeated(value, at(place, index))


_TOO_DEEP = f"nested too deeply: at most {MOST_LEVELS} mappings and lists in each other"


def _measured(tree: Any, source: str | None) -> Any:
    """The tree. Raises InvalidDefinition for one that nobody can have written, such as aliases of aliases."""
    left, count = [(tree, 1)], 0
    while left:
        value, level = left.pop()
        count += 1
        if level > MOST_LEVELS:
            raise InvalidDefinition([("", _TOO_DEEP)], source)
        if count > MOST_VALUES:
            problem = f"too large: at most {MOST_VALUES:,} values, with aliases counted as what they stand for"
            raise InvalidDefinition([("", problem)], source)
        if isinstance(value, Mapping):
            left += [(one, level + 1) for one in value.values()]
        elif isinstance(value, list | tuple):
            left += [(one, level + 1) for one in value]
    return tree


def drafted(source: Source) -> Draft:
    """A file of JSON or YAML, a dict, or a WorkflowConfig. Raises InvalidDefinition for what has not the form of a
    document, with all that is wrong; whether the workflow is sound is found out when it is built."""
    tree, file = read(source)
    return Draft.from_config(config_of(tree, file), file)


def config_of(tree: Any, source: str | None = None) -> WorkflowConfig:
    """What was read, as a definition. Raises InvalidDefinition."""
    problems = problems_in(tree)
    if problems:
        raise InvalidDefinition(problems, source)
    try:
        return msgspec.convert({key: value for key, value in tree.items() if key != SCHEMA_KEY}, WorkflowConfig)
    except msgspec.ValidationError as error:  # whatever the words above do not cover
        raise InvalidDefinition([("", str(error))], source) from error


def exported(draft: Draft, format: str) -> str:
    """`json` or `yaml`. Raises InvalidDefinition for what cannot be written down, all of it at once."""
    if format not in ("json", "yaml"):
        raise ValueError(f"export_config expects 'json' or 'yaml', got {format!r}.")
    tree = tree_of(config_for(draft))
    if format == "json":
        return json.dumps(tree, ensure_ascii=False, indent=2) + "\n"
    return to_yaml(tree)


def config_for(draft: Draft) -> WorkflowConfig:
    """The definition, with what only Python has written by its import path. Raises InvalidDefinition."""
    writing = _Writing()
    agents = {node_id: writing.node(node, at("agents", node_id)) for node_id, node in draft.nodes.items()}
    edges = tuple(writing.edge(edge, at("edges", index)) for index, edge in enumerate(draft.edges))
    if writing.problems:
        raise InvalidDefinition(writing.problems)
    whole = msgspec.structs.replace(draft.to_config(), agents=agents, edges=edges)
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
