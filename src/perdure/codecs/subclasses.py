"""Subclasses of built-in types, with their attributes: enums, exceptions, `class UserId(str)`, OrderedDict, Counter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any

from perdure.codec import Codec, Tree
from perdure.codecs.builtin_types import Coder, items_coder, pairs_coder
from perdure.codecs.fields import Attributes
from perdure.codecs.types import layout_base, stored_name
from perdure.codecs.walk import Decoders, Encoders, Refusal, decode_any, decode_list, encode_fields, expect
from perdure.errors import UnsavableValue, did_you_mean
from perdure.names import stable_name

# Attributes outside of args and __dict__.
MEMBERS: dict[type, tuple[str, ...]] = {
    ImportError: ("name", "path"),
    ModuleNotFoundError: ("name", "path"),
    NameError: ("name",),
    UnboundLocalError: ("name",),
    AttributeError: ("name",),
}


@dataclass(frozen=True)
class StoredError:
    """Name and message of an exception that cannot be stored exactly."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


def encodable_exception(error: BaseException, codec: Codec) -> BaseException | StoredError:
    """The exception itself if the codec can store it exactly, otherwise its name and message."""
    try:
        codec.encode(error, "error")
    except UnsavableValue:
        try:
            message = str(error)
        except Exception as problem:  # noqa: BLE001 - any error of a user's __str__; the first one matters
            message = f"(its message cannot be shown: {type(problem).__name__})"
        return StoredError(stable_name(type(error)), message)
    return error


def exception_coder(cls: type[BaseException]) -> Coder:
    tag = stored_name(cls)
    base: Any = layout_base(cls)
    attributes = Attributes(cls)
    members = MEMBERS.get(base, ())

    def encode(value: BaseException, walk: Encoders, depth: int) -> Tree:
        # The built-in class's own arguments: OSError keeps its file name out of `args`.
        pairs = [("args", list(base.__reduce__(value)[1]))]
        pairs += [(name, getattr(value, name)) for name in members if getattr(value, name) is not None]
        return attributes.add(value, encode_fields(pairs, {"$type": tag}, value, walk, depth), walk, depth)

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        args = decode_list(expect(tree["args"], list), walk, depth + 1)
        value = base.__new__(cls, *args)
        base.__init__(value, *args)
        for name in members:
            if name in tree:
                object.__setattr__(value, name, decode_any(tree[name], walk, depth + 1))
        if type(value) is not cls:
            raise TypeError(f"these arguments make a {type(value).__name__}")
        return attributes.restore(value, tree, walk, depth)

    return Coder(encode, decode)


def enum_coder(cls: type[Enum]) -> Coder:
    tag = stable_name(cls)
    members = cls.__members__

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        name = value._name_
        if name in members and members[name] is value:
            return {"$type": tag, "name": name}
        if isinstance(value, Flag):
            return {"$type": tag, "value": walk[int](value._value_, walk, depth + 1)}
        raise Refusal(f"{value!r} is not one of the members of {cls.__qualname__}")

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        if "name" in tree:
            name = expect(tree["name"], str)
            if name not in members:
                raise Refusal(f"{cls.__qualname__} has no member {name!r}{did_you_mean(name, members)}")
            return members[name]
        value = cls(expect(decode_any(tree["value"], walk, depth + 1), int)) if issubclass(cls, Flag) else None
        if type(value) is not cls:
            raise Refusal(f"it is not a value of {cls.__qualname__}")
        return value

    return Coder(encode, decode)


# The value as the built-in type, without calling the `__str__` or `__int__` of the subclass.
PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
    bytearray: bytearray.copy,
}


def subclass_coder(cls: type) -> Coder:
    """Reads and writes with the methods of the built-in type, so that overridden ones do not run."""
    base = layout_base(cls)
    make = _scalar_coder if base in PLAIN else pairs_coder if issubclass(base, dict) else items_coder
    content = make(cls, base, stored_name(cls), "$")
    attributes = Attributes(cls)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        return attributes.add(value, content.encode(value, walk, depth), walk, depth)

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        return attributes.restore(content.decode(tree, walk, depth), tree, walk, depth)

    return Coder(encode, decode)


def _scalar_coder(cls: type, base: Any, tag: str, prefix: str) -> Coder:
    to_plain, value_key = PLAIN[base], f"{prefix}value"

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        return {"$type": tag, value_key: walk[base](to_plain(value), walk, depth)}

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        plain = expect(decode_any(tree[value_key], walk, depth + 1), base)
        if base is bytearray:
            value: Any = bytearray.__new__(cls)
            bytearray.extend(value, plain)
            return value
        return base.__new__(cls, plain)

    return Coder(encode, decode)
