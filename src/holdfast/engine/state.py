"""Shared state during a superstep: snapshot reads, writes kept apart, one merge with conflicts found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from holdfast.codec import Codec
from holdfast.engine.effects import DELETED, Replaced
from holdfast.errors import HoldfastError, StateConflict
from holdfast.graph.isolation import is_unchangeable, isolated
from holdfast.graph.reducers import Reducer, reduce_into

_MISSING: Any = object()


class LaneState:
    """The shared state as one executor sees it in one superstep: what was committed, and its own writes.

    Reading a value that can change gives a copy, so that nothing done to it reaches the committed state, a sibling,
    or a stored checkpoint. If it was changed in place, that counts as written.
    """

    __slots__ = ("_committed", "_read", "_reducers", "own")

    def __init__(self, committed: Mapping[str, Any], reducers: Mapping[str, Reducer]) -> None:
        self._committed = committed
        self._reducers = reducers
        self._read: dict[str, Any] = {}
        """Copies handed out, by key: in-place changes are found in them at the end."""
        self.own: dict[str, list[Any]] = {}
        """Writes by key: [value or DELETED], or all contributions for a key with a reducer."""

    def get(self, key: str) -> Any:
        if key in self.own:
            return self._own_value(key)
        if key in self._read:
            return self._read[key]
        value = self._committed.get(key, _MISSING)
        if value is _MISSING or is_unchangeable(value):
            return value
        copy = self._read[key] = isolated(value)
        return copy

    def _own_value(self, key: str) -> Any:
        written = self.own[key]
        reducer = self._reducers.get(key)
        if reducer is None:
            return _MISSING if written[-1] is DELETED else written[-1]
        view = {key: self._committed[key]} if key in self._committed else {}
        _fold(view, key, written, reducer)
        return isolated(view.get(key, _MISSING))

    def write(self, key: str, value: Any) -> None:
        if isinstance(value, Replaced):
            self.own.pop(key, None)
            self._read[key] = value.value
            return
        self._read.pop(key, None)
        if key in self._reducers:
            self.own.setdefault(key, []).append(value)
        else:
            self.own[key] = [value]

    def keys(self) -> list[str]:
        every = dict.fromkeys((*self._committed, *self.own))
        return [key for key in every if self.get(key) is not _MISSING]

    def changes(self, codec: Codec | None) -> dict[str, list[Any] | None]:
        """Keys that this executor wrote. None marks a value changed in place: it replaces what was there."""
        found: dict[str, list[Any] | None] = dict(self.own)
        found.update((key, None) for key, _ in self.changed_in_place(codec))
        return found

    def changed_in_place(self, codec: Codec | None) -> list[tuple[str, Any]]:
        """Values that were read and then changed, rather than written."""
        return [
            (key, copy)
            for key, copy in self._read.items()
            if not _same(copy, self._committed.get(key, _MISSING), codec)
        ]

    def read_copy(self, key: str) -> Any:
        return self._read[key]


def _same(copy: Any, committed: Any, codec: Codec | None) -> bool:
    if copy is committed:
        return True
    if codec is not None:
        try:
            return bool(codec.encode(copy, "") == codec.encode(committed, ""))
        except HoldfastError:  # cannot be compared: call it written; the commit says why it cannot be saved
            return False
    try:
        return type(copy) is type(committed) and bool(copy == committed)
    except Exception:  # noqa: BLE001  # a user's __eq__ may raise anything: call it written
        return False


def _fold(state: dict[str, Any], key: str, contributions: list[Any], reducer: Reducer) -> None:
    for value in contributions:
        if value is DELETED:
            state.pop(key, None)
        else:
            reduce_into(state, key, value, reducer)


def merge_state(
    state: dict[str, Any], lanes: list[tuple[str, LaneState]], reducers: Mapping[str, Reducer], codec: Codec | None
) -> dict[str, Any]:
    """The state after the superstep. The one before is left as it is.

    Lanes are folded in the order of their deliveries, so the outcome does not depend on which ended first. Raises
    StateConflict if two executors wrote one key that has no reducer.
    """
    merged: dict[str, Any] | None = None
    writers: dict[str, tuple[str, bool]] = {}
    for executor_id, lane in lanes:
        for key, written in lane.changes(codec).items():
            merged = dict(state) if merged is None else merged
            reducer = reducers.get(key)
            joins = reducer is not None and written is not None
            if key in writers and not (joins and writers[key][1]):
                raise StateConflict(key, writers[key][0], executor_id)
            writers[key] = (executor_id, joins)
            _write(merged, key, lane.read_copy(key) if written is None else written, written is None, reducer)
    return state if merged is None else merged


def _write(state: dict[str, Any], key: str, value: Any, replaces: bool, reducer: Reducer | None) -> None:
    if replaces:
        # The handler may still hold this very object; the state must not change with it later.
        state[key] = isolated(value)
    elif reducer is not None:
        _fold(state, key, value, reducer)
    elif value[-1] is DELETED:
        state.pop(key, None)
    else:
        state[key] = value[-1]


class StateMapping(MutableMapping[str, Any]):
    """`ctx.state`: the whole state, read and written key by key."""

    def __init__(self, lane: LaneState, write: Any) -> None:
        self._lane = lane
        self._write = write

    def __getitem__(self, key: str) -> Any:
        value = self._lane.get(key)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._write(key, isolated(value))

    def __delitem__(self, key: str) -> None:
        if self._lane.get(key) is _MISSING:
            raise KeyError(key)
        self._write(key, DELETED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lane.keys())

    def __len__(self) -> int:
        return len(self._lane.keys())

    def __repr__(self) -> str:
        return repr(dict(self))


def is_missing(value: Any) -> bool:
    return value is _MISSING
