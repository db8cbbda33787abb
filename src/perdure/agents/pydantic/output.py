"""Structured output: any type of a user's, as pydantic-ai takes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from pydantic_ai import ModelRetry, NativeOutput, PromptedOutput, StructuredDict, TextOutput, ToolOutput
from pydantic_ai.tools import DeferredToolRequests

OutputMode: TypeAlias = Literal["native", "tool"]


def output_spec(output_type: Any, mode: OutputMode | None = None) -> list[Any]:
    """For `output_type=` of pydantic-ai. Text where none is given. `mode`: how the model is asked for a value, by the
    schema of its answer or by a tool; as pydantic-ai chooses where it is left out."""
    given = [str] if output_type is None else output_type
    if get_origin(given) in (Union, UnionType):
        given = get_args(given)
    several = [_as_theirs(one) for one in (given if isinstance(given, (list, tuple)) else [given])]
    if mode is not None and output_type is not None:
        several = [NativeOutput(several)] if mode == "native" else [ToolOutput(one) for one in several]
    return [*several, DeferredToolRequests]


def value_types(output_type: Any) -> tuple[Any, ...]:
    """The types that values may have, for what has to store them."""
    if isinstance(output_type, (list, tuple)):
        return tuple(one for several in map(value_types, output_type) for one in several)
    if isinstance(output_type, ToolOutput):
        return value_types(output_type.output)
    if isinstance(output_type, (NativeOutput, PromptedOutput)):
        return value_types(output_type.outputs)
    if inspect.isroutine(output_type):  # it makes the value
        return value_types(get_type_hints(output_type).get("return"))
    is_known = output_type in (None, str, DeferredToolRequests) or isinstance(output_type, TextOutput)
    return () if is_known else (output_type,)


def _as_theirs(one: Any) -> Any:
    is_struct = isinstance(one, type) and issubclass(one, msgspec.Struct)
    return _maker(one) if is_struct or is_typeddict(one) else one


def _maker(kind: Any) -> Callable[[Any], Any]:
    """pydantic takes no Struct, and not every TypedDict: the model is told the schema, and what it gives is made one by
    msgspec."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = str(schema["$ref"]).rpartition("/")[2]
    shape = {**components.pop(name), **({"$defs": components} if components else {})}

    def make(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise ModelRetry(f"No {kind.__name__}: {error}") from error

    make.__name__ = kind.__name__
    make.__doc__ = kind.__doc__
    make.__annotations__ = {"value": StructuredDict(shape, name=kind.__name__)}
    return make
