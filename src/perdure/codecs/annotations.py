"""Types as values: classes, `list[int]`, `str | None`, `Literal['a']`, such as a request's response type."""

from __future__ import annotations

import collections.abc
import operator
import types
import typing
from collections.abc import Sequence
from enum import Enum
from functools import reduce
from typing import Any

from perdure.codec import Tree
from perdure.codecs.builtin_types import Opaque
from perdure.codecs.types import OTHER_TAGS, TypeRegistry, generic_origin
from perdure.codecs.walk import (
    DecodeFn,
    Decoders,
    EncodeFn,
    Encoders,
    NotDeclared,
    Refusal,
    decode_any,
    encode_list,
    expect,
)
from perdure.names import stable_name

_ABSTRACT = ("Sequence", "MutableSequence", "Mapping", "MutableMapping", "Set", "MutableSet", "Iterable", "Collection")
ABSTRACT: dict[str, type] = {stable_name(cls): cls for cls in (getattr(collections.abc, name) for name in _ABSTRACT)}
ABSTRACT_NAMES = {cls: name for name, cls in {**ABSTRACT, "type": type}.items()}
TYPING = frozenset(
    {"Union", "List", "Dict", "Set", "FrozenSet", "Tuple", "Deque", "DefaultDict", "OrderedDict", "Counter"}
    | {"Type", "Sequence", "MutableSequence", "Mapping", "MutableMapping", "AbstractSet", "Iterable", "Collection"}
)
# Joining n types to a union takes time in n cubed, so a few thousand would block the process.
MAX_ARGS = 100
LITERALS = (str, int, bytes, Enum, type(None))


def is_annotation_type(cls: type) -> bool:
    """Whether values of this class are types themselves."""
    return (
        issubclass(cls, (type, types.GenericAlias, types.UnionType, types.EllipsisType)) or cls.__module__ == "typing"
    )


def annotation_encoder(registry: TypeRegistry) -> EncodeFn:
    def encode_annotation(value: Any, walk: Encoders, depth: int) -> Tree:
        if value is Any:
            return {"$type": "any"}
        if value is ...:
            return {"$type": "ellipsis"}
        if isinstance(value, type) and not typing.get_args(value):
            origin, args = generic_origin(value)
            name = ABSTRACT_NAMES.get(origin) or registry.name_of(origin)
            return {"$type": "type", "name": name} if not args else alias(origin, args, walk, depth)
        return encode_parts(value, typing.get_args(value), walk, depth)

    def alias(origin: Any, args: tuple[Any, ...], walk: Encoders, depth: int) -> Tree:
        items = encode_arguments(args, origin, walk, depth)
        return {"$type": "alias", "origin": encode_annotation(origin, walk, depth + 1), "args": items}

    def encode_parts(value: Any, args: tuple[Any, ...], walk: Encoders, depth: int) -> Tree:
        origin = typing.get_origin(value)
        if origin is typing.Literal:
            _check_literals(args)
            return {"$type": "literal", "values": encode_list(args, walk, depth, value)}
        if isinstance(value, types.UnionType):
            return {"$type": "union", "args": encode_arguments(args, value, walk, depth)}
        name = "Union" if origin is typing.Union else getattr(value, "_name", None)
        if name in TYPING and args:
            return {"$type": "alias", "typing": name, "args": encode_arguments(args, value, walk, depth)}
        if not isinstance(origin, type) or not args or hasattr(value, "__metadata__"):
            raise Refusal(f"the annotation {value!r} cannot be stored", "Use a class, list[...], a union or Literal.")
        return alias(origin, args, walk, depth)

    return encode_annotation


def encode_arguments(args: tuple[Any, ...], owner: object, walk: Encoders, depth: int) -> list[Tree]:
    _check_count(args)
    for arg in args:
        if arg is not None and not is_annotation_type(type(arg)):
            raise Refusal(f"the annotation {owner!r} has the argument {arg!r}, which is not a type")
    return encode_list(args, walk, depth, owner)


def annotation_decoders(registry: TypeRegistry) -> dict[str, DecodeFn]:
    def decode_type(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        name = expect(tree["name"], str)
        cls = ABSTRACT.get(name) or (type if name == "type" else registry.resolve(name))
        if cls is None:
            raise NotDeclared(name)
        return cls

    return {
        "type": decode_type,
        "any": lambda tree, walk, depth: Any,
        "ellipsis": lambda tree, walk, depth: ...,
        "alias": _decode_alias,
        "union": lambda tree, walk, depth: reduce(operator.or_, _arguments(tree, walk, depth)),
        "literal": _decode_literal,
    }


def _decode_alias(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
    args = _arguments(tree, walk, depth)
    if "typing" not in tree:
        origin = decode_annotation(tree["origin"], walk, depth + 1)
    elif tree["typing"] in TYPING:
        origin = getattr(typing, tree["typing"])
    else:
        raise Refusal(f"typing.{tree['typing']} cannot be built")
    return origin[args[0] if len(args) == 1 else args]


def _decode_literal(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
    values = tuple(decode_any(item, walk, depth + 1) for item in expect(tree["values"], list))
    for value in values:
        if isinstance(value, Opaque):
            raise NotDeclared(value.type)
    _check_literals(values)
    return typing.Literal[values]


def _check_literals(values: tuple[Any, ...]) -> None:
    if not values or not all(isinstance(value, LITERALS) for value in values):
        raise Refusal("a Literal holds only str, int, bytes, bool, None and enum members")


def _check_count(args: Sequence[object]) -> None:
    if len(args) > MAX_ARGS:
        raise Refusal(f"an annotation has {len(args)} arguments, more than {MAX_ARGS}")


def _arguments(tree: dict[str, Tree], walk: Decoders, depth: int) -> tuple[Any, ...]:
    args = expect(tree["args"], list)
    _check_count(args)
    return tuple(decode_annotation(arg, walk, depth + 1) for arg in args)


def decode_annotation(tree: Tree, walk: Decoders, depth: int) -> Any:
    """Accept only types: `union` would otherwise combine stored numbers or sets."""
    if tree is None:
        return None
    if type(tree) is not dict or tree.get("$type") not in OTHER_TAGS:
        raise Refusal("expected a type")
    annotation = decode_any(tree, walk, depth)
    if isinstance(annotation, Opaque):
        raise NotDeclared(annotation.type)
    return annotation
