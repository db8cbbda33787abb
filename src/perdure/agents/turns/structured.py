"""Structured output: what an agent answered, as a value of a type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any, TypeVar

import msgspec

from perdure.agents.conversation.response import AgentResponse

T = TypeVar("T")

_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


def value_in(response: AgentResponse, kind: type[T]) -> T:
    """The value that a response holds: as such, or as JSON in the text of its last message, fenced or with words around
    it. Raises ValueError, which says what is wrong."""
    name = getattr(kind, "__name__", str(kind))
    plain: Any = kind  # a checker takes it for a class, which list[int] is not
    if not isinstance(plain, GenericAlias) and isinstance(response.value, plain):
        return response.value  # type: ignore[no-any-return]
    if response.value is not None:
        try:
            return _validator(kind)(_builtin(response.value))
        except ValueError as error:  # a ValidationError, msgspec's and pydantic's alike
            raise ValueError(f"No {name}: {error}. It is: {response.value!r}") from error
    own = [one for one in response.messages if one.role not in ("user", "tool")]
    text = next((one.text for one in reversed(own) if one.text.strip()), "")
    problem = "it is empty" if not text else "it holds no JSON"
    for found in _candidates(text):
        try:
            decoded = msgspec.json.decode(found)
        except msgspec.DecodeError:
            continue
        try:
            return _validator(kind)(decoded)
        except ValueError as error:
            problem = str(error)
    raise ValueError(f"No {name}: {problem}. The answer was: {text[:500]!r}")


def _validator(kind: type[T]) -> Callable[[Any], T]:
    """pydantic's own for its models."""
    validate = getattr(kind, "model_validate", None)
    return validate if callable(validate) else lambda value: msgspec.convert(value, kind, strict=False)


def _builtin(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else msgspec.to_builtins(value)


def _candidates(text: str) -> Iterator[str]:
    """Where JSON may be: all of it, what is fenced, and what is in brackets."""
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]
