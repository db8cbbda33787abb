"""Structured output: what an agent answered, as a value of a type."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from holdfast.agents.response import AgentResponse

T = TypeVar("T")

_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


def value_in(response: AgentResponse, kind: type[T]) -> T:
    """The value that a response holds: as such, or as JSON in the text of its last message, fenced or with words around
    it. Raises ValueError, which says what is wrong."""
    if isinstance(response.value, kind):
        return response.value
    if response.value is not None:
        try:
            return msgspec.convert(_builtin(response.value), kind, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"No {kind.__name__}: {error}. It is: {response.value!r}") from error
    text = next((one.text for one in reversed(response.messages) if one.text.strip()), "")
    problem = "it is empty"
    for found in _candidates(text):
        try:
            return msgspec.json.decode(found, type=kind, strict=False)
        except msgspec.DecodeError as error:
            problem = str(error)
    raise ValueError(f"No {kind.__name__}: {problem}. The answer was: {text[:500]!r}")


def _builtin(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else msgspec.to_builtins(value)


def _candidates(text: str) -> list[str]:
    found = [text, *_FENCED.findall(text)]
    start, end = text.find("{"), text.rfind("}")
    return [*found, text[start : end + 1]] if 0 <= start < end else found
