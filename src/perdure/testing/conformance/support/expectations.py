"""What a clause expects, said so that a failure is a sentence: asserts would be gone under `-O`, and say nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.errors import PerdureError

T = TypeVar("T")
SHOWN = 160
"""Characters of a value that a reason shows."""


class NotKept(AssertionError):
    """The store does not keep a clause of its contract; the sentence says what it did instead."""


class NotApplicable(Exception):
    """The clause has no meaning for this store; the sentence says why."""


def holds(condition: object, sentence: str) -> None:
    """`sentence` says what is wrong where it does not."""
    if not condition:
        raise NotKept(sentence)


def same(what: str, got: Any, expected: Any) -> None:
    """Equal, however lists, tuples and mappings are made."""
    for path, one, other in _differences(expected, got, ""):
        raise NotKept(f"{what}{path}: expected {_short(one)}, got {_short(other)}")


def the_one(what: str, found: Sequence[T]) -> T:
    if len(found) != 1:
        raise NotKept(f"{what}: expected one, got {_short(list(found))}")
    return found[0]


async def refused(kind: type[Exception], act: Awaitable[object], what: str) -> None:
    """The act raises this and nothing else."""
    try:
        await act
    except kind:
        return
    except PerdureError as error:
        raise NotKept(f"{what} must raise {kind.__name__}, and raised {type(error).__name__}: {error}") from error
    raise NotKept(f"{what} must raise {kind.__name__}, and was accepted")


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


def _differences(expected: Any, got: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, msgspec.Struct) and type(expected) is type(got):
        for name in expected.__struct_fields__:
            yield from _differences(getattr(expected, name), getattr(got, name), f"{path}.{name}")
    elif isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key in dict.fromkeys((*expected, *got)):
            yield from _differences(expected.get(key, _Nothing()), got.get(key, _Nothing()), f"{path}[{key!r:.40}]")
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        if len(expected) != len(got):
            yield path, expected, got
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif isinstance(expected, _Nothing) or type(expected) is not type(got) or expected != got:
        yield path, expected, got


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
