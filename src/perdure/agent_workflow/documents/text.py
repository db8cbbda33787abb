"""The text of documents: JSON, and YAML as far as JSON can express it: `yes`, `on` and dates are texts."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

from perdure.agent_workflow.documents.validate import Problem, at
from perdure.errors import InvalidDefinition, MissingExtra

Format: TypeAlias = Literal["json", "yaml"]
MAX_LEVELS = 100
"""Of nested mappings and lists."""
MAX_VALUES = 200_000
"""Each alias counts with the values that it repeats."""
_FORMATS: dict[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read_file(source: str | os.PathLike[str]) -> Any:
    """The content of a document. Raises InvalidDefinition."""
    path = Path(source)
    file_format = _FORMATS.get(path.suffix.lower())
    if file_format is None:
        problem = f"expected the path of a file that ends in .json, .yaml or .yml, got {str(source)!r:.200}"
        raise InvalidDefinition([("", problem)])
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidDefinition([("", f"the file cannot be read: {error.strerror or error}")], name) from error
    except UnicodeDecodeError as error:
        raise InvalidDefinition([("", f"the file is not UTF-8, from byte {error.start} on")], name) from error
    return read_text(text, file_format, name)


def read_text(text: str, format: Format, source: str | None = None) -> Any:
    """The content of a document. Raises InvalidDefinition, with line and column, or the path."""
    try:
        tree = from_yaml(text, source) if format == "yaml" else _from_json(text, source)
    except RecursionError as error:
        raise InvalidDefinition([("", _TOO_DEEP)], source) from error
    return check_tree(tree, source)


class _Mapping(dict[str, Any]):
    """A mapping of JSON, and the keys that it repeats."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]


def _from_json(text: str, source: str | None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Mapping, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        path = f"line {error.lineno}, column {error.colno}"
        raise InvalidDefinition([(path, f"not JSON: {error.msg}")], source) from error
    except ValueError as error:
        raise InvalidDefinition([("", f"not JSON: {error}")], source) from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


_TOO_DEEP = f"nested too deeply: at most {MAX_LEVELS} levels of mappings and lists"


def check_tree(tree: Any, source: str | None = None) -> Any:
    """Returns the tree. Raises InvalidDefinition if it is too large, as with aliases of aliases, or repeats keys."""
    left: list[tuple[Any, tuple[Any, ...]]] = [(tree, ())]
    count, repeated = 0, list[Problem]()
    while left:
        value, keys = left.pop()
        count += 1
        if len(keys) >= MAX_LEVELS:
            raise InvalidDefinition([("", _TOO_DEEP)], source)
        if count > MAX_VALUES:
            problem = f"too large: at most {MAX_VALUES:,} values, including those that aliases repeat"
            raise InvalidDefinition([("", problem)], source)
        if isinstance(value, _Mapping):
            repeated += [(at(reduce(at, keys, ""), key), "the key occurs twice") for key in value.repeated]
        if isinstance(value, Mapping):
            left += [(item, (*keys, key)) for key, item in reversed([*value.items()])]
        elif isinstance(value, list | tuple):
            left += [(item, (*keys, index)) for index, item in reversed([*enumerate(value)])]
    if repeated:
        raise InvalidDefinition(repeated, source)
    return tree


# ---------------------------------------------------------------- YAML

_TAG = "tag:yaml.org,2002:"
_FLOAT = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")
_SCALARS: dict[str, tuple[re.Pattern[str], list[str], Callable[[str], Any]]] = {
    "bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"], lambda text: text.lower() == "true"),
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), [*"~nN", ""], lambda text: None),
    "int": (re.compile(r"^[-+]?[0-9]+$"), [*"-+0123456789"], int),
    "float": (_FLOAT, [*"-+.0123456789"], float),
}
"""The core schema of YAML 1.2: the pattern, the first characters and the values of plain scalars that are not texts."""


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
        path = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidDefinition([(path, f"not YAML: {problem}")], source) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        problem = f"not YAML: the character {chr(error.character)!r} is not allowed"
        raise InvalidDefinition([(f"line {line}, column {column}", problem)], source) from error
    return None if node is None else _Values(source).of(node, "")


@cache
def _loader() -> Any:
    loader: Any = type("Loader", (yaml_module().SafeLoader,), {"yaml_implicit_resolvers": {}})
    for name, (pattern, first, _) in _SCALARS.items():
        loader.add_implicit_resolver(_TAG + name, pattern, first)
    return loader


class _Values:
    """The values of a tree of nodes. An alias is converted once, so that aliases of aliases cost nothing."""

    def __init__(self, source: str | None) -> None:
        self._source = source
        self._values: dict[int, Any] = {}
        self._begun: set[int] = set()

    def _refuse(self, node: Any, path: str, problem: str) -> NoReturn:
        mark = node.start_mark
        raise InvalidDefinition([(path, f"line {mark.line + 1}, column {mark.column + 1}: {problem}")], self._source)

    def of(self, node: Any, path: str) -> Any:
        key = id(node)
        if key not in self._values:
            if key in self._begun:
                self._refuse(node, path, "an alias that contains itself")
            self._begun.add(key)
            self._values[key] = self._value(node, path)
        return self._values[key]

    def _value(self, node: Any, path: str) -> Any:
        tag = node.tag.removeprefix(_TAG)
        if tag == "map" and node.id == "mapping":
            return self._mapping(node, path)
        if tag == "seq" and node.id == "sequence":
            return [self.of(item, at(path, index)) for index, item in enumerate(node.value)]
        if node.id != "scalar" or tag not in (*_SCALARS, "str"):
            self._refuse(node, path, f"the tag {node.tag!r} is not allowed: a workflow is plain data")
        try:
            return node.value if tag == "str" else _SCALARS[tag][2](node.value)
        except ValueError:
            self._refuse(node, path, f"expected a value of {node.tag!r}, got {node.value!r:.200}")

    def _mapping(self, node: Any, path: str) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.of(key_node, path) if key_node.id == "scalar" else None
            if not isinstance(key, str):
                key_text = key_node.value if key_node.id == "scalar" else f"a {key_node.id}"
                self._refuse(key_node, path, f"expected a text as key, got {key_text}; write it in quotes")
            if key in mapping:
                self._refuse(key_node, at(path, key), "the key occurs twice")
            if key == "<<" and key_node.style is None:
                self._refuse(key_node, path, "merge keys (<<) are not supported: write the keys down")
            mapping[key] = self.of(value_node, at(path, key))
        return mapping


def to_yaml(tree: Any) -> str:
    """As YAML that every version reads equally."""
    options = {"sort_keys": False, "allow_unicode": True, "width": 1_000_000, "default_flow_style": False}
    return str(yaml_module().dump(tree, Dumper=_dumper(), **options))


@cache
def _dumper() -> Any:
    every_value_in_full = {"ignore_aliases": lambda *_: True}
    dumper: Any = type("Dumper", (yaml_module().SafeDumper,), every_value_in_full)

    def text(own: Any, value: str) -> Any:
        style = None
        lines = value.split("\n")
        if len(lines) > 1 and all(line.isprintable() and line == line.strip() for line in lines):
            style = "|"  # a block of plain lines
        elif not value.isprintable():
            style = '"'  # other styles change characters that YAML reads as line breaks
        elif any(pattern.match(value) for pattern, *_ in _SCALARS.values()):
            style = "'"
        return own.represent_scalar(f"{_TAG}str", value, style=style)

    dumper.add_representer(str, text)
    return dumper
