"""Objects with named fields: dataclasses, msgspec Structs, NamedTuples, pydantic models.

Built without `__init__` and `__post_init__`: these may check, fetch or count things that belong to making a
new object, and what was stored had been made already.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Set as AbstractSet
from copy import deepcopy
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from perdure.codec import Tree
from perdure.codecs.annotations import decode_annotation, encode_arguments
from perdure.codecs.builtin_types import Coder
from perdure.codecs.types import generic_origin
from perdure.codecs.walk import ATOMS, Decoders, Encoders, Refusal, decode_any, encode_dict, encode_fields, expect
from perdure.names import stable_name


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
        self.can_exist = self._has_dict or bool(self._slots)

    def add(self, value: Any, out: dict[str, Tree], walk: Encoders, depth: int) -> dict[str, Tree]:
        """Add the attributes to the tree of the value, if it has any."""
        if self._slots or (self._has_dict and not value.__dict__.keys() <= self._fields):
            attributes = self._read(value, walk, depth)
            if attributes:
                out["$attributes"] = encode_fields(attributes.items(), {}, value, walk, depth)
        return out

    def _read(self, value: Any, walk: Encoders, depth: int) -> dict[str, Any]:
        attributes = {name: slot.__get__(value) for name, slot in self._slots.items() if _is_set(slot, value)}
        for name, item in (value.__dict__ if self._has_dict else {}).items():
            if name not in self._fields and self._is_kept(name, item, walk, depth):
                attributes[name] = item
        return attributes

    def _is_kept(self, name: str, item: object, walk: Encoders, depth: int) -> bool:
        if name == "__orig_class__":
            # Set by Box[int](...). It is a hint, not data, so it must not prevent the save.
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


class FieldShape(NamedTuple):
    """The fields of a class: their names in order, and defaults for those that a stored value lacks."""

    cls: type
    names: tuple[str, ...]
    defaults: dict[str, Callable[[], Any]]


def decode_fields(tree: dict[str, Tree], shape: FieldShape, walk: Decoders, depth: int) -> dict[str, Any]:
    """The stored fields that the class still has, completed with the defaults of those added since."""
    values: dict[str, Any] = {}
    key = ""
    try:
        for key, item in tree.items():
            if key in shape.names:
                values[key] = item if type(item) in ATOMS else decode_any(item, walk, depth + 1)
            elif not key.startswith("$"):
                ignore_field(shape.cls, key)
    except Refusal as refusal:
        refusal.inside(tree, f".{key}")
        raise
    if len(values) != len(shape.names):
        unset = expect(tree.get("$unset", []), list)
        for name in shape.names:
            if name in values or name in unset:
                continue
            if name not in shape.defaults:
                raise Refusal(
                    f"the field {name!r} of {shape.cls.__qualname__} is not stored and has no default",
                    "Give the field a default, or give the workflow a migration that adds it.",
                )
            values[name] = shape.defaults[name]()
    return values


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def getter_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda value: ()
    if len(names) == 1:
        only = attrgetter(names[0])
        return lambda value: (only(value),)
    return attrgetter(*names)


def field_coder(
    shape: FieldShape, blank: Callable[[], Any], put: Callable[[Any, str, Any], None], *, omits_defaults: bool = False
) -> Coder:
    cls, names, _ = shape
    tag = stable_name(cls)
    getter = getter_of(names)
    attributes = Attributes(cls, _not_stored(cls).union(names))
    omitted = {name: make() for name, make in shape.defaults.items()} if omits_defaults else {}

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        out: dict[str, Tree] = {"$type": tag}
        try:
            pairs: Iterable[tuple[str, Any]] = zip(names, getter(value), strict=True)
            if omitted:
                pairs = [
                    (name, item) for name, item in pairs if name not in omitted or not _is_same(item, omitted[name])
                ]
        except AttributeError:
            present = [name for name in names if hasattr(value, name)]
            out["$unset"] = [name for name in names if name not in present]
            pairs = zip(present, [getattr(value, name) for name in present], strict=True)
        encode_fields(pairs, out, value, walk, depth)
        return attributes.add(value, out, walk, depth) if attributes.can_exist else out

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        fields = decode_fields(tree, shape, walk, depth)
        value = blank()
        for name, item in fields.items():
            put(value, name, item)
        return attributes.restore(value, tree, walk, depth) if "$attributes" in tree else value

    return Coder(encode, decode)


def _is_same(value: Any, default: Any) -> bool:
    """Whether the value is a plain constant or empty, and equal to the default."""
    return value is default or (
        type(value) is type(default) and not value and not default and not isinstance(value, float)
    )


def dataclass_coder(cls: type) -> Coder:
    fields, missing = dataclasses.fields(cls), dataclasses.MISSING
    defaults = {field.name: field.default_factory for field in fields if field.default_factory is not missing}
    defaults |= {field.name: constant(field.default) for field in fields if field.default is not missing}
    shape = FieldShape(cls, tuple(field.name for field in fields), defaults)
    return field_coder(shape, lambda: object.__new__(cls), object.__setattr__)


class _Probe(msgspec.Struct):
    items: list[int] = msgspec.field(default_factory=list)


# The class of default factories has no public name.
FACTORY = type(_Probe.__struct_defaults__[0])


def _not_stored(cls: type) -> frozenset[str]:
    """Fields of a Struct of ours that are not data."""
    return getattr(cls, "not_stored", frozenset()) if cls.__module__.startswith("perdure.") else frozenset()


def struct_coder(cls: type[msgspec.Struct]) -> Coder:
    """Fields that are not stored are None in a loaded value."""
    names, values = cls.__struct_fields__, cls.__struct_defaults__
    defaults = {
        name: value.factory if isinstance(value, FACTORY) else constant(value)
        for name, value in zip(names[len(names) - len(values) :], values, strict=True)
        if value is not msgspec.NODEFAULT
    }
    stored = tuple(name for name in names if name not in _not_stored(cls))
    shape = FieldShape(cls, stored, defaults)
    # Only for our own classes: a user may change a default, which must not change stored values.
    omits = cls.__struct_config__.omit_defaults and cls.__module__.startswith("perdure.")
    return field_coder(shape, _struct_maker(cls), force_setattr, omits_defaults=omits)


def _struct_maker(cls: type[msgspec.Struct]) -> Callable[[], msgspec.Struct]:
    nothing = dict.fromkeys(cls.__struct_fields__)
    if not hasattr(cls, "__post_init__"):
        return lambda: cls(**nothing)
    model: list[msgspec.Struct] = []

    def make() -> msgspec.Struct:
        # Calling a Struct's class runs __post_init__; copying an instance does not. So the first instance is created
        # from a subclass without the hook, and then gets its class.
        if not model:
            hookless = {"__post_init__": lambda self: None, "__module__": cls.__module__}
            metaclass: Any = type(cls)
            first = metaclass(cls.__name__, (cls,), hookless)(**nothing)
            vars(object)["__class__"].__set__(first, cls)
            model.append(first)
        copied: msgspec.Struct = model[0].__copy__()  # type: ignore[attr-defined]  # not in its stubs
        return copied

    return make


def namedtuple_coder(cls: Any) -> Coder:
    tag = stable_name(cls)
    names: tuple[str, ...] = cls._fields
    shape = FieldShape(cls, names, {name: constant(default) for name, default in cls._field_defaults.items()})
    attributes = Attributes(cls)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        pairs = zip(names, tuple.__iter__(value), strict=True)
        return attributes.add(value, encode_fields(pairs, {"$type": tag}, value, walk, depth), walk, depth)

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        fields = decode_fields(tree, shape, walk, depth)
        return attributes.restore(tuple.__new__(cls, [fields[name] for name in names]), tree, walk, depth)

    return Coder(encode, decode)


# pydantic models are built without validation, and without importing pydantic.


@lru_cache(maxsize=256)
def pydantic_coder(cls: Any) -> Coder:
    origin, args = generic_origin(cls)
    tag = stable_name(origin)
    shape = FieldShape(
        cls,
        tuple(cls.model_fields),
        {
            name: partial(field.get_default, call_default_factory=True, validated_data={})
            for name, field in cls.model_fields.items()
            if not field.is_required()
        },
    )
    names = shape.names
    everything = frozenset(names)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        out: dict[str, Tree] = {"$type": tag}
        if args:
            out["$args"] = encode_arguments(args, cls, walk, depth)
        fields = value.__dict__
        encode_fields([(name, fields[name]) for name in names if name in fields], out, value, walk, depth)
        if unset := [name for name in names if name not in fields]:
            out["$unset"] = unset
        if value.__pydantic_fields_set__ != everything:
            out["$set"] = sorted(value.__pydantic_fields_set__)
        if value.__pydantic_extra__:
            out["$extra"] = encode_dict(value.__pydantic_extra__, walk, depth)
        if value.__pydantic_private__:
            out["$private"] = encode_fields(value.__pydantic_private__.items(), {}, value, walk, depth)
        return out

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        if "$args" in tree and not args:
            return _decode_generic(cls, tree, walk, depth)
        fields = decode_fields(tree, shape, walk, depth)
        value = cls.__new__(cls)
        _set(value, "__dict__", {name: fields[name] for name in names if name in fields})
        _set(value, "__pydantic_fields_set__", set(expect(tree.get("$set", list(names)), list)))
        extra: dict[str, Any] | None = {} if cls.model_config.get("extra") == "allow" else None
        if "$extra" in tree:
            extra = expect(decode_any(tree["$extra"], walk, depth), dict)
        _set(value, "__pydantic_extra__", extra)
        _set(value, "__pydantic_private__", _private(cls, tree, walk, depth))
        return value

    return Coder(encode, decode)


_set = object.__setattr__


def _decode_generic(origin: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
    args = tuple(decode_annotation(arg, walk, depth + 1) for arg in expect(tree["$args"], list))
    cls = origin[args if len(args) != 1 else args[0]]
    if not isinstance(cls, type) or generic_origin(cls)[0] is not origin:
        raise Refusal(f"{origin.__qualname__} cannot be made for these types")
    return pydantic_coder(cls).decode(tree, walk, depth)


def _private(cls: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> dict[str, Any] | None:
    if not cls.__private_attributes__:
        return None
    private: dict[str, Any] = expect(decode_any(tree.get("$private", {}), walk, depth), dict)
    for name, attribute in cls.__private_attributes__.items():
        if name in private:
            continue
        if attribute.default_factory is not None:
            private[name] = attribute.default_factory()
        elif type(attribute.default).__name__ != "PydanticUndefinedType":
            private[name] = deepcopy(attribute.default)
    return private
