"""The data types that a workflow declares by its annotations: all parts of its handlers' types."""

from __future__ import annotations

import contextlib
import functools
import sys
import typing
from collections.abc import Iterable
from typing import Any

from perdure.codec import DeclaredTypes, declare
from perdure.codecs.types import BUILTIN_NAMES, generic_origin, kind_of
from perdure.names import stable_module

# An executor defined in one of these does not declare the package's data types.
SHARED_PACKAGES = frozenset({*sys.stdlib_module_names, "perdure", "typing_extensions"}) - {"__main__"}


def reachable_types(annotation: object) -> frozenset[type]:
    """All data types that annotations show as parts of values of this annotation.

    Not subclasses, nor names that cannot be resolved.
    """
    types: set[type] = set()
    seen: set[int] = set()
    waiting: list[object] = [annotation]
    alive: list[object] = []
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        alive.append(part)  # an id is unique only while its object lives
        waiting.extend(_parts(part))
        if isinstance(part, type) and part not in BUILTIN_NAMES and kind_of(part) is not None:
            types.add(part)
    return frozenset(types)


def declared_types(
    annotations: Iterable[object], classes: Iterable[type], extra: Iterable[type | str]
) -> DeclaredTypes:
    """The types that a decoder may build: from handlers' annotations, executors' packages, and `extra`."""
    explicit = declare(extra)
    types = set(explicit.types)
    for annotation in (*annotations, *explicit.types):
        types |= reachable_types(annotation)
    packages = {stable_module(cls.__module__).partition(".")[0] for cls in classes}
    return DeclaredTypes(frozenset(types), explicit.names, frozenset(packages - SHARED_PACKAGES))


def _parts(annotation: Any) -> list[object]:
    """The direct parts of the annotation."""
    parts: list[object] = []
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return [type(value) for value in typing.get_args(annotation)]
    if origin is not None:
        parts.append(origin)
        parts.extend(typing.get_args(annotation))
    if isinstance(annotation, typing.NewType):
        parts.append(annotation.__supertype__)
    elif isinstance(annotation, typing.TypeVar):
        parts.extend([annotation.__bound__, *annotation.__constraints__])
    elif hasattr(annotation, "__value__") and type(annotation).__name__ == "TypeAliasType":
        parts.append(annotation.__value__)
    elif isinstance(annotation, (list, tuple)):
        parts.extend(annotation)  # the parameters of a Callable
    elif isinstance(annotation, type) and origin is None:
        parts.extend(_class_parts(annotation))
    return parts


def _class_parts(cls: type) -> list[object]:
    kind = kind_of(cls) if cls not in BUILTIN_NAMES else None
    if kind is None:
        return []
    model, args = generic_origin(cls)
    parts: list[object] = [model, *args]
    if kind == "pydantic":
        parts.extend(field.annotation for field in getattr(cls, "model_fields", {}).values())
    parts.extend(_hints(cls))
    return parts


@functools.lru_cache(1024)
def _all_hints(cls: type) -> list[object]:
    """Cached, because every built workflow needs many of them. Errors are not cached: a name that cannot be resolved
    now may be later."""
    return list(typing.get_type_hints(cls).values())


def _hints(cls: type) -> list[object]:
    """The fields' types, without those whose names cannot be resolved."""
    with contextlib.suppress(Exception):  # evaluating a stranger's annotation can raise anything
        return _all_hints(cls)
    return [
        _resolve(annotation, vars(sys.modules.get(owner.__module__, typing)))
        for owner in cls.__mro__
        for annotation in vars(owner).get("__annotations__", {}).values()
    ]


def _resolve(annotation: object, module: dict[str, Any]) -> object:
    if not isinstance(annotation, str):
        return annotation

    def field() -> None: ...

    field.__annotations__ = {"it": annotation}
    return (_evaluate(field, module) or {}).get("it")


def _evaluate(thing: Any, names: dict[str, Any]) -> dict[str, object] | None:
    try:
        return typing.get_type_hints(thing, names or None)
    except Exception:  # noqa: BLE001 - evaluating a stranger's annotation can raise anything; it is then not declared
        return None
