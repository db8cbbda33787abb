"""What an answer may look like, for the command that is shown beside a question."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from perdure.graph.types import flatten_union

UNKNOWN = "JSON"
_PLAIN: dict[Any, Any] = {bool: True, int: 1, float: 1.5, str: "text", dict: {}, list: [], type(None): None}


def sample_answer(response_type: Any) -> str:
    """A VALUE for `perdure answer` that such a request would accept, or the word JSON where none is known."""
    if response_type is str:
        return "your answer"
    told = getattr(response_type, "sample_answer", None)
    if isinstance(told, str):
        return told
    try:
        return json.dumps(_sample(response_type))
    except (LookupError, TypeError, ValueError, NameError):  # a type whose JSON only its author knows
        return UNKNOWN


def _sample(annotation: Any) -> Any:
    [first, *_] = flatten_union(annotation)
    if first in _PLAIN:
        return _PLAIN[first]
    origin, arguments = get_origin(first), get_args(first)
    if origin is Literal:
        return arguments[0]
    if origin in (list, set, frozenset, tuple):
        return [_sample(one) for one in arguments if one is not ...]
    if origin is dict:
        return {}
    if isinstance(first, enum.EnumMeta):
        member: Any = next(iter(first))
        return member.value
    return {name: _sample(kind) for name, kind in _needed(first)}


def _needed(cls: Any) -> Iterator[tuple[str, Any]]:
    """Fields without a default, by the name that they have in JSON. Raises LookupError for what has no fields."""
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        yield from ((one.encode_name, one.type) for one in msgspec.structs.fields(cls) if one.required)
    elif dataclasses.is_dataclass(cls):
        hints = get_type_hints(cls)
        missing = dataclasses.MISSING
        fields = (one for one in dataclasses.fields(cls) if one.init)
        yield from ((one.name, hints[one.name]) for one in fields if one.default is one.default_factory is missing)
    elif hasattr(cls, "model_fields"):
        yield from ((name, one.annotation) for name, one in cls.model_fields.items() if one.is_required())
    else:
        raise LookupError(cls)
