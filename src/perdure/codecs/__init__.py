"""Codecs: the exact JSON codec, and pickle for those who ask for it."""

from __future__ import annotations

from perdure.codecs.builtin_types import Opaque
from perdure.codecs.fields import StoredFieldIgnored
from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.pickle_codec import PickleSerializer
from perdure.codecs.subclasses import StoredError, encodable_exception
from perdure.codecs.types import TypeRegistry, declared_types, reachable_types, register_type, remember, remembered
from perdure.codecs.walk import from_bytes, to_bytes

__all__ = [
    "JsonCodec",
    "Opaque",
    "PickleSerializer",
    "StoredError",
    "StoredFieldIgnored",
    "TypeRegistry",
    "declared_types",
    "encodable_exception",
    "from_bytes",
    "reachable_types",
    "register_type",
    "remember",
    "remembered",
    "to_bytes",
]
