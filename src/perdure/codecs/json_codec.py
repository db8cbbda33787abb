"""The JSON codec: exact values in, trees of plain JSON out, and back, with declared types only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from perdure.codec import DeclaredTypes, Tree
from perdure.codecs.annotations import annotation_decoders, annotation_encoder, is_annotation_type
from perdure.codecs.builtin_types import BUILTIN_TYPES, Coder, Opaque, opaque, opaque_tree, same
from perdure.codecs.fields import dataclass_coder, namedtuple_coder, pydantic_coder, struct_coder
from perdure.codecs.subclasses import enum_coder, exception_coder, subclass_coder
from perdure.codecs.types import (
    COLLECTIONS,
    OTHER_TAGS,
    Kind,
    Registered,
    TypeRegistry,
    find_registration,
    generic_origin,
    kind_of,
    no_data_type,
    registered_name,
)
from perdure.codecs.walk import (
    MAX_DEPTH,
    DecodeFn,
    Decoders,
    EncodeFn,
    Encoders,
    NotDeclared,
    Refusal,
    TooDeep,
    decode_any,
)
from perdure.errors import UnreadableValue, UnsavableValue

BUILTIN_CODERS: dict[type, tuple[str, Coder]] = {
    **BUILTIN_TYPES,
    **{cls: (name, subclass_coder(cls)) for name, cls in COLLECTIONS.items()},
}
BUILTIN_ENCODERS = {type(None): same, bool: same, **{cls: coder.encode for cls, (_, coder) in BUILTIN_CODERS.items()}}
BUILTIN_DECODERS = {name: coder.decode for name, coder in BUILTIN_CODERS.values()}


class JsonCodec:
    """Builds the built-in types and the declared ones.

    `lenient` is for tools and storages without a workflow: any data type is saved, and types that no workflow of
    this process declared are decoded as `Opaque`.
    """

    def __init__(self, declared: DeclaredTypes | None = None, lenient: bool = False) -> None:
        self._declared = declared
        self._lenient = lenient
        self._limited: dict[DeclaredTypes, JsonCodec] = {}
        self._encoders = Encoders({**BUILTIN_ENCODERS, Opaque: self._encode_opaque}, self.encoder_of)
        self._decoders = Decoders(BUILTIN_DECODERS, self._decoder_of, opaque if lenient else None)

    @cached_property
    def _registry(self) -> TypeRegistry:
        """Made for the first type that is not built in."""
        return TypeRegistry(self._declared, self._lenient)

    def encode(self, value: object, path: str) -> Tree:
        walk = self._encoders
        try:
            return walk[type(value)](value, walk, 0)
        except TooDeep as refusal:
            raise _depth_error(refusal, path) from None
        except Refusal as refusal:
            raise UnsavableValue(refusal.path(path), refusal.reason, refusal.remedy) from refusal.__cause__
        except Exception as error:
            raise UnsavableValue(path, f"reading its parts failed: {type(error).__name__}: {error}") from error

    def decode(self, tree: Tree, path: str) -> Any:
        try:
            return decode_any(tree, self._decoders, 0)
        except Refusal as refusal:
            raise UnreadableValue(refusal.path(path), refusal.reason, refusal.remedy) from refusal.__cause__
        except Exception as error:
            raise UnreadableValue(path, f"{type(error).__name__}: {error}") from error

    def for_types(self, declared: DeclaredTypes) -> JsonCodec:
        """One codec for each set of types: it has learned how to encode them."""
        codec = self._limited.get(declared)
        if codec is None:
            codec = self._limited[declared] = JsonCodec(declared)
        return codec

    def encoder_of(self, cls: type) -> EncodeFn:
        registration = find_registration(cls)
        if registration is not None:
            return registered_coder(registration).encode
        if is_annotation_type(cls):
            return annotation_encoder(self._registry)
        self._registry.name_of(generic_origin(cls)[0])
        return class_coder(cls).encode

    def _decoder_of(self, tag: str) -> DecodeFn:
        if tag in OTHER_TAGS:
            return annotation_decoders(self._registry)[tag]
        registration = registered_name(tag)
        cls = self._registry.resolve(tag) if registration is None else None
        if cls is not None:
            registration = find_registration(cls)  # its import may have registered it
        if registration is not None:
            return registered_coder(registration).decode
        if cls is None:
            raise NotDeclared(tag)
        return class_coder(cls).decode

    def _encode_opaque(self, value: Opaque, walk: Encoders, depth: int) -> Tree:
        tree = opaque_tree(value)
        if not self._lenient:
            try:
                decode_any(tree, self._decoders, depth)
            except Refusal as refusal:
                raise Refusal(f"it could not be loaded again: {refusal.reason}", refusal.remedy) from None
        return tree


CODERS_OF_KINDS: dict[Kind | None, Callable[[Any], Coder]] = {
    "enum": enum_coder,
    "exception": exception_coder,
    "subclass": subclass_coder,
    "namedtuple": namedtuple_coder,
    "struct": struct_coder,
    "pydantic": pydantic_coder,
    "dataclass": dataclass_coder,
}


def class_coder(cls: type) -> Coder:
    make = CODERS_OF_KINDS.get(kind_of(cls))
    if make is None:
        raise no_data_type(cls)
    return make(cls)


def registered_coder(registration: Registered) -> Coder:
    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise TooDeep
        try:
            plain = registration.encode(value)
        except Exception as error:
            raise Refusal(f"the encoder of {registration.name} failed: {type(error).__name__}: {error}") from error
        return {"$type": registration.name, "$value": walk[type(plain)](plain, walk, depth + 1)}

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        value = registration.decode(decode_any(tree["$value"], walk, depth + 1))
        if not isinstance(value, registration.cls):
            raise Refusal(f"the decoder of {registration.name} returned {type(value).__qualname__}")
        return value

    return Coder(encode, decode)


def _depth_error(refusal: TooDeep, path: str) -> UnsavableValue:
    """The error for a value that is too deep. For a cycle it names the path where a container contains itself."""
    first: dict[int, str] = {}
    for step, container in reversed(refusal.steps):
        if id(container) in first:
            return UnsavableValue(path, f"it contains itself: it is the same object as {first[id(container)]}")
        first[id(container)] = path
        path += step
    return UnsavableValue(path, refusal.reason, refusal.remedy)
