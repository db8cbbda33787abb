"""What an object carries beside its fields: entries of `__dict__` and slots, read and put back as they are.

Put back means written into `__dict__` or the slot itself: `setattr` would run properties of the class, and
stored data could replace `__class__` with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Set as AbstractSet
from functools import cached_property
from types import MemberDescriptorType
from typing import Any

from perdure.codec import Tree
from perdure.codecs.walk import Decoders, Encoders, Refusal, decode_any, encode_fields, expect


class StoredFieldIgnored(UserWarning):
    """A stored value has a field that its class no longer has; the rest was loaded."""


def ignore_field(cls: type, name: str) -> None:
    warnings.warn(
        f"A stored {cls.__qualname__} has the field {name!r}, which the class no longer has; it was left out.",
        StoredFieldIgnored,
        stacklevel=2,
    )


class Attributes:
    """The attributes of one class's instances that are not among the names in `fields`."""

    def __init__(self, cls: type, fields: AbstractSet[str] = frozenset()) -> None:
        self._cls = cls
        self._fields = fields
        self._slots = {name: slot for name, slot in slots_of(cls).items() if name not in fields}
        self._has_dict = cls.__dictoffset__ != 0

    def add(self, value: Any, out: dict[str, Tree], walk: Encoders, depth: int) -> dict[str, Tree]:
        """Put them into the tree of the value; nothing is added if it has none, which is most often so."""
        if self._slots or (self._has_dict and not value.__dict__.keys() <= self._fields):
            found = self._read(value, walk, depth)
            if found:
                out["$attributes"] = encode_fields(found.items(), {}, value, walk, depth)
        return out

    def _read(self, value: Any, walk: Encoders, depth: int) -> dict[str, Any]:
        found = {name: slot.__get__(value) for name, slot in self._slots.items() if _is_set(slot, value)}
        for name, item in (value.__dict__ if self._has_dict else {}).items():
            if name not in self._fields and self._is_kept(name, item, walk, depth):
                found[name] = item
        return found

    def _is_kept(self, name: str, item: object, walk: Encoders, depth: int) -> bool:
        if name == "__orig_class__":
            # Left by Box[int](...). A hint, not data: one that cannot be stored must not stop the save.
            try:
                walk[type(item)](item, walk, depth + 1)
            except Refusal:
                return False
        return not isinstance(getattr(self._cls, name, None), cached_property)

    def restore(self, value: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        for name, item in expect(tree.get("$attributes", {}), dict).items():
            try:
                part = decode_any(item, walk, depth + 1)
            except Refusal as refusal:
                refusal.inside(tree, f".{name}")
                raise
            if name in self._slots:
                self._slots[name].__set__(value, part)
            elif self._has_dict:
                value.__dict__[name] = part
            else:
                ignore_field(self._cls, name)
        return value


def slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    """The slots that classes written in Python declare, by attribute name."""
    return {
        name: member
        for owner in reversed(cls.__mro__)
        if "__slots__" in vars(owner)
        for name, member in vars(owner).items()
        if isinstance(member, MemberDescriptorType)
    }


def _is_set(slot: MemberDescriptorType, value: object) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True
