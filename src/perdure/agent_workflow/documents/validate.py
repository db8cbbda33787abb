"""The form of a document: all mistakes with their paths and values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from perdure.agent_workflow.condition import JOINED, TYPES, WITHOUT_VALUE, Condition
from perdure.agent_workflow.definition import FORMAT, WorkflowConfig
from perdure.errors import did_you_mean
from perdure.tree_reader import INVALID, TreeReader, bare, is_plain_text

Problem: TypeAlias = tuple[str, str]
"""A path in the document, and the problem there."""
_PLAIN = re.compile(r"[\w$-]+")
_LONGEST = 80


def at(path: str, key: str | int) -> str:
    """`agents.review`, `edges[2]`, and `agents["a b"]` for a key with other characters."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not (key.isidentifier() or _PLAIN.fullmatch(key)):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def below(path: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a document that is nested at a path of another."""
    return [(f"{path}.{inner}" if inner else path, problem) for inner, problem in problems]


def quote_value(value: Any) -> str:
    """A value as in a document, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_OPERANDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(
        ("greater_than", "greater_than_or_equal", "less_than", "less_than_or_equal"),
        ("a number or a text", (int, float, str)),
    ),
    **dict.fromkeys(("starts_with", "ends_with", "matches_regex"), ("a text", (str,))),
    **dict.fromkeys(("contains_any", "contains_all"), ("a list", (list, tuple))),
}
"""The values that a condition compares with, in words and types; the other types compare with any value."""


def takes_field(type: Any) -> bool:
    return type in TYPES and type not in JOINED and type != "always"


def takes_value(type: Any) -> bool:
    return takes_field(type) and type not in WITHOUT_VALUE


def condition_problems(tree: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    """Problems that depend on the type of the condition, beside those of the conditions that it joins."""
    kind = tree.get("type")
    if "type" not in tree:
        yield at(path, "type"), f"missing: expected one of {', '.join(sorted(TYPES))}"
        return
    if not isinstance(kind, str) or kind not in TYPES:
        hint = did_you_mean(kind, TYPES) if isinstance(kind, str) else ""
        yield at(path, "type"), f"expected one of {', '.join(sorted(TYPES))}; got {quote_value(kind)}{hint}"
        return
    field, inner = tree.get("field"), tree.get("conditions", ())
    if not takes_field(kind):
        if field is not None:
            yield at(path, "field"), f"{kind!r} asks about no field, got {quote_value(field)}"
    elif field is None:
        yield at(path, "field"), f"missing: {kind!r} asks about a field"
    elif not isinstance(field, str) or not field:
        yield at(path, "field"), f"expected a text that is not empty, got {quote_value(field)}"
    yield from _value_problems(kind, tree, path)
    if not isinstance(inner, list | tuple):
        pass  # reported as any other field
    elif kind not in JOINED and inner:
        yield at(path, "conditions"), f"{kind!r} joins no conditions, got {len(inner)}"
    elif kind in JOINED and not inner:
        yield at(path, "conditions"), f"missing: {kind!r} joins other conditions"
    elif kind == "not" and len(inner) != 1:
        yield at(path, "conditions"), f"expected one condition in 'not', got {len(inner)}"
    if tree.get("ignore_case") is True and kind != "matches_regex":
        yield at(path, "ignore_case"), f"only 'matches_regex' has it, not {kind!r}"


def _value_problems(kind: str, tree: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    value, here = tree.get("value"), at(path, "value")
    if not takes_value(kind):
        if value is not None:
            yield here, f"{kind!r} takes no value, got {quote_value(value)}"
        return
    if "value" not in tree:
        yield here, f"missing: {kind!r} compares with a value"
        return
    words, types = _OPERANDS.get(kind, ("", (object,)))
    if not isinstance(value, types) or (words and isinstance(value, bool)):
        yield here, f"expected {words}, got {quote_value(value)}"
    elif kind == "matches_regex":
        try:
            re.compile(str(value))
        except (re.error, OverflowError, RecursionError) as error:
            yield here, f"not a regular expression: {error}; got {quote_value(value)}"


SCHEMA_KEY = "$schema"
"""Editors find the schema by it; perdure ignores it."""


def read_config(tree: Any, *, is_document: bool = True) -> tuple[Any, list[Problem]]:
    """The definition, and its problems: with problems, the definition is incomplete. Without `is_document` it is that
    of a builder, where `context` and `metadata` may hold any Python value."""
    reader = DocumentReader(is_document)
    if isinstance(tree, Mapping) and SCHEMA_KEY in tree:
        tree = {key: value for key, value in tree.items() if key != SCHEMA_KEY}
    return reader.read_struct(WorkflowConfig, tree, ""), reader.problems


class DocumentReader(TreeReader):
    mapping_words = "a mapping"

    def __init__(self, is_document: bool) -> None:
        self.problems: list[Problem] = []
        self._is_document = is_document

    def report(self, path: str, problem: str) -> None:
        self.problems.append((path, problem))

    def at(self, path: str, key: str | int) -> str:
        return at(path, key)

    def quote_value(self, path: str, value: Any) -> str:
        return quote_value(value)

    def list_choices(self, choices: tuple[str, ...]) -> str:
        return ", ".join(map(quote_value, sorted(choices)))

    def advise(self, hint: Any, value: Any) -> str:
        """Also for values such as `version: 1.0`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return ": write it in quotes" if is_number and bare(hint) is str else super().advise(hint, value)

    def read_any(self, value: Any, path: str) -> Any:
        """Plain data, if it is read for a document: no document can hold other values."""
        if not self._is_document:
            return value
        if isinstance(value, Mapping):
            return self.read(dict[str, Any], value, path)
        if isinstance(value, list | tuple):
            return [self.read_any(item, at(path, index)) for index, item in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            self.report(path, f"expected a number that JSON has, got {value!r}")
        elif not (value is None or type(value) in (bool, int, float) or is_plain_text(value)):
            words = "texts, numbers, true, false, null, lists and mappings"
            self.report(path, f"not plain data: a document holds {words}; got {value!r:.200}")
        return value

    def read_struct(self, kind: type[msgspec.Struct], value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return super().read_struct(kind, value, path)
        if kind is Condition:
            return self._read_condition(value, path)
        if kind is WorkflowConfig and not self._is_of_this_format(value, path):
            return INVALID
        return super().read_struct(kind, value, path)

    def _is_of_this_format(self, value: Mapping[Any, Any], path: str) -> bool:
        """Keys of another format are unknown here, so no other problem is reported."""
        version = value.get("format", FORMAT)
        if version == FORMAT or not isinstance(version, str | int | float) or str(version) == FORMAT:
            return True
        problem = f"the document has format {quote_value(version)}; this perdure reads {quote_value(FORMAT)}"
        self.report(at(path, "format"), f"{problem}. Use a newer perdure")
        return False

    def _read_condition(self, value: Mapping[Any, Any], path: str) -> Any:
        """A wrong field is one problem, whatever is in it. Joined conditions are all read."""
        problems = list(condition_problems(value, path))
        wrong = {problem_path for problem_path, _ in problems}
        if value.get("type") in JOINED:
            wrong.discard(at(path, "conditions"))
        sound = {key: item for key, item in value.items() if at(path, str(key)) not in wrong}
        condition = super().read_struct(Condition, {"type": "always", **sound}, path)
        self.problems += problems
        return INVALID if problems else condition
