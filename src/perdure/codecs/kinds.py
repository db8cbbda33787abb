"""Which classes are data types, and of what kind. Only these can be stored and built again."""

from __future__ import annotations

import builtins
import dataclasses
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from inspect import isbuiltin
from typing import Any, Literal, TypeAlias, is_typeddict

import msgspec

Kind: TypeAlias = Literal["enum", "exception", "namedtuple", "subclass", "dataclass", "struct", "pydantic", "typeddict"]

EXCEPTIONS: dict[str, type[BaseException]] = {
    name: cls
    for name, cls in vars(builtins).items()
    if isinstance(cls, type) and issubclass(cls, BaseException) and cls.__name__ == name
}
COLLECTIONS: dict[str, type] = {"ordereddict": OrderedDict, "counter": Counter}
BASES = frozenset(
    {str, int, float, complex, bytes, bytearray, list, tuple, set, frozenset, dict, OrderedDict, defaultdict, deque}
)
MAKERS = BASES.union(EXCEPTIONS.values())


def kind_of(cls: type) -> Kind | None:
    """None for a class that is no data type: an instance may hold more than its fields."""
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, BaseException):
        return "exception" if layout_base(cls) in MAKERS else None
    if is_typeddict(cls):
        return "typeddict"
    if issubclass(cls, msgspec.Struct):
        return "struct"
    if is_pydantic(cls):
        return "pydantic"
    base = layout_base(cls)
    if base is tuple and isinstance(getattr(cls, "_fields", None), tuple):
        return "namedtuple"
    if base in BASES and cls is not base:
        return "subclass"
    return "dataclass" if base is object and dataclasses.is_dataclass(cls) else None


def layout_base(cls: type) -> type:
    """The class written in C that makes instances of `cls`: its `__new__` builds them without running user code."""
    base = cls
    while base is not object and base not in MAKERS and not isbuiltin(vars(base).get("__new__")):
        base = base.__base__ or object
    return base


def is_pydantic(cls: type) -> bool:
    """Without importing pydantic: a model can only exist where its base class was imported."""
    main = sys.modules.get("pydantic.main")
    model = getattr(main, "BaseModel", None)
    return model is not None and issubclass(cls, model)


def generic_origin(cls: type) -> tuple[type, tuple[Any, ...]]:
    """`Model` and `(int,)` for the pydantic class `Model[int]`; any other class is its own origin."""
    generic: dict[str, Any] = getattr(cls, "__pydantic_generic_metadata__", None) or {}
    origin = generic.get("origin")
    return (origin, generic["args"]) if isinstance(origin, type) else (cls, ())
