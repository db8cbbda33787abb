"""Coercion of JSON values to the types that a handler declares.

The rules are those of `msgspec.convert(strict=True)`: a form that JSON lacks is read from the form JSON has (ISO
text for a datetime, a list for a tuple, an object for a dataclass), but never one JSON type from another.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast, get_args, get_origin

import msgspec

from perdure.graph.annotations import bare_of, flatten_union, is_typed_dict, required_keys
from perdure.graph.matching import is_instance_of
from perdure.twins import find_twin, has_twins


def coerce(value: object, annotation: object) -> object:
    """The value itself if it matches the annotation; else the value that its JSON form represents.

    That is: int to float, object to dataclass, Struct, TypedDict or pydantic model, list to tuple, set or
    NamedTuple, text to Enum (by value), datetime, date, time, timedelta, UUID, Decimal and (base64) bytes,
    elements likewise. In a union of several classes, the first that accepts the object and has most of its keys.

    Raises ValueError with the path: "Expected `int`, got `str` - at `$.groups[0]`". It never converts "5" to 5, 1 to
    True, or anything to a str. A pydantic model converts its own fields by its own rules.
    """
    if is_instance_of(value, annotation):
        return in_family(value, annotation)
    if (twin := find_twin(type(value))) is not None:
        return coerce(twin.to_own(value), annotation)
    try:
        return _convert(value, annotation)
    except _Misfit as misfit:
        raise ValueError(str(misfit)) from misfit.__cause__


def in_family(value: Any, annotation: Any) -> Any:
    """A matching value, with its messages as the annotation has them: ours, or another framework's."""
    if not has_twins() or value is None or type(value) is str:
        return value
    members = [member for member in flatten_union(bare_of(annotation)) if is_instance_of(value, member)]
    if len(members) > 1:
        members = [member for member in members if member is type(value)] or members[:1]
    wanted = members[0] if members else Any
    if isinstance(wanted, type):
        own, theirs = find_twin(type(value)), find_twin(wanted)
        if own is None and theirs is not None and issubclass(type(value), theirs.own):
            return theirs.from_own(value)
        if own is not None and own.own is wanted:
            return own.to_own(value)
    args = get_args(wanted)
    if args and type(value) in (list, tuple):
        kinds = args if type(value) is tuple and Ellipsis not in args else args[:1] * len(value)
        items = [in_family(item, kind) for item, kind in zip(value, kinds, strict=True)]
        return type(value)(items) if any(map(operator.is_not, items, value)) else value
    if len(args) == 2 and type(value) is dict:
        parts = [in_family(item, args[1]) for item in value.values()]
        return dict(zip(value, parts, strict=True)) if any(map(operator.is_not, parts, value.values())) else value
    return value


class _Misfit(ValueError):
    """A value that cannot be converted, and its path below the argument of `coerce`, such as `.a[0]`."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{reason} - at `${path}`" if path else reason)

    def below(self, step: str) -> _Misfit:
        return _Misfit(self.reason, step + self.path)


def _convert(value: object, annotation: object) -> object:
    try:
        return msgspec.convert(value, cast(Any, annotation), strict=True, dec_hook=_custom)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise _Misfit(reason, path.rstrip("`")) from error
    except (TypeError, NameError):  # msgspec does not support the annotation, such as a union of two dataclasses
        return _convert_by_hand(value, annotation)
    except Exception as error:  # a user's __post_init__ may raise anything
        raise _Misfit(f"{type(error).__name__}: {error}") from error


def _custom(cls: Any, value: object) -> object:
    """Hook of msgspec for other classes: return an instance unchanged, let a pydantic model validate."""
    if is_instance_of(value, cls):
        return value
    if not (hasattr(cls, "model_validate") and isinstance(value, Mapping)):
        raise ValueError(_format_mismatch(cls, value))
    try:
        return cast(object, cls.model_validate(value))
    except ValueError as error:
        raise ValueError(_reason_of(error)) from error


def _reason_of(error: Any) -> str:
    """A pydantic error in one line: `groups.0: Input should be a valid integer`."""
    if not hasattr(error, "errors"):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'model'}: {each['msg']}" for each in error.errors())


def _format_mismatch(annotation: object, value: object) -> str:
    return f"Expected `{_name(annotation)}`, got `{type(value).__name__}`"


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _convert_by_hand(value: object, annotation: object) -> object:
    members = flatten_union(annotation)
    if len(members) > 1:
        return _converted_to_member(value, members)
    wanted = members[0]
    origin, args = get_origin(wanted), get_args(wanted)
    if isinstance(wanted, enum.EnumMeta):
        for choice in cast(Iterable[enum.Enum], wanted):
            if type(choice.value) is type(value) and choice.value == value:  # 1 is not True
                return choice
        raise _Misfit(f"Invalid enum value {value!r}")
    if isinstance(value, Mapping) and (fields := record_fields(wanted)):
        return _converted_to_record(value, wanted, fields)
    if isinstance(value, list | tuple) and origin in _SEQUENCES:
        return _SEQUENCES[origin](_converted_elements(value, origin, args))
    if isinstance(value, Mapping) and origin in _MAPPINGS:
        return {_at(f".{key}", key, args[0]): _at(f".{key}", each, args[1]) for key, each in value.items()}
    raise _Misfit(_format_mismatch(wanted, value))


_SEQUENCES: dict[object, Callable[[Iterable[object]], object]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    tuple: tuple,
    frozenset: frozenset,
}
_MAPPINGS: tuple[object, ...] = (dict, abc.Mapping, abc.MutableMapping)


def _at(step: str, value: object, annotation: object) -> object:
    if is_instance_of(value, annotation):
        return value
    try:
        return _convert(value, annotation)
    except _Misfit as misfit:
        raise misfit.below(step) from misfit.__cause__


def _converted_elements(value: Sequence[object], origin: object, args: tuple[object, ...]) -> list[object]:
    if origin is not tuple or Ellipsis in args:
        args = args[:1] * len(value)
    if len(args) != len(value):
        raise _Misfit(f"Expected `array` of length {len(args)}, got {len(value)}")
    return [_at(f"[{index}]", each, wanted) for index, (each, wanted) in enumerate(zip(value, args, strict=True))]


def _converted_to_member(value: object, members: Sequence[object]) -> object:
    reasons = []
    for member in sorted(members, key=lambda member: _unknown_keys(value, member)):
        try:
            return _convert(value, member)
        except _Misfit as misfit:
            reasons.append(f"{_name(member)}: {misfit}")
    names = " | ".join(map(_name, members))
    raise _Misfit(f"Expected `{names}`, got `{type(value).__name__}` ({'; '.join(reasons)})")


def _unknown_keys(value: object, member: object) -> int:
    if not isinstance(value, Mapping):
        return 0
    keys = {field.key for field in record_fields(member) or ()} or set(getattr(member, "model_fields", value))
    return len(value.keys() - keys)


class RecordField(NamedTuple):
    name: str
    key: str
    annotation: object
    is_required: bool


def record_fields(cls: Any) -> list[RecordField] | None:
    """The fields of a dataclass, Struct or TypedDict; None for anything else. Raises ValueError for an unknown name in
    their types."""
    try:
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
            infos = msgspec.structs.fields(cls)
            return [RecordField(info.name, info.encode_name, info.type, info.required) for info in infos]
        if isinstance(cls, type) and dataclasses.is_dataclass(cls):
            hints = typing.get_type_hints(cls, include_extras=True)
            unset = dataclasses.MISSING
            return [
                RecordField(field.name, field.name, hints[field.name], field.default is field.default_factory is unset)
                for field in dataclasses.fields(cls)
                if field.init
            ]
        if is_typed_dict(cls):
            hints = typing.get_type_hints(cls)
            return [RecordField(name, name, hints[name], name in required_keys(cls)) for name in hints]
    except NameError as error:
        raise _Misfit(f"A field type of `{_name(cls)}` cannot be resolved: {error}") from error
    return None


def _converted_to_record(value: Mapping[Any, object], cls: Any, fields: Sequence[RecordField]) -> object:
    unknown = value.keys() - {field.key for field in fields}
    if unknown and issubclass(cls, msgspec.Struct) and cls.__struct_config__.forbid_unknown_fields:
        raise _Misfit(f"`{_name(cls)}` has no field {', '.join(map(repr, sorted(map(str, unknown))))}")
    missing = next((field.key for field in fields if field.is_required and field.key not in value), None)
    if missing is not None:
        raise _Misfit(f"Object missing required field `{missing}`")
    present = [field for field in fields if field.key in value]
    arguments = {field.name: _at(f".{field.key}", value[field.key], field.annotation) for field in present}
    try:
        return cast(object, cls(**arguments))
    except Exception as error:  # a user's __post_init__ may raise anything
        raise _Misfit(f"{type(error).__name__}: {error}") from error
