"""Base of messages and responses: data that is exact in JSON, and that Agent Framework accepts as its own."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from perdure.checkpoints.encode import tool_codec
from perdure.errors import UnreadableValue

_codec = functools.cache(tool_codec)
"""For values without a JSON form: NaN, bytes, tuples, large integers, your own data types."""


def encode_value(value: Any, path: str) -> Any:
    """The value as JSON. Raises UnsavableValue with the path."""
    return _codec().encode(value, path)


def decode_value(encoded: Any, path: str) -> Any:
    """Raises UnreadableValue."""
    return _codec().decode(encoded, path)


def framework_class(name: str) -> Any:
    """Agent Framework's class of this name. None in a program that has not imported the framework."""
    return getattr(sys.modules.get("agent_framework"), name, None)


class TwinType(msgspec.StructMeta):
    """The type of a class of ours that has the name and the attributes of one in Agent Framework, in its `twin`.

    Instances of the framework's class are instances of ours too. `is_own` is false for them.
    """

    checks_types = True
    """`isinstance` depends only on the type of the value."""

    def __instancecheck__(cls, value: object) -> bool:
        twin: str = getattr(cls, "twin", "")
        return type.__instancecheck__(cls, value) or isinstance(value, framework_class(twin) or ())


def is_own(value: object, *classes: type) -> bool:
    """Whether the value is an instance of one of these classes itself."""
    return issubclass(type(value), classes)


twin_class: Any = property(lambda self: framework_class(self.twin) or type(self))
"""The `__class__` of our instances: `isinstance` in the framework's agents and model clients accepts them."""


class JsonStruct(msgspec.Struct, metaclass=TwinType):
    """Data that is equal after a conversion to JSON and back."""

    if not TYPE_CHECKING:
        __class__ = twin_class
    twin: ClassVar[str] = ""
    """The name of the class in Agent Framework."""

    kind: ClassVar[str | None] = None
    """The `type` in `to_dict`, for a class without such a field."""
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {}
    """Fields that hold one of these types, or several."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold any value."""
    hidden: ClassVar[frozenset[str]] = frozenset({"raw_representation"})
    """Fields that `to_dict` leaves out."""

    def to_dict(self, *, exclude: Collection[str] | None = None, exclude_none: bool = True) -> dict[str, Any]:
        """As JSON data, by default without unset fields."""
        data: dict[str, Any] = {} if self.kind is None else {"type": self.kind}
        for field in msgspec.structs.fields(self):
            name, value = field.name, getattr(self, field.name)
            is_set = value not in (None, field.default) or (name == "additional_properties" and value is not None)
            if name in self.hidden or name in (exclude or ()) or (exclude_none and not is_set):
                continue
            data[name] = self._encode_field(name, value)
        return data

    def _encode_field(self, name: str, value: Any) -> Any:
        if name not in self.parts or not is_own(value, list, JsonStruct):
            return encode_value(value, f"{type(self).__name__}.{name}")
        parts = value if isinstance(value, list) else [value]
        encoded = [part.to_dict() if hasattr(part, "to_dict") else encode_value(part, name) for part in parts]
        return encoded if isinstance(value, list) else encoded[0]

    def to_json(self, *, exclude: Collection[str] | None = None, exclude_none: bool = True, **options: Any) -> str:
        """`to_dict` as text. Other arguments are those of `json.dumps`."""
        return json.dumps(self.to_dict(exclude=exclude, exclude_none=exclude_none), **options)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for invalid data. Unknown fields are ignored."""
        if not isinstance(data, Mapping):
            raise ValueError(f"Not a {cls.__name__}: expected a dict, got {data!r}.")
        try:
            fields = {name: cls._decode_field(name, data[name]) for name in cls.__struct_fields__ if name in data}
            others = {name: fields.pop(name) for name in list(fields) if name in cls.parts or name in cls.free}
            converted = msgspec.convert(fields, cls)
            return msgspec.structs.replace(converted, **others)
        except (msgspec.ValidationError, UnreadableValue, TypeError) as error:
            raise ValueError(f"Not a {cls.__name__}: {error}") from error

    @classmethod
    def _decode_field(cls, name: str, value: Any) -> Any:
        part: Any = cls.parts.get(name)
        if part is None or value is None:
            return decode_value(value, f"{cls.__name__}.{name}")
        return part.from_dict(value) if isinstance(value, (Mapping, str)) else list(map(part.from_dict, value))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            data = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ValueError(f"Not a {cls.__name__}: {error}") from error
        return cls.from_dict(data)


def copy_fields(value: Any, cls: type[Any]) -> dict[str, Any]:
    """The fields of `cls` that an object of another class has, without those that are not set."""
    fields = {name: getattr(value, name, None) for name in cls.__struct_fields__}
    if not is_json(fields.get("raw_representation")):  # an object of a model's client
        del fields["raw_representation"]
    return {name: item for name, item in fields.items() if item is not None}


def is_json(value: Any) -> bool:
    """Whether JSON has this value as it is."""
    if type(value) is dict:
        return all(type(name) is str and is_json(item) for name, item in value.items())
    return all(map(is_json, value)) if type(value) is list else value is None or type(value) in (str, int, float, bool)
