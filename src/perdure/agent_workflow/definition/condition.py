"""Ways to make a condition: `condition.equals("score", 3)`, `condition.and_(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.agent_workflow.definition.conditions import Condition


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
    """Missing, null, a text of spaces, or a list of nothing."""
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
