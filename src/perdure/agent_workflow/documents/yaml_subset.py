"""YAML, restricted to what JSON can express: `yes`, `on` and dates are texts, and a key occurs once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from perdure.agent_workflow.documents.validate import at
from perdure.errors import InvalidDefinition, MissingExtra

_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[re.Pattern[str], str]] = {
    "bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), "~nN\0"),
    "int": (re.compile(r"^[-+]?[0-9]+$"), "-+0123456789"),
    "float": (re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), "-+.0123456789"),
}
"""The core schema of YAML 1.2: the pattern and the first characters of plain scalars that are not texts."""
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
    yaml = yaml_module()

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        pass

    Loader.yaml_implicit_resolvers = {}
    for name, (pattern, first) in _SCALARS.items():
        Loader.add_implicit_resolver(_TAG + name, pattern, list(first.replace("\0", "")) + [""] * ("\0" in first))
    return Loader


class _Values:
    """The values of a tree of nodes. An alias is converted once, so that aliases of aliases cost nothing."""

    def __init__(self, source: str | None) -> None:
        self._source = source
        self._values: dict[int, Any] = {}
        self._begun: set[int] = set()

    def _refuse(self, node: Any, path: str, problem: str) -> NoReturn:
        mark = node.start_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
        raise InvalidDefinition([(path, where)], self._source)

    def of(self, node: Any, path: str) -> Any:
        key = id(node)
        if key in self._values:
            return self._values[key]
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
        if node.id != "scalar" or tag not in _VALUES:
            self._refuse(node, path, f"the tag {node.tag!r} is not allowed: a workflow is plain data")
        try:
            return _VALUES[tag](node.value)
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
    text: str = yaml_module().dump(tree, Dumper=_dumper(), **options)
    return text


@cache
def _dumper() -> Any:
    yaml = yaml_module()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc,name-defined]
        def ignore_aliases(self, data: Any) -> bool:
            return True  # every value is written in full

    def text(dumper: Any, value: str) -> Any:
        style = None
        if _reads_well(value):
            style = "|"
        elif not value.isprintable():
            style = '"'  # other styles change characters that YAML reads as line breaks
        elif any(pattern.match(value) for pattern, _ in _SCALARS.values()):
            style = "'"
        return dumper.represent_scalar(f"{_TAG}str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def _reads_well(value: str) -> bool:
    """Whether the text can be a block of plain lines."""
    return "\n" in value and all(line.isprintable() and line == line.strip() for line in value.split("\n"))
