"""YAML, of which only what JSON has too: `yes`, `on` and dates are texts, and nothing is there twice."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from perdure.agent_workflow.builder.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.definition.config import WorkflowConfig
from perdure.agent_workflow.documents.rules import Problem, at
from perdure.agent_workflow.documents.shape import SCHEMA_KEY, as_tree, problems_in
from perdure.errors import InvalidDefinition, MissingExtra

_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[re.Pattern[str], str]] = {
    "bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), "~nN\0"),
    "int": (re.compile(r"^[-+]?[0-9]+$"), "-+0123456789"),
    "float": (re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), "-+.0123456789"),
}
"""The core schema of YAML 1.2: what a plain scalar must look like, and begin with, to be something else than a text."""
_VALUES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
    "int": int,
    "float": float,
}


def yaml_module() -> Any:
    """Raises MissingExtra."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("A workflow in YAML", "pyyaml", "yaml") from error
    return yaml


def from_yaml(text: str, source: str | None = None) -> Any:
    """Raises InvalidDefinition, with line and column."""
    yaml = yaml_module()
    try:
        node = yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
        problem = ", ".join(one for one in (error.context, error.problem) if one)
        raise InvalidDefinition([(place, f"not YAML: {problem}")], source) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        problem = f"not YAML: the character {chr(error.character)!r} is not allowed"
        raise InvalidDefinition([(f"line {line}, column {column}", problem)], source) from error
    return None if node is None else _Values(source).of(node, "")


@cache
def _loader() -> Any:
    yaml = yaml_module()

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        pass

    Loader.yaml_implicit_resolvers = {}
    for name, (pattern, first) in _SCALARS.items():
        Loader.add_implicit_resolver(_TAG + name, pattern, list(first.replace("\0", "")) + [""] * ("\0" in first))
    return Loader


class _Values:
    """The values of a tree of nodes. What an alias stands for is made once, so that aliases of aliases cost nothing."""

    def __init__(self, source: str | None) -> None:
        self._source = source
        self._made: dict[int, Any] = {}
        self._begun: set[int] = set()

    def _refuse(self, node: Any, place: str, problem: str) -> NoReturn:
        mark = node.start_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
        raise InvalidDefinition([(place, where)], self._source)

    def of(self, node: Any, place: str) -> Any:
        key = id(node)
        if key in self._made:
            return self._made[key]
        if key in self._begun:
            self._refuse(node, place, "an alias of what it is itself part of")
        self._begun.add(key)
        self._made[key] = self._value(node, place)
        return self._made[key]

    def _value(self, node: Any, place: str) -> Any:
        tag = node.tag.removeprefix(_TAG)
        if tag == "map" and node.id == "mapping":
            return self._mapping(node, place)
        if tag == "seq" and node.id == "sequence":
            return [self.of(one, at(place, index)) for index, one in enumerate(node.value)]
        if node.id != "scalar" or tag not in _VALUES:
            self._refuse(node, place, f"the tag {node.tag!r} is not allowed: a workflow is plain data")
        try:
            return _VALUES[tag](node.value)
        except ValueError:
            self._refuse(node, place, f"expected a value of {node.tag!r}, got {node.value!r:.200}")

    def _mapping(self, node: Any, place: str) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.of(key_node, place) if key_node.id == "scalar" else None
            if not isinstance(key, str):
                shown = key_node.value if key_node.id == "scalar" else f"a {key_node.id}"
                self._refuse(key_node, place, f"expected a text as key, got {shown}; write it in quotes")
            if key in made:
                self._refuse(key_node, at(place, key), "the key is there twice")
            if key == "<<" and key_node.style is None:
                self._refuse(key_node, place, "merge keys (<<) are not supported: write the keys down")
            made[key] = self.of(value_node, at(place, key))
        return made


# ---------------------------------------------------------------- writing


def to_yaml(tree: Any) -> str:
    """Read by YAML of any version as the same."""
    options = {"sort_keys": False, "allow_unicode": True, "width": 1_000_000, "default_flow_style": False}
    text: str = yaml_module().dump(tree, Dumper=_dumper(), **options)
    return text


@cache
def _dumper() -> Any:
    yaml = yaml_module()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc,name-defined]
        def ignore_aliases(self, data: Any) -> bool:
            return True  # each is written where it stands

    def text(dumper: Any, value: str) -> Any:
        style = None
        if _reads_well(value):
            style = "|"
        elif not value.isprintable():
            style = '"'  # in others, what looks like a line break to YAML would come back as another
        elif any(pattern.match(value) for pattern, _ in _SCALARS.values()):
            style = "'"
        return dumper.represent_scalar(f"{_TAG}str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def _reads_well(value: str) -> bool:
    """Lines of a text that can stand as they are."""
    return "\n" in value and all(line.isprintable() and line == line.strip() for line in value.split("\n"))


# ---------------------------------------------------------------- document reading


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


# ---------------------------------------------------------------- JSON


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


# ---------------------------------------------------------------- how much there is

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


# ---------------------------------------------------------------- documents


def drafted(source: Source) -> Draft:
    """A file of JSON or YAML, a dict, or a WorkflowConfig. Raises InvalidDefinition for what has not the form of a
    document, with all that is wrong; whether the workflow is sound is found out when it is built."""
    tree, file = read(source)
    return draft_of(config_of(tree, file), file)


def config_of(tree: Any, source: str | None = None) -> WorkflowConfig:
    """What was read, as a definition. Raises InvalidDefinition."""
    problems = problems_in(tree)
    if problems:
        raise InvalidDefinition(problems, source)
    try:
        return msgspec.convert({key: value for key, value in tree.items() if key != SCHEMA_KEY}, WorkflowConfig)
    except msgspec.ValidationError as error:  # whatever the words above do not cover
        raise InvalidDefinition([("", str(error))], source) from error


def draft_of(config: WorkflowConfig, source: str | None = None) -> Draft:
    return Draft(
        name=config.name,
        version=config.version,
        description=config.description,
        nodes={node_id: NodeDraft(node) for node_id, node in config.agents.items()},
        edges=[EdgeDraft(edge) for edge in config.edges],
        settings=config.settings,
        source=source,
    )
