"""Members of enumerations, by name; combined flags, which have none, by value."""

from __future__ import annotations

from enum import Enum, Flag
from typing import Any

from perdure.codec import Tree
from perdure.codecs.refusal import Refusal
from perdure.codecs.scalars import Coder
from perdure.codecs.walk import Decoders, Encoders, decode_any, expect
from perdure.errors import did_you_mean
from perdure.names import stable_name


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
