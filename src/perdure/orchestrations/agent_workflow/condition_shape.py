"""Has a condition the form of one? What it asks for depends on its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perdure.errors import did_you_mean
from perdure.orchestrations.agent_workflow.conditions import JOINED, TYPES, WITHOUT_VALUE
from perdure.orchestrations.agent_workflow.document_rules import is_number
from perdure.orchestrations.agent_workflow.places import Problem, at, shown

KEYS = ("type", "field", "value", "conditions", "ignore_case")
_ORDERED = frozenset({"greater_than", "greater_than_or_equal", "less_than", "less_than_or_equal"})
_TEXTS = frozenset({"starts_with", "ends_with", "matches_regex"})
_LISTS = frozenset({"contains_any", "contains_all"})


def takes_field(type: Any) -> bool:
    return type in TYPES and type not in JOINED and type != "always"


def takes_value(type: Any) -> bool:
    return takes_field(type) and type not in WITHOUT_VALUE


def check_condition(tree: Mapping[Any, Any], place: str) -> Iterator[Problem]:
    for key in tree:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS)
            yield at(place, str(key)), f"unknown key{hint}. Known: {', '.join(KEYS)}"
    kind = tree.get("type")
    if "type" not in tree:
        yield at(place, "type"), f"missing: expected one of {', '.join(sorted(TYPES))}"
        return
    if not isinstance(kind, str) or kind not in TYPES:
        hint = did_you_mean(kind, TYPES) if isinstance(kind, str) else ""
        yield at(place, "type"), f"expected one of {', '.join(sorted(TYPES))}; got {shown(kind)}{hint}"
        return
    yield from _field(kind, tree, place)
    yield from _value(kind, tree, place)
    yield from _joined(kind, tree, place)
    ignores = tree.get("ignore_case", False)
    if not isinstance(ignores, bool):
        yield at(place, "ignore_case"), f"expected true or false, got {shown(ignores)}"
    elif ignores and kind != "matches_regex":
        yield at(place, "ignore_case"), f"only 'matches_regex' has it, not {kind!r}"


def _field(kind: str, tree: Mapping[Any, Any], place: str) -> Iterator[Problem]:
    field, here = tree.get("field"), at(place, "field")
    if not takes_field(kind):
        if field is not None:
            yield here, f"{kind!r} asks about no field, got {shown(field)}"
    elif field is None:
        yield here, f"missing: {kind!r} asks about a field"
    elif not isinstance(field, str) or not field:
        yield here, f"expected a text that is not empty, got {shown(field)}"


def _value(kind: str, tree: Mapping[Any, Any], place: str) -> Iterator[Problem]:
    value, here = tree.get("value"), at(place, "value")
    if not takes_value(kind):
        if value is not None:
            yield here, f"{kind!r} takes no value, got {shown(value)}"
        return
    if "value" not in tree:
        yield here, f"missing: {kind!r} compares with a value"
        return
    words, allows = _expected(kind)
    if not allows(value):
        yield here, f"expected {words}, got {shown(value)}"
    elif kind == "matches_regex":
        try:
            re.compile(str(value))
        except (re.error, OverflowError, RecursionError) as error:
            yield here, f"not a regular expression: {error}; got {shown(value)}"


def _expected(kind: str) -> tuple[str, Callable[[Any], bool]]:
    if kind in _ORDERED:
        return "a number or a text", lambda value: is_number(value) or isinstance(value, str)
    if kind in _TEXTS:
        return "a text", lambda value: isinstance(value, str)
    if kind in _LISTS:
        return "a list", lambda value: isinstance(value, list | tuple)
    return "a value", lambda value: True


def _joined(kind: str, tree: Mapping[Any, Any], place: str) -> Iterator[Problem]:
    inner, here = tree.get("conditions", ()), at(place, "conditions")
    if not isinstance(inner, list | tuple):
        yield here, f"expected a list, got {shown(inner)}"
        return
    if kind not in JOINED:
        if inner:
            yield here, f"{kind!r} joins no conditions, got {len(inner)}"
        return
    if not inner:
        yield here, f"missing: {kind!r} joins other conditions"
    elif kind == "not" and len(inner) != 1:
        yield here, f"expected one condition in 'not', got {len(inner)}"
    for index, one in enumerate(inner):
        if isinstance(one, Mapping):
            yield from check_condition(one, at(here, index))
        else:
            yield at(here, index), f"expected a mapping, got {shown(one)}"
