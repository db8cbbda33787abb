"""Comparison of values by their parts, not by `__eq__`, to detect changes since a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)

_Seen = dict[tuple[int, int], tuple[Any, Any]]
"""Pairs under comparison, by their ids. The references keep them alive, so that no id is reused."""


def same_structure(value: Any, other: Any) -> bool:
    """Whether two values have the same types and parts, at any depth.

    Needs no `__eq__`. A value without readable parts, such as a lock, counts as unchanged.
    """
    return _same(value, other, {})


def _same(value: Any, other: Any, seen: _Seen) -> bool:
    if value is other or (id(value), id(other)) in seen:
        return True
    kind = type(value)
    if kind is not type(other):
        return False
    if kind in _PLAIN:
        return bool(value == other or (value != value and other != other))  # NaN equals NaN
    seen[id(value), id(other)] = (value, other)
    if kind is dict:
        return _all_same(value.items(), other.items(), seen)
    if kind is list or kind is tuple:
        return _all_same(value, other, seen)
    if kind is set or kind is frozenset:
        return len(value) == len(other) and all(_has_partner(part, other, seen) for part in value)
    return _same_reduced(value, other, seen)


def _all_same(items: Iterable[Any], other: Iterable[Any], seen: _Seen) -> bool:
    parts, others = list(items), list(other)
    return len(parts) == len(others) and all(_same(a, b, seen) for a, b in zip(parts, others, strict=True))


def _has_partner(part: Any, others: Iterable[Any], seen: _Seen) -> bool:
    return any(_same(part, each, seen) for each in others)


def _same_reduced(value: Any, other: Any, seen: _Seen) -> bool:
    """Compare by `__reduce_ex__`, which covers slots, subclasses, and state in C."""
    try:
        reduced, other_reduced = value.__reduce_ex__(4), other.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # it has no readable parts
        return True
    if isinstance(reduced, str) or isinstance(other_reduced, str):
        return bool(reduced == other_reduced)
    if not _all_same(map(_spread, reduced), map(_spread, other_reduced), seen):
        return False
    # A msgspec Struct with `dict=True` leaves these out when it is reduced.
    return _same(getattr(value, "__dict__", None), getattr(other, "__dict__", None), seen)


def _spread(part: Any) -> Any:
    """The items of a list or dict as a list, since they come as an iterator; any other part itself."""
    return list(part) if hasattr(part, "__next__") else part
