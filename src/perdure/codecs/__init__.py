"""Codecs: the exact JSON codec, and pickle for those who ask for it."""

from __future__ import annotations

from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.pickle_codec import PickleSerializer
from perdure.codecs.reachable import declared_types, reachable_types
from perdure.codecs.types import TypeRegistry, register_type, remember, remembered
from perdure.codecs.values.containers import Opaque
from perdure.codecs.values.fields import StoredFieldIgnored
from perdure.codecs.values.subclasses import StoredError, encodable_exception
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
