"""Comparison of values by their parts, not by `__eq__`, to detect changes since a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)

_Seen = dict[tuple[int, int], tuple[Any, Any]]
"""Pairs under comparison, by their ids. The references keep them alive, so that no id is reused."""


def same_structure(one: Any, other: Any) -> bool:
    """Whether two values have the same types and parts, at any depth.

    Needs no `__eq__`. A value without readable parts, such as a lock, counts as unchanged.
    """
    return _same(one, other, {})


def _same(one: Any, other: Any, seen: _Seen) -> bool:
    if one is other or (id(one), id(other)) in seen:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _PLAIN:
        return bool(one == other or (one != one and other != other))  # NaN equals NaN
    seen[id(one), id(other)] = (one, other)
    if kind is dict:
        return _all_same(one.items(), other.items(), seen)
    if kind is list or kind is tuple:
        return _all_same(one, other, seen)
    if kind is set or kind is frozenset:
        return len(one) == len(other) and all(_has_partner(part, other, seen) for part in one)
    return _same_reduced(one, other, seen)


def _all_same(one: Iterable[Any], other: Iterable[Any], seen: _Seen) -> bool:
    parts, others = list(one), list(other)
    return len(parts) == len(others) and all(_same(a, b, seen) for a, b in zip(parts, others, strict=True))


def _has_partner(part: Any, others: Iterable[Any], seen: _Seen) -> bool:
    return any(_same(part, each, seen) for each in others)


def _same_reduced(one: Any, other: Any, seen: _Seen) -> bool:
    """Compare by `__reduce_ex__`, which covers slots, subclasses, and state in C."""
    try:
        reduced, other_reduced = one.__reduce_ex__(4), other.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # it has no readable parts
        return True
    if isinstance(reduced, str) or isinstance(other_reduced, str):
        return bool(reduced == other_reduced)
    if not _all_same(map(_spread, reduced), map(_spread, other_reduced), seen):
        return False
    # A msgspec Struct with `dict=True` leaves these out when it is reduced.
    return _same(getattr(one, "__dict__", None), getattr(other, "__dict__", None), seen)


def _spread(part: Any) -> Any:
    """The items of a list or dict as a list, since they come as an iterator; any other part itself."""
    return list(part) if hasattr(part, "__next__") else part
