"""How several writes to one state key in one superstep are joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from perdure.isolation import isolated

Reducer: TypeAlias = Callable[[Any, Any], Any]
"""`reducer(current, written) -> joined`. The first write to a key that is not there yet is taken as it is, except by
`append`, which starts a list."""


def append(current: list[Any] | None, item: Any) -> list[Any]:
    """Each write adds one item to a list."""
    return [*(current or ()), item]


def add(current: Any, amount: Any) -> Any:
    """Each write is added: numbers, strings, lists."""
    return current + amount


def merge(current: dict[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
    """Each write updates a dict; later deliveries win where keys meet."""
    return {**current, **entries}


_PURE = (append, add, merge)


def reduce_into(state: dict[str, Any], key: str, written: Any, reducer: Reducer) -> None:
    """Fold one write into the state, in place."""
    if key not in state:
        state[key] = append(None, written) if reducer is append else written
    elif reducer in _PURE:
        state[key] = reducer(state[key], written)
    else:
        # A user's reducer may change what it is given; neither the committed value nor the record may change with it.
        state[key] = reducer(isolated(state[key]), isolated(written))
