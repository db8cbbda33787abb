"""All clauses, family by family."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import ModuleType

from perdure.errors import did_you_mean
from perdure.testing.conformance import (
    choosing,
    commits,
    concurrency,
    crash,
    damage,
    events,
    fencing,
    listening,
    paging,
    pins,
    posts,
    raw_copies,
    retention,
    rewriting,
    single_writer,
    upkeep,
    waiting,
    whole_threads,
)
from perdure.testing.conformance.clause import Clause

FAMILIES: tuple[ModuleType, ...] = (
    upkeep,
    single_writer,
    fencing,
    commits,
    waiting,
    posts,
    paging,
    choosing,
    events,
    listening,
    retention,
    pins,
    whole_threads,
    raw_copies,
    rewriting,
    concurrency,
    crash,
    damage,
)


@cache
def all_clauses() -> tuple[Clause, ...]:
    """In the order in which they are tried: what others build on comes first."""
    return tuple(one for family in FAMILIES for one in vars(family).values() if isinstance(one, Clause))


def chosen_clauses(only: Iterable[str] | None) -> tuple[Clause, ...]:
    """Those with these names or of these families; all for None. Raises ValueError for a name that there is not."""
    clauses = all_clauses()
    if only is None:
        return clauses
    wanted = {only} if isinstance(only, str) else set(only)
    known = {name for one in clauses for name in (one.name, one.family)}
    for name in sorted(wanted - known):
        raise ValueError(f"There is no clause and no family {name!r}{did_you_mean(name, known)}.")
    return tuple(one for one in clauses if {one.name, one.family} & wanted)
