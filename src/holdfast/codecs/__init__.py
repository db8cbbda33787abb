"""Codecs: the exact JSON codec, and pickle for those who ask for it."""

from __future__ import annotations

from holdfast.codecs.attributes import StoredFieldIgnored
from holdfast.codecs.exceptions import StoredError, encodable_exception
from holdfast.codecs.json_bytes import from_bytes, to_bytes
from holdfast.codecs.json_codec import JsonCodec
from holdfast.codecs.opaque import Opaque
from holdfast.codecs.pickle_codec import PickleSerializer
from holdfast.codecs.reachable import declared_types, reachable_types
from holdfast.codecs.types import TypeRegistry, register_type, remember, remembered

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
