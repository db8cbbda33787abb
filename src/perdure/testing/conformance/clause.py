"""A clause of the contract of stores: a small function that raises NotKept where a store does not keep it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from perdure.store import Store
from perdure.testing.conformance.support.location import TrialLocation


class Needs(Enum):
    """What a clause cannot do without."""

    A_STORE = "a store"
    TWO_OBJECTS = "two objects that are the same store"
    PROCESSES = "processes that use the same store"
    FILES = "a store that keeps files"


@dataclass(frozen=True)
class Clause:
    """One sentence that a store must keep."""

    name: str
    family: str
    """The module that it stands in."""
    cites: str
    """What the contract says: a sentence of `perdure.store` or `perdure.records`."""
    needs: Needs
    try_at: Callable[[TrialLocation], Awaitable[None]]

    @property
    def sentence(self) -> str:
        return self.name.replace("_", " ")

    def missing(self, place: TrialLocation) -> str | None:
        """Why it is not applicable there; None if it is."""
        if self.needs is Needs.A_STORE:
            return None
        if not place.is_shared:
            return f"it needs {self.needs.value}, and this one lives in one object"
        if self.needs is Needs.PROCESSES and place.address is None:
            return f"it needs {self.needs.value}, and {place.why_alone}"
        return None


def clause(check: Callable[[Store], Awaitable[None]]) -> Clause:
    """A clause that needs nothing but an empty store."""
    return _made(check, Needs.A_STORE, lambda place: check(place.store))


def clause_with(needs: Needs) -> Callable[[Callable[[TrialLocation], Awaitable[None]]], Clause]:
    """A clause that gets the place, where it can make more of what it needs."""
    return lambda check: _made(check, needs, check)


def _made(check: Callable[..., object], needs: Needs, try_at: Callable[[TrialLocation], Awaitable[None]]) -> Clause:
    family = check.__module__.rpartition(".")[2].replace("_", " ")
    return Clause(check.__name__, family, inspect.getdoc(check) or "", needs, try_at)
