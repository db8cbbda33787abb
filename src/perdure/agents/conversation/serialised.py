"""What the types of a conversation have in common: they are exact in JSON."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from perdure.checkpoints.encoding.checkpoint import tool_codec
from perdure.codec import Codec
from perdure.errors import UnreadableValue


@functools.cache
def _codec() -> Codec:
    """For what JSON has no form for: NaN, bytes, tuples, large integers, data types of your own."""
    return tool_codec()


def told_value(value: Any, path: str) -> Any:
    """As only JSON has it. Raises UnsavableValue, with the path, for what is no data."""
    return _codec().encode(value, path)


def read_value(told: Any, path: str) -> Any:
    """Raises UnreadableValue."""
    return _codec().decode(told, path)


class Serialised(msgspec.Struct, frozen=True):
    """Data that is the same after a way through JSON."""

    kind: ClassVar[str | None] = None
    """What `to_dict` says under `type`, where the class has no such field."""
    parts: ClassVar[Mapping[str, type[Serialised]]] = {}
    """Fields that hold one of these types, or several."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold anything."""

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON has; fields with their default values are left out."""
        told: dict[str, Any] = {} if self.kind is None else {"type": self.kind}
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value is not field.default and (value != () or field.default != ()):
                told[field.name] = self._told(field.name, value)
        return told

    def _told(self, name: str, value: Any) -> Any:
        if name not in self.parts:
            return told_value(value, f"{type(self).__name__}.{name}")
        return [one.to_dict() for one in value] if isinstance(value, tuple) else value.to_dict()

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for what is none. Fields that it does not know are ignored."""
        if not isinstance(data, Mapping):
            raise ValueError(f"No {cls.__name__}: expected a dict, got {data!r}.")
        try:
            given = {name: cls._read(name, data[name]) for name in cls.__struct_fields__ if name in data}
            others = {name: given.pop(name) for name in list(given) if name in cls.parts or name in cls.free}
            made = msgspec.convert(given, cls)
            return msgspec.structs.replace(made, **others)
        except (msgspec.ValidationError, UnreadableValue, TypeError) as error:
            raise ValueError(f"No {cls.__name__}: {error}") from error

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if name not in cls.parts or value is None:
            return read_value(value, f"{cls.__name__}.{name}")
        part: Any = cls.parts[name]
        return part.from_dict(value) if isinstance(value, (Mapping, str)) else tuple(map(part.from_dict, value))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            found = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ValueError(f"No {cls.__name__}: {error}") from error
        return cls.from_dict(found)
