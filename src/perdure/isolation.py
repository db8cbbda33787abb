"""Copies that share nothing mutable, so that no handler can change what another one sent; and changes since a copy.

No function here raises. A value that cannot be copied (a lock, a client, a generator) is shared.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import fractions
import itertools
import operator
import pathlib
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import astuple, force_setattr

_Memo = dict[int, Any]
"""Copies by id of the original. copy.deepcopy shares it, so that two references to one object stay two references to
one copy, whichever function copied it."""


class _Kind(NamedTuple):
    """How values of one class are treated."""

    copy: Callable[[Any, _Memo], Any]
    parts: Callable[[Any], Iterable[Any]] | None
    """All parts of a value, if the value itself is immutable; else None."""
    mutable_parts: Callable[[Any], Iterable[Any]] | None = None
    """All parts of a value that is mutable and copied part by part; else None."""


_ATOMIC: frozenset[type] = frozenset(
    (type(None), bool, int, float, complex, str, bytes, range, type, type(...), type(NotImplemented))
) | {
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone, zoneinfo.ZoneInfo),
    *(uuid.UUID, decimal.Decimal, fractions.Fraction, re.Pattern, property),
    *(pathlib.PurePosixPath, pathlib.PosixPath, pathlib.PureWindowsPath, pathlib.WindowsPath),
    *(types.FunctionType, types.BuiltinFunctionType, types.CodeType),
}
_MISSING: Any = object()
_EMPTY: dict[str, Any] = {}


_T = TypeVar("_T")
_copied_otherwise = False


def isolate(value: _T) -> _T:
    """A copy that shares nothing mutable with the value; the value itself if nothing in it can change.

    References to one object inside the value, cycles included, stay references to one object in the copy.
    Never raises: a part that cannot be copied is shared.
    """
    if type(value) in _ATOMIC:
        return value
    try:
        return cast(_T, _copy(value, {}))
    except Exception:  # noqa: BLE001  too deep, changed by a thread meanwhile, a __hash__ that fails, ...
        global _copied_otherwise
        _copied_otherwise = True
        return value


def has_only_known_copies() -> bool:
    """Whether this process copied every value so far field by field: none by its own `__deepcopy__`, none shared."""
    return not _copied_otherwise


def is_immutable(value: object) -> bool:
    """True only if neither the value nor anything it refers to can change."""
    if type(value) in _ATOMIC:
        return True
    try:
        return _cannot_change(value)
    except RecursionError:
        return False


def is_fully_copied(value: object) -> bool:
    """True only if `isolate` copies every mutable part of it field by field, and shares none."""
    if type(value) in _ATOMIC:
        return True
    try:
        return _is_copied_here(value)
    except RecursionError:
        return False


def _is_copied_here(value: Any) -> bool:
    kind = _kind_of(type(value))
    parts = kind.parts or kind.mutable_parts
    return parts is not None and all(type(part) in _ATOMIC or _is_copied_here(part) for part in parts(value))


def _cannot_change(value: object) -> bool:
    parts = _kind_of(type(value)).parts
    if parts is None:
        return False
    return all(map(_cannot_change, [part for part in parts(value) if type(part) not in _ATOMIC]))


def _copy(value: Any, memo: _Memo) -> Any:
    if type(value) in _ATOMIC:
        return value
    copied = memo.get(id(value), _MISSING)
    return _kind_of(type(value)).copy(value, memo) if copied is _MISSING else copied


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    copied: list[Any] = []
    memo[id(value)] = copied
    if len(value) > 1 and type(value[0]) is dict and are_flat_dicts(value) and memo.keys().isdisjoint(map(id, value)):
        # In C, such as the messages of a conversation: 250 dicts of 3 texts take 66 us, and 107 us one by one.
        copied += map(dict.copy, value)
        if len(memo) > 1:  # else no other part of the value can refer to an item
            memo.update(zip(map(id, value), copied, strict=True))
        return copied
    cls: type = str
    kind = _KNOWN[str]
    for each in value:
        if type(each) not in _ATOMIC:
            if type(each) is not cls:  # most lists hold one kind of thing
                cls = type(each)
                kind = _kind_of(cls)
            each = kind.copy(each, memo) if id(each) not in memo else memo[id(each)]
        copied.append(each)
    return copied


def are_flat_dicts(value: list[Any]) -> bool:
    """Whether the items are dicts without mutable parts, and each of them is there once: `dict.copy` isolates them."""
    if set(map(type, value)) != {dict}:
        return False
    flat = itertools.chain.from_iterable
    parts = itertools.chain(flat(map(dict.values, value)), flat(value))
    is_flat = all(is_immutable(part) for part in parts if type(part) not in _ATOMIC)
    return is_flat and len(set(map(id, value))) == len(value)


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    copied: dict[Any, Any] = {}
    memo[id(value)] = copied
    for key, each in value.items() if value else ():
        copied[_copy(key, memo)] = each if type(each) in _ATOMIC else _copy(each, memo)
    return copied


def _copy_set(value: set[Any], memo: _Memo) -> set[Any]:
    copied: set[Any] = set()
    memo[id(value)] = copied
    copied.update([_copy(each, memo) for each in value])
    return copied


def _copy_tuple(value: tuple[Any, ...], memo: _Memo) -> tuple[Any, ...]:
    parts = [each if type(each) in _ATOMIC else _copy(each, memo) for each in value]
    if id(value) in memo:  # a cycle led back here and created the copy
        return cast(tuple[Any, ...], memo[id(value)])
    is_changed = any(map(operator.is_not, parts, value))
    copied = tuple.__new__(type(value), parts) if is_changed else value
    memo[id(value)] = copied
    return copied


def _copy_frozenset(value: frozenset[Any], memo: _Memo) -> frozenset[Any]:
    pairs = [(each, _copy(each, memo)) for each in value]
    copied = frozenset(new for _, new in pairs) if any(new is not old for old, new in pairs) else value
    return cast(frozenset[Any], memo.setdefault(id(value), copied))


def _copy_open_struct(value: Any, memo: _Memo) -> Any:
    """Copy a Struct with `dict=True`: msgspec's own copy leaves out `__dict__`."""
    copied = _copy_deeply(value, memo)
    if copied is not value:
        vars(copied).update({name: _copy(each, memo) for name, each in vars(value).items()})
    return copied


def _copy_deeply(value: Any, memo: _Memo) -> Any:
    global _copied_otherwise
    _copied_otherwise = True
    size = len(memo)
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001  a user's __deepcopy__ may raise anything
        # Drop partial copies: another reference to this value would get one of them.
        # test_second_reference_to_an_uncopyable_value_is_the_same_value checks this.
        while len(memo) > size:
            memo.popitem()
        memo[id(value)] = value
        return value


class _CopyFields:
    """Copies field by field, past __init__ and frozen __setattr__. Returns the object itself if no field changed."""

    def __init__(self, cls: type, is_frozen: bool) -> None:
        self._is_frozen = is_frozen
        self._slots = tuple(
            name
            for base in cls.__mro__
            for name, member in vars(base).items()
            if isinstance(member, types.MemberDescriptorType)
        )

    def __call__(self, value: Any, memo: _Memo) -> Any:
        if self._is_frozen and _ATOMIC.issuperset(map(type, self.parts(value))):
            return value
        copied = memo[id(value)] = object.__new__(type(value))
        is_changed = not self._is_frozen
        for name, old in self.items(value):
            new = old if type(old) in _ATOMIC else _copy(old, memo)
            is_changed = is_changed or new is not old
            object.__setattr__(copied, name, new)
        if not is_changed:
            copied = memo[id(value)] = value
        return copied

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        own = getattr(value, "__dict__", None)
        if not self._slots:
            return own.items() if own else ()
        slots = [(name, getattr(value, name)) for name in self._slots if hasattr(value, name)]
        return [*slots, *own.items()] if own else slots

    def parts(self, value: Any) -> Iterable[Any]:
        if not self._slots:
            return getattr(value, "__dict__", _EMPTY).values()
        return [part for _, part in self.items(value)]


def _copier_of_struct(cls: Any) -> Callable[[Any, _Memo], Any]:
    """Looks only at fields that differ from their defaults, which C code lists: a text has 2 of its 46 fields."""
    is_frozen, is_sparse = cls.__struct_config__.frozen, cls.__struct_config__.repr_omit_defaults
    defaults = zip(reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__), strict=False)
    # Fields that are left out although they may hold a mutable value: empty lists and dicts.
    others = [name for name, default in defaults if is_sparse and type(default) not in _ATOMIC]

    def copy_struct(value: Any, memo: _Memo) -> Any:
        try:
            fields = _list_fields(value)
            for name in others:
                fields.append((name, getattr(value, name)))
        except AttributeError:  # a Struct that was created without its fields
            fields = list(zip(value.__struct_fields__, _struct_parts(value), strict=True))
        if is_frozen and _ATOMIC.issuperset([type(part) for _, part in fields]):
            return value
        copied = memo[id(value)] = value.__copy__()
        is_changed = not is_frozen
        for name, old in fields:
            kind = type(old)
            if kind not in _ATOMIC:
                new = memo.get(id(old), _MISSING)
                if new is _MISSING:
                    new = (_KNOWN.get(kind) or _kind_of(kind)).copy(old, memo)
                if new is not old:
                    is_changed = True
                    force_setattr(copied, name, new)
        if not is_changed:
            copied = memo[id(value)] = value
        return copied

    return copy_struct


# Not the class's own: a program may define how its Struct is shown.
_list_fields = msgspec.Struct.__rich_repr__


def _struct_parts(value: Any) -> Sequence[Any]:
    try:
        return astuple(value)
    except AttributeError:  # a Struct that was created without its fields
        return [getattr(value, name, None) for name in value.__struct_fields__]


_ATOM = _Kind(lambda value, memo: value, lambda value: ())
_KNOWN: dict[type, _Kind] = {
    list: _Kind(_copy_list, None, iter),
    dict: _Kind(_copy_dict, None, lambda value: itertools.chain(value, value.values())),
    set: _Kind(_copy_set, None, iter),
    tuple: _Kind(_copy_tuple, iter),
    frozenset: _Kind(_copy_frozenset, iter),
    **dict.fromkeys(_ATOMIC, _ATOM),
}
_LEARNED: WeakKeyDictionary[type, _Kind] = WeakKeyDictionary()


def _kind_of(cls: type) -> _Kind:
    kind = _KNOWN.get(cls) or _LEARNED.get(cls)
    if kind is None:
        kind = _learn(cls)
        # A weak dictionary is written in Python: 0.3 us for each message of a conversation.
        kinds = _KNOWN if str(cls.__module__).startswith("perdure.") else _LEARNED
        kinds[cls] = kind
    return kind


def _learn(cls: Any) -> _Kind:
    if issubclass(cls, enum.Enum | type):
        return _ATOM
    if _has_own_way_of_copying(cls):
        return _Kind(_copy_deeply, None)
    if issubclass(cls, tuple) and cls.__dictoffset__ == 0:  # a NamedTuple
        return _Kind(_copy_tuple, iter)
    if issubclass(cls, msgspec.Struct) and cls.__dictoffset__ == 0:
        return _Kind(_copier_of_struct(cls), _struct_parts if cls.__struct_config__.frozen else None, _struct_parts)
    # In vars: instances of a plain class derived from a frozen dataclass accept new attributes.
    if "__dataclass_params__" in vars(cls) and cls.__new__ is object.__new__:
        is_frozen = cls.__dataclass_params__.frozen
        fields = _CopyFields(cls, is_frozen)
        return _Kind(fields, fields.parts if is_frozen else None, fields.parts)
    return _Kind(_copy_open_struct if issubclass(cls, msgspec.Struct) else _copy_deeply, None)


def _has_own_way_of_copying(cls: Any) -> bool:
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"):
        member = getattr(cls, name, None)
        is_inherited = member is getattr(object, name, None) or member is getattr(msgspec.Struct, name, None)
        if not is_inherited and getattr(member, "__module__", None) != "dataclasses":
            return True
    return hasattr(cls, "__deepcopy__")


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
        return len(value) == len(other) and all(any(_same(part, each, seen) for each in other) for part in value)
    return _same_reduced(value, other, seen)


def _all_same(items: Iterable[Any], other: Iterable[Any], seen: _Seen) -> bool:
    parts, others = list(items), list(other)
    return len(parts) == len(others) and all(_same(a, b, seen) for a, b in zip(parts, others, strict=True))


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
