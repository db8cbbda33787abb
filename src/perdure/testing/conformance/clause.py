"""A clause of the store contract, and how it states what it expects."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.testing.conformance.location import TrialLocation

Check: TypeAlias = "Callable[..., Awaitable[None]]"
T = TypeVar("T")
E = TypeVar("E", bound=Exception)
SHOWN = 160
"""Characters of a value that a reason shows."""


class NotKept(AssertionError):
    """The store does not keep a clause of its contract; the message states what it did instead."""


class NotApplicable(Exception):
    """The clause has no meaning for this store; the message is the reason."""


async def run_together(*coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all. After the first error the others are cancelled and awaited: no task outlives its clause."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def expect(condition: object, sentence: str) -> None:
    """Raise NotKept with this sentence unless the condition is true."""
    if not condition:
        raise NotKept(sentence)


def expect_equal(what: str, got: Any, expected: Any) -> None:
    """Equal, however sequences and mappings are made."""
    for path, expected_part, got_part in differences(expected, got):
        raise NotKept(f"{what}{path}: expected {_short(expected_part)}, got {_short(got_part)}")


def expect_fields(what: str, record: object, **expected: Any) -> None:
    for name, value in expected.items():
        expect_equal(f"{what}.{name}", getattr(record, name, NOTHING), value)


def expect_one(what: str, items: Sequence[T]) -> T:
    if len(items) != 1:
        raise NotKept(f"{what}: expected one, got {_short(list(items))}")
    return items[0]


async def expect_raises(kind: type[E], act: Awaitable[object], what: str) -> E:
    """The act raises this, which is returned, and nothing else."""
    try:
        await act
    except kind as error:
        return error
    except PerdureError as error:
        raise NotKept(f"{what} must raise {kind.__name__}, and raised {type(error).__name__}: {error}") from error
    raise NotKept(f"{what} must raise {kind.__name__}, and was accepted")


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def differences(expected: Any, got: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two trees differ, with what is there in each; a part that is missing is NOTHING."""
    if isinstance(expected, msgspec.Struct) and type(expected) is type(got):
        for name in expected.__struct_fields__:
            yield from differences(getattr(expected, name), getattr(got, name), f"{path}.{name}")
    elif isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key in dict.fromkeys((*expected, *got)):
            name = f".{key}" if str(key).isidentifier() else f"[{key!r:.40}]"
            yield from differences(expected.get(key, NOTHING), got.get(key, NOTHING), f"{path}{name}")
    elif _is_list(expected) and _is_list(got):
        if len(expected) != len(got):
            yield path, expected, got
            return
        for index, (expected_item, got_item) in enumerate(zip(expected, got, strict=True)):
            yield from differences(expected_item, got_item, f"{path}[{index}]")
    elif type(expected) is not type(got) or expected != got:
        yield path, expected, got


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


PROCESSES = "processes that use the same store"
FILES = "a store that keeps files"
_NEEDS = {
    "second": "two objects that are the same store",
    "disk": FILES,
    "process": PROCESSES,
    "processes": PROCESSES,
}
"""What a clause needs beside a store, by the name of a parameter."""


@dataclass(frozen=True)
class Clause:
    """One sentence that a store must keep."""

    name: str
    family: str
    """The module that it stands in."""
    cites: str
    """The sentence of the contract, from `perdure.store` or `perdure.records`."""
    needs: str | None
    check: Check

    @property
    def sentence(self) -> str:
        return self.name.replace("_", " ")

    def check_place(self, place: TrialLocation) -> None:
        """Raises NotApplicable."""
        if self.needs is not None and not place.is_shared:
            raise NotApplicable(f"it needs {self.needs}, and this one lives in one object")
        if self.needs == PROCESSES and place.maker.address is None:
            raise NotApplicable(f"it needs {self.needs}, and {place.maker.why_alone}")


def clause(check: Check) -> Clause:
    """A clause gets, and needs, what its parameters name: see `TrialLocation.supply`."""
    family = check.__module__.rpartition(".")[2].replace("_", " ")
    needs = next((_NEEDS[name] for name in inspect.signature(check).parameters if name in _NEEDS), None)
    return Clause(check.__name__, family, inspect.getdoc(check) or "", needs, check)
