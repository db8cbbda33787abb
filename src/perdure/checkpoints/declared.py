"""Which types a workflow's checkpoints may hold: the built-in set, what its handlers name, and what it was told."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.codec import Codec, DeclaredTypes
from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.reachable import declared_types
from perdure.codecs.types import remember


def declared_for(
    annotations: Iterable[object], executor_code: Iterable[type], allowed: Iterable[type | str]
) -> DeclaredTypes:
    """Also remembered for the whole process, so that a storage that is read without the workflow knows them."""
    declared = declared_types(annotations, executor_code, allowed)
    remember(declared)
    return declared


def codec_for(declared: DeclaredTypes) -> Codec:
    return JsonCodec(declared)
