"""Has a value changed since it was copied? Asked of its parts, not of its `__eq__`."""

from __future__ import annotations

from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def same_structure(one: Any, other: Any) -> bool:
    """Whether two values are of the same types and parts, at any depth.

    A class need not have an `__eq__` for it, nor one that gives a bool. What has no parts to look at is unchanged.
    """
    return _same(one, other, set())


def _same(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    if one is other or (id(one), id(other)) in seen:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _PLAIN):
        return one == other or (one != one and other != other)  # NaN is itself
    seen.add((id(one), id(other)))
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            _same(key, key2, seen) and _same(each, each2, seen)
            for (key, each), (key2, each2) in zip(dict.items(one), dict.items(other), strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(a, b, seen) for a, b in zip(one, other, strict=True))
    if isinstance(one, set | frozenset):
        return bool(one == other)
    return all(_same(a, b, seen) for a, b in zip(_parts(one), _parts(other), strict=True))


def _parts(value: Any) -> tuple[Any, ...]:
    attributes = getattr(value, "__dict__", {})
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    kept = [getattr(value, name, None) for name in (*slots, *getattr(value, "__struct_fields__", ()))]
    return (dict(attributes), *kept, getattr(value, "args", None))
