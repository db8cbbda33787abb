"""Where something stands in a document, and what stands there, as people are told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

Problem: TypeAlias = tuple[str, str]
"""A place, and what is wrong there."""
_PLAIN = re.compile(r"[\w$-]+")
_LONGEST = 80


def at(place: str, key: str | int) -> str:
    """`agents.review`, `edges[2]`, and `agents["a b"]` for a key with other characters."""
    if isinstance(key, int):
        return f"{place}[{key}]"
    if not _PLAIN.fullmatch(key):
        return f"{place}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{place}.{key}" if place else key


def below(place: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a document that stands at a place of another."""
    return [(f"{place}.{inner}" if inner else place, problem) for inner, problem in problems]


def shown(value: Any) -> str:
    """A value as a document has it, cut off where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
