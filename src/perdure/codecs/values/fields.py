"""Objects that are their named fields: dataclasses, msgspec Structs, NamedTuples.

Built without `__init__` and `__post_init__`: these may check, fetch or count things that belong to making a
new object, and what was stored had been made already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from perdure.codec import Tree
from perdure.codecs.values.attributes import Attributes, ignore_field
from perdure.codecs.values.scalars import Coder
from perdure.codecs.walk import ATOMS, Decoders, Encoders, Refusal, decode_any, encode_fields, expect
from perdure.names import stable_name


class FieldShape(NamedTuple):
    """The fields of a class: their names in order, and how to make those that a stored value lacks."""

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
        _complete(values, shape, expect(tree.get("$unset", []), list))
    return values


def _complete(values: dict[str, Any], shape: FieldShape, unset: list[str]) -> None:
    for name in shape.names:
        if name in values or name in unset:
            continue
        if name not in shape.defaults:
            raise Refusal(
                f"the field {name!r} of {shape.cls.__qualname__} is not stored and has no default",
                "Give the field a default, or give the workflow a migration that adds it.",
            )
        values[name] = shape.defaults[name]()


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
    attributes = Attributes(cls, frozenset(names))
    omitted = {name: make() for name, make in shape.defaults.items()} if omits_defaults else {}

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        out: dict[str, Tree] = {"$type": tag}
        try:
            pairs: Iterable[tuple[str, Any]] = zip(names, getter(value), strict=True)
            if omitted:
                pairs = [(name, one) for name, one in pairs if name not in omitted or not _is_same(one, omitted[name])]
        except AttributeError:
            present = [name for name in names if hasattr(value, name)]
            out["$unset"] = [name for name in names if name not in present]
            pairs = zip(present, [getattr(value, name) for name in present], strict=True)
        encode_fields(pairs, out, value, walk, depth)
        return attributes.add(value, out, walk, depth)

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        fields = decode_fields(tree, shape, walk, depth)
        value = blank()
        for name, item in fields.items():
            put(value, name, item)
        return attributes.restore(value, tree, walk, depth)

    return Coder(encode, decode)


def _is_same(value: Any, default: Any) -> bool:
    """Only what needs no looking into: None and the like, and what is empty."""
    return value is default or (
        type(value) is type(default) and not value and not default and not isinstance(value, float)
    )


# ---------------------------------------------------------------- dataclasses


def dataclass_coder(cls: type) -> Coder:
    defaults: dict[str, Callable[[], Any]] = {}
    fields = dataclasses.fields(cls)
    for field in fields:
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = constant(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
    shape = FieldShape(cls, tuple(field.name for field in fields), defaults)
    return field_coder(shape, lambda: object.__new__(cls), object.__setattr__)


# ---------------------------------------------------------------- Structs


class _Probe(msgspec.Struct):
    items: list[int] = msgspec.field(default_factory=list)


# The class of default factories has no public name.
FACTORY = type(_Probe.__struct_defaults__[0])


def struct_coder(cls: type[msgspec.Struct]) -> Coder:
    names = cls.__struct_fields__
    defaults: dict[str, Callable[[], Any]] = {}
    stored_defaults = cls.__struct_defaults__
    for name, default in zip(names[len(names) - len(stored_defaults) :], stored_defaults, strict=True):
        if default is not msgspec.NODEFAULT:
            defaults[name] = default.factory if isinstance(default, FACTORY) else constant(default)
    shape = FieldShape(cls, names, defaults)
    # Only of our own: a user may change a default, and what was stored before must not change with it.
    omits = cls.__struct_config__.omit_defaults and cls.__module__.startswith("perdure.")
    return field_coder(shape, _struct_maker(cls), force_setattr, omits_defaults=omits)


def _struct_maker(cls: type[msgspec.Struct]) -> Callable[[], msgspec.Struct]:
    nothing = dict.fromkeys(cls.__struct_fields__)
    if not hasattr(cls, "__post_init__"):
        return lambda: cls(**nothing)
    model: list[msgspec.Struct] = []

    def make() -> msgspec.Struct:
        # A Struct can only be made by calling its class, which runs __post_init__; copying one does not. So the
        # first is made as a subclass without the hook, and then told what it is.
        if not model:
            hookless = {"__post_init__": lambda self: None, "__module__": cls.__module__}
            metaclass: Any = type(cls)
            first = metaclass(cls.__name__, (cls,), hookless)(**nothing)
            vars(object)["__class__"].__set__(first, cls)
            model.append(first)
        copied: msgspec.Struct = model[0].__copy__()  # type: ignore[attr-defined]  # not in its stubs
        return copied

    return make


# ---------------------------------------------------------------- NamedTuples


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
