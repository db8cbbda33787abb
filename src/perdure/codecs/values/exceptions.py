"""Exceptions: class, arguments and attributes, without the traceback and the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.codec import Codec, Tree
from perdure.codecs.kinds import layout_base
from perdure.codecs.values.attributes import Attributes
from perdure.codecs.values.scalars import Coder
from perdure.codecs.walk import Decoders, Encoders, decode_any, decode_list, encode_fields, expect
from perdure.errors import UnsavableValue
from perdure.names import stable_name

# Attributes that these keep outside of args and __dict__.
MEMBERS: dict[type, tuple[str, ...]] = {
    ImportError: ("name", "path"),
    ModuleNotFoundError: ("name", "path"),
    NameError: ("name",),
    UnboundLocalError: ("name",),
    AttributeError: ("name",),
}


@dataclass(frozen=True)
class StoredError:
    """What is kept of an exception that cannot be stored as it is."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


def encodable_exception(error: BaseException, codec: Codec) -> BaseException | StoredError:
    """The exception itself if the codec can store it exactly, otherwise its name and message."""
    try:
        codec.encode(error, "error")
    except UnsavableValue:
        return StoredError(stable_name(type(error)), _message(error))
    return error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001 - any error of a user's __str__; the first one matters
        return f"(its message cannot be shown: {type(problem).__name__})"


def exception_coder(cls: type[BaseException], tag: str) -> Coder:
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
