"""Shared state during a superstep: snapshot reads, writes kept apart, one merge with conflicts found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from perdure.codec import Codec
from perdure.engine.thread.effects import DELETED, Replaced
from perdure.errors import PerdureError, StateConflict
from perdure.graph.policy import Reducer, reduce_into
from perdure.graph.types.comparison import same_structure
from perdure.isolation import is_immutable, isolate

_MISSING: Any = object()


class LaneState:
    """The shared state as one executor sees it in one superstep: what was committed, and its own writes.

    Reading a value that can change gives a copy, so that nothing done to it reaches the committed state, a sibling,
    a stored checkpoint, or the record of an earlier delivery. If it was changed in place, that counts as written.
    """

    __slots__ = ("_committed", "_own", "_read", "_reducers")

    def __init__(self, committed: Mapping[str, Any], reducers: Mapping[str, Reducer]) -> None:
        self._committed = committed
        self._reducers = reducers
        self._own: dict[str, list[Any]] = {}
        """Writes by key, in order: values, DELETED, Replaced. Without a reducer only the last one is kept."""
        self._read: dict[str, Any] = {}
        """Copies handed out since the last write, by key: in-place changes are found in them at the end."""

    def get(self, key: str) -> Any:
        if key in self._read:
            return self._read[key]
        value = self._base(key)
        if value is _MISSING or is_immutable(value):
            return value
        copy = self._read[key] = isolate(value)
        return copy

    def _base(self, key: str) -> Any:
        """The value without what was changed in place since it was read."""
        if key not in self._own:
            return self._committed.get(key, _MISSING)
        view = {key: self._committed[key]} if key in self._committed else {}
        fold(view, key, self._own[key], self._reducers.get(key))
        return view.get(key, _MISSING)

    def write(self, key: str, value: Any) -> None:
        """A value, DELETED, or Replaced; for a key with a reducer a value is a contribution."""
        reduces = key in self._reducers
        written = self._own.get(key, []) if reduces else []
        if key in self._read:
            copy = self._read.pop(key)
            if reduces and not _same(copy, self._base(key), None):
                written = [*written, Replaced(copy)]
        self._own[key] = [*written, value]

    def changed_since(self, read: Mapping[str, Any], codec: Codec | None) -> list[tuple[str, Any]]:
        """Of the values that were read, with what they were then: those that were changed in place."""
        return [
            (key, self._read[key])
            for key, then in read.items()
            if key in self._read and not _same(self._read[key], then, codec)
        ]

    def change_in_place(self, key: str, value: Any) -> None:
        """Make a value that was changed in place what it was changed to; whoever holds it sees the change."""
        copy = self.get(key)
        if type(copy) is not type(value) or not change_to(copy, value):
            self._read[key] = value

    def written(self, key: str) -> Any:
        """What was written of a key so far, to be put back."""
        return list(self._own[key]) if key in self._own else None

    def take_back(self, key: str, mine: list[Any], before: Any) -> None:
        """Forget these writes of a key, and no others; `before` is what had been written when the first was made."""
        own = self._own.get(key, [])
        self._read.pop(key, None)
        if key in self._reducers:
            before = _without(own, mine)
        elif not own or not mine or own[-1] is not mine[-1]:  # somebody else has written since
            return
        if before:
            self._own[key] = before
        else:
            self._own.pop(key, None)

    def keys(self) -> list[str]:
        every = dict.fromkeys((*self._committed, *self._own))
        return [key for key in every if self._base(key) is not _MISSING]

    def changes(self, codec: Codec | None) -> dict[str, list[Any]]:
        """All that this executor wrote, by key: what is to be folded into the state."""
        found = dict(self._own)
        for key, copy in self.changed_in_place(codec):
            found[key] = [*found.get(key, ()), Replaced(copy)]
        return found

    def changed_in_place(self, codec: Codec | None) -> list[tuple[str, Any]]:
        """Values that were read and then changed, rather than written."""
        return [(key, copy) for key, copy in self._read.items() if not _same(copy, self._base(key), codec)]


def _without(values: list[Any], some: list[Any]) -> list[Any]:
    """The values without these very objects, each taken out once, from the end."""
    left = list(values)
    for one in reversed(some):
        place = next((place for place in reversed(range(len(left))) if left[place] is one), None)
        if place is not None:
            del left[place]
    return left


def _same(copy: Any, base: Any, codec: Codec | None) -> bool:
    if copy is base:
        return True
    if codec is None:
        return same_structure(copy, base)
    try:
        return bool(codec.encode(copy, "") == codec.encode(base, ""))
    except PerdureError:  # cannot be compared: call it written; the commit says why it cannot be saved
        return False


def fold(state: dict[str, Any], key: str, written: list[Any], reducer: Reducer | None) -> None:
    """Apply one executor's writes of one key, in order, in place."""
    for value in written:
        if value is DELETED:
            state.pop(key, None)
        elif isinstance(value, Replaced):
            # A handler may still hold this very object; the state must not change with it later.
            state[key] = isolate(value.value)
        elif reducer is None:
            state[key] = value
        else:
            reduce_into(state, key, value, reducer)


def merge_state(
    state: dict[str, Any], lanes: list[tuple[str, LaneState]], reducers: Mapping[str, Reducer], codec: Codec | None
) -> dict[str, Any]:
    """The state after the superstep. The one before is left as it is.

    Lanes are folded in the order of their deliveries, so the outcome does not depend on which ended first. Raises
    StateConflict if two executors wrote one key that has no reducer, or one of them replaced what a reducer joins.
    """
    merged: dict[str, Any] | None = None
    writers: dict[str, tuple[str, bool]] = {}
    for executor_id, lane in lanes:
        for key, written in lane.changes(codec).items():
            reducer = reducers.get(key)
            joins = reducer is not None and not any(
                value is DELETED or isinstance(value, Replaced) for value in written
            )
            if key in writers and not (joins and writers[key][1]):
                raise StateConflict(key, writers[key][0], executor_id)
            writers[key] = (executor_id, joins)
            merged = dict(state) if merged is None else merged
            fold(merged, key, written, reducer)
    return state if merged is None else merged


def change_to(changed: Any, value: Any) -> bool:
    """Make a container what another one is, in place. False for what is no container."""
    if isinstance(changed, list):
        changed[:] = value
    elif isinstance(changed, (dict, set)):
        changed.clear()
        changed.update(value)
    elif hasattr(changed, "__dict__"):
        changed.__dict__.clear()
        changed.__dict__.update(value.__dict__)
    else:
        return False
    return True


class StateMapping(MutableMapping[str, Any]):
    """`ctx.state`: the whole state, read and written key by key."""

    def __init__(self, lane: LaneState, read: Any, write: Any) -> None:
        self._lane = lane
        self._read = read
        self._write = write

    def __getitem__(self, key: str) -> Any:
        value = self._read(key)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._write(key, isolate(value))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """What is kept under the key: a change of it in place counts as written, as for any value that was read."""
        if key not in self:
            self[key] = default
        return self[key]

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
