"""Conditions of edges: data in a document, tests of a node's outputs: `condition.equals("score", 3)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

MISSING: Any = object()
"""Stands for the value of a missing field."""


class Condition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Created by `condition.equals("score", 3)` and similar functions; joined by `condition.and_(...)`, `or_`, `not_`,
    or by `&`, `|` and `~`."""

    type: str
    field: str | None = None
    """Such as `score`, or `review.score` for a field of an output."""
    value: Any = None
    conditions: tuple[Condition, ...] = ()
    ignore_case: bool = False
    """Of `matches_regex`."""

    def holds(self, outputs: Mapping[str, Any]) -> bool:
        """A missing field equals nothing, contains nothing, and is empty."""
        return _TESTS[self.type](self, outputs)

    @property
    def fields(self) -> Iterator[str]:
        """The fields of this condition and of the conditions that it joins."""
        if self.field is not None:
            yield self.field
        for condition in self.conditions:
            yield from condition.fields

    def __and__(self, other: Condition) -> Condition:
        return Condition("and", conditions=(self, other))

    def __or__(self, other: Condition) -> Condition:
        return Condition("or", conditions=(self, other))

    def __invert__(self) -> Condition:
        return Condition("not", conditions=(self,))

    def __str__(self) -> str:
        if self.conditions:
            inner = [f"({condition})" if condition.conditions else str(condition) for condition in self.conditions]
            return f"not {inner[0]}" if self.type == "not" else f" {self.type} ".join(inner)
        if self.field is None:
            return self.type
        words = self.type.replace("_", " ")
        return f"{self.field} {words}" if self.type in WITHOUT_VALUE else f"{self.field} {words} {self.value!r}"


Test: TypeAlias = Callable[[Condition, Mapping[str, Any]], bool]


def field_in(outputs: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as `review.score`; the path as one key wins. `MISSING` if it does not exist."""
    if path in outputs:
        return outputs[path]
    value: Any = outputs
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def _of_value(test: Callable[[Any, Any], bool]) -> Test:
    def holds(condition: Condition, outputs: Mapping[str, Any]) -> bool:
        value = field_in(outputs, condition.field or "")
        if value is MISSING:
            return False
        try:
            return test(value, condition.value)
        except TypeError:  # a text cannot be compared with a number
            return False

    return holds


def _not(type: str) -> Test:
    return lambda condition, outputs: not _TESTS[type](condition, outputs)


def _equal(value: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1, at any depth."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_equal, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_equal(item, other[key]) for key, item in value.items())
    return bool(value == other)


def _has_content(value: Any, _: Any) -> bool:
    text_or_items = value.strip() if isinstance(value, str) else value
    return value is not None and not (isinstance(value, Sequence | Mapping) and not text_or_items)


def _contains(value: Any, other: Any) -> bool:
    if isinstance(value, str):
        return isinstance(other, str) and other in value
    if isinstance(value, Mapping):
        return other in value
    return any(_equal(item, other) for item in value)


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _matches(condition: Condition, outputs: Mapping[str, Any]) -> bool:
    value = field_in(outputs, condition.field or "")
    flags = re.IGNORECASE if condition.ignore_case else 0
    return isinstance(value, str) and re.search(str(condition.value), value, flags) is not None


_TESTS: dict[str, Test] = {
    "always": lambda condition, outputs: True,
    "equals": _of_value(_equal),
    "not_equals": _not("equals"),
    "exists": _of_value(lambda value, _: value is not None),
    "not_exists": _not("exists"),
    "greater_than": _of_value(lambda value, other: bool(value > other)),
    "greater_than_or_equal": _of_value(lambda value, other: bool(value >= other)),
    "less_than": _of_value(lambda value, other: bool(value < other)),
    "less_than_or_equal": _of_value(lambda value, other: bool(value <= other)),
    "contains": _of_value(_contains),
    "starts_with": _of_value(lambda value, other: isinstance(value, str) and value.startswith(str(other))),
    "ends_with": _of_value(lambda value, other: isinstance(value, str) and value.endswith(str(other))),
    "matches_regex": _matches,
    "is_empty": _not("is_not_empty"),
    "is_not_empty": _of_value(_has_content),
    "contains_any": _of_value(lambda value, other: any(_contains(value, item) for item in _several(other))),
    "contains_all": _of_value(lambda value, other: all(_contains(value, item) for item in _several(other))),
    "and": lambda condition, outputs: all(inner.holds(outputs) for inner in condition.conditions),
    "or": lambda condition, outputs: any(inner.holds(outputs) for inner in condition.conditions),
    "not": lambda condition, outputs: not condition.conditions[0].holds(outputs),
}
TYPES = frozenset(_TESTS)
JOINED = frozenset({"and", "or", "not"})
WITHOUT_VALUE = frozenset({"exists", "not_exists", "is_empty", "is_not_empty"})


def always() -> Condition:
    return Condition("always")


def equals(field: str, value: Any) -> Condition:
    return Condition("equals", field, value)


def not_equals(field: str, value: Any) -> Condition:
    return Condition("not_equals", field, value)


def exists(field: str) -> Condition:
    return Condition("exists", field)


def not_exists(field: str) -> Condition:
    return Condition("not_exists", field)


def greater_than(field: str, value: Any) -> Condition:
    return Condition("greater_than", field, value)


def greater_than_or_equal(field: str, value: Any) -> Condition:
    return Condition("greater_than_or_equal", field, value)


def less_than(field: str, value: Any) -> Condition:
    return Condition("less_than", field, value)


def less_than_or_equal(field: str, value: Any) -> Condition:
    return Condition("less_than_or_equal", field, value)


def contains(field: str, value: Any) -> Condition:
    """A text that contains another, or a list that contains an item."""
    return Condition("contains", field, value)


def starts_with(field: str, value: str) -> Condition:
    return Condition("starts_with", field, value)


def ends_with(field: str, value: str) -> Condition:
    return Condition("ends_with", field, value)


def matches_regex(field: str, pattern: str, *, ignore_case: bool = False) -> Condition:
    return Condition("matches_regex", field, pattern, ignore_case=ignore_case)


def is_empty(field: str) -> Condition:
    """Missing, null, a text of spaces, or an empty list or mapping."""
    return Condition("is_empty", field)


def is_not_empty(field: str) -> Condition:
    return Condition("is_not_empty", field)


def contains_any(field: str, values: Sequence[Any]) -> Condition:
    return Condition("contains_any", field, list(values))


def contains_all(field: str, values: Sequence[Any]) -> Condition:
    return Condition("contains_all", field, list(values))


def and_(*conditions: Condition) -> Condition:
    return Condition("and", conditions=conditions)


def or_(*conditions: Condition) -> Condition:
    return Condition("or", conditions=conditions)


def not_(condition: Condition) -> Condition:
    return Condition("not", conditions=(condition,))
