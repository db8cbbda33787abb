"""pydantic models, built without validation and without importing pydantic."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any

from perdure.codec import Tree
from perdure.codecs.types import generic_origin
from perdure.codecs.values.annotations import decode_annotation, encode_arguments
from perdure.codecs.values.fields import FieldShape, decode_fields
from perdure.codecs.values.scalars import Coder
from perdure.codecs.walk import Decoders, Encoders, Refusal, decode_any, decode_dict, encode_dict, encode_fields, expect
from perdure.names import stable_name


@lru_cache(maxsize=256)
def pydantic_coder(cls: Any) -> Coder:
    origin, args = generic_origin(cls)
    tag = stable_name(origin)
    shape = FieldShape(cls, tuple(cls.model_fields), _defaults(cls))
    names = shape.names
    everything = frozenset(names)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        out: dict[str, Tree] = {"$type": tag}
        if args:
            out["$args"] = encode_arguments(args, cls, walk, depth)
        fields = value.__dict__
        encode_fields([(name, fields[name]) for name in names if name in fields], out, value, walk, depth)
        if unset := [name for name in names if name not in fields]:
            out["$unset"] = unset
        if value.__pydantic_fields_set__ != everything:
            out["$set"] = sorted(value.__pydantic_fields_set__)
        if value.__pydantic_extra__:
            out["$extra"] = encode_dict(value.__pydantic_extra__, walk, depth)
        if value.__pydantic_private__:
            out["$private"] = encode_fields(value.__pydantic_private__.items(), {}, value, walk, depth)
        return out

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        if "$args" in tree and not args:
            return _decode_generic(cls, tree, walk, depth)
        fields = decode_fields(tree, shape, walk, depth)
        value = cls.__new__(cls)
        _set(value, "__dict__", {name: fields[name] for name in names if name in fields})
        _set(value, "__pydantic_fields_set__", set(expect(tree.get("$set", list(names)), list)))
        _set(value, "__pydantic_extra__", _extra(cls, tree, walk, depth))
        _set(value, "__pydantic_private__", _private(cls, tree, walk, depth))
        return value

    return Coder(encode, decode)


_set = object.__setattr__


def _decode_generic(origin: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
    args = tuple(decode_annotation(arg, walk, depth + 1) for arg in expect(tree["$args"], list))
    cls = origin[args if len(args) != 1 else args[0]]
    if not isinstance(cls, type) or generic_origin(cls)[0] is not origin:
        raise Refusal(f"{origin.__qualname__} cannot be made for these types")
    return pydantic_coder(cls).decode(tree, walk, depth)


def _defaults(cls: Any) -> dict[str, Callable[[], Any]]:
    def maker(field: Any) -> Callable[[], Any]:
        return lambda: field.get_default(call_default_factory=True, validated_data={})

    return {name: maker(field) for name, field in cls.model_fields.items() if not field.is_required()}


def _extra(cls: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> dict[str, Any] | None:
    if "$extra" in tree:
        extra: dict[str, Any] = expect(decode_any(tree["$extra"], walk, depth), dict)
        return extra
    return {} if cls.model_config.get("extra") == "allow" else None


def _private(cls: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> dict[str, Any] | None:
    if not cls.__private_attributes__:
        return None
    private = decode_dict(expect(tree.get("$private", {}), dict), walk, depth)
    for name, attribute in cls.__private_attributes__.items():
        if name in private:
            continue
        if attribute.default_factory is not None:
            private[name] = attribute.default_factory()
        elif type(attribute.default).__name__ != "PydanticUndefinedType":
            private[name] = deepcopy(attribute.default)
    return private
