"""JSON schemas of users' types: of a workflow's input and output, and of answers."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, Union

import msgspec


def schema_of(annotation: Any) -> dict[str, Any]:
    """An empty one, which anything fits, for a type that has none."""
    if annotation is None or annotation is Any or isinstance(annotation, str):
        return {}
    if hasattr(annotation, "model_json_schema"):
        found: dict[str, Any] = annotation.model_json_schema()
        return found
    try:
        schema: dict[str, Any] = msgspec.json.schema(annotation)
    except (TypeError, ValueError, NameError, RecursionError):
        return {}
    return schema


def schema_of_any(annotations: Iterable[Any]) -> dict[str, Any]:
    """Of something that may be of any of these types."""
    given = [one for one in annotations if one is not types.NoneType]
    if not given:
        return {}
    together = schema_of(Union[tuple(given)])  # noqa: UP007  # a union of types known only now
    if together:
        return together
    each = [schema for one in given if (schema := schema_of(one))]
    return {"anyOf": each} if len(each) == len(given) else {}
