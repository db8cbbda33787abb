"""What the types of a conversation have in common: they are exact in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec


class Serialised(msgspec.Struct, frozen=True):
    """Data that is the same after a way through JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON has; fields with their default values are left out."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]  # a Struct becomes a dict

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for what is none. Fields that it does not know are ignored."""
        try:
            return msgspec.convert(dict(data), cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"No {cls.__name__}: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError(f"No {cls.__name__}: {error}") from error
