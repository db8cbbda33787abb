"""validate: all clauses tried on a store, one after the other, with a report."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal
from unittest import SkipTest

from perdure.errors import did_you_mean
from perdure.store import Store
from perdure.testing.conformance.clause import Clause, NotApplicable, NotKept
from perdure.testing.conformance.clauses import (
    commits,
    concurrency,
    copies,
    damage,
    events,
    journal,
    listing,
    owning,
    retention,
    transfer,
    values,
)
from perdure.testing.conformance.location import Maker, StoreFactory, find_maker, maker_of, open_location

FAMILIES = (owning, commits, values, journal, listing, events, retention, copies, transfer, concurrency, damage)


@cache
def all_clauses() -> tuple[Clause, ...]:
    """In the order in which they are tried: what others build on comes first."""
    return tuple(value for family in FAMILIES for value in vars(family).values() if isinstance(value, Clause))


def select_clauses(only: Iterable[str] | None) -> tuple[Clause, ...]:
    """The clauses with these names or of these families; all for None. Raises ValueError for an unknown name."""
    clauses = all_clauses()
    if only is None:
        return clauses
    wanted = {only} if isinstance(only, str) else set(only)
    known = {name for clause in clauses for name in (clause.name, clause.family)}
    for name in sorted(wanted - known):
        raise ValueError(f"No clause or family is named {name!r}{did_you_mean(name, known)}.")
    return tuple(clause for clause in clauses if {clause.name, clause.family} & wanted)


@dataclass(frozen=True)
class ClauseResult:
    """The result of one clause."""

    clause: Clause
    outcome: Literal["passed", "FAILED", "not applicable"]
    reason: str = ""
    """Why it failed or is not applicable, in a sentence."""
    error: BaseException | None = None
    """The error of a failed clause."""

    @property
    def name(self) -> str:
        return self.clause.name

    def __str__(self) -> str:
        line = f"  {self.outcome:<14}  {self.clause.sentence}"
        if self.outcome == "FAILED":
            return f"{line}: {self.reason}"
        return f"{line}, because {self.reason}" if self.reason else line


@dataclass(frozen=True)
class ConformanceReport:
    """The results of `validate`, clause by clause. `print(report)` shows all of them."""

    store: str
    """The name of the store."""
    results: tuple[ClauseResult, ...]
    seed: int
    """The seed of random clauses: pass it to `validate` to repeat them."""
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no clause failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[ClauseResult, ...]:
        return tuple(result for result in self.results if result.outcome == "FAILED")

    @property
    def not_applicable(self) -> tuple[ClauseResult, ...]:
        return tuple(result for result in self.results if result.outcome == "not applicable")

    @property
    def summary(self) -> str:
        counts = Counter(result.outcome for result in self.results)
        counted = [f"{counts[name]} {name}" for name in ("passed", "FAILED", "not applicable") if counts[name]]
        return f"{self.store}: {', '.join(counted) or 'no clause was tried'}, in {self.seconds:.1f} s, seed {self.seed}"

    def __str__(self) -> str:
        families = groupby(self.results, lambda result: result.clause.family)
        lines = (f"{family}\n" + "\n".join(map(str, results)) for family, results in families)
        return "\n".join([*lines, self.summary])


SECONDS = 20.0
"""The most seconds of one clause; most take milliseconds."""


async def validate(
    store_factory: StoreFactory | str,
    *,
    shared: bool = True,
    only: str | Iterable[str] | None = None,
    seed: int | None = None,
    seconds: float = SECONDS,
    tell: Callable[[str], object] | None = print,
) -> ConformanceReport:
    """Try every clause of the contract of stores (`perdure.store.Store`) on a store, and report which it keeps.

    `store_factory(folder)` makes a store over a folder: an empty one over a new folder, and the same store over the
    same folder, in another object or another process. One that lives in a single object is tried with `shared=False`.
    For clauses that kill processes it must be importable: a function on top of a module, or `"module:name"`.

    `only` are names of clauses or families. Random clauses draw from `seed`, which is part of the report. `seconds` is
    what one clause may take. `tell` is called with each line of the report; None prints nothing. Raises nothing for
    a clause that fails: see `ok` and `failures` of the report.
    """
    maker = find_maker(store_factory)
    seed = random.randrange(2**32) if seed is None else seed  # noqa: S311  # protects nothing
    show = tell or (lambda line: None)
    began, results = time.monotonic(), []
    for family, clauses in groupby(select_clauses(only), lambda clause: clause.family):
        show(family)
        for clause in clauses:
            results.append(await try_clause(clause, maker, shared=shared, seed=seed, seconds=seconds))
            show(str(results[-1]))
    name = str(getattr(maker.make, "__name__", maker.make))
    report = ConformanceReport(name, tuple(results), seed, time.monotonic() - began)
    show(report.summary)
    return report


async def try_clause(
    clause: Clause, maker: Maker, *, shared: bool, seed: int, seconds: float = SECONDS
) -> ClauseResult:
    chance = random.Random(f"{seed} {clause.name}")  # noqa: S311  # the same whatever is tried before it
    try:
        async with asyncio.timeout(seconds), open_location(maker, shared=shared, chance=chance) as place:
            clause.check_place(place)
            await clause.check(*[await place.supply(name) for name in inspect.signature(clause.check).parameters])
    except NotApplicable as reason:
        return ClauseResult(clause, "not applicable", str(reason))
    except NotKept as error:
        return ClauseResult(clause, "FAILED", str(error), error)
    except TimeoutError as error:
        return ClauseResult(clause, "FAILED", f"it did not end within {seconds:g} s", error)
    except Exception as error:  # noqa: BLE001  # it is what the report is about
        return ClauseResult(clause, "FAILED", f"the store raised {type(error).__name__}: {error}", error)
    return ClauseResult(clause, "passed")


class StoreConformance:
    """Every clause of the contract of stores as a test. Derive a class with `make_store`:

        class TestMyStore(StoreConformance):
            def make_store(self, folder: Path) -> Store:
                return MyStore(folder / "threads.db")

    `make_store` gives an empty store over a new folder, and the same store over the same folder. Clauses that need
    another process import the class there, so it belongs on top of a module. Those that are not applicable are skipped,
    with the reason. Works with pytest, with or without a plugin for asyncio.
    """

    shared: ClassVar[bool] = True
    """Whether two objects over one folder are the same store. Not so for one that lives in memory."""
    seed: ClassVar[int | None] = None
    """The seed of random clauses. None: a new one in each run, shown by a failure."""
    seconds: ClassVar[float] = SECONDS
    """The most seconds of one clause."""

    def make_store(self, folder: Path) -> Store:
        raise NotImplementedError(f"{type(self).__name__} must implement make_store(self, folder)")

    def _try(self, clause: Clause) -> None:
        seed = random.randrange(2**32) if self.seed is None else self.seed  # noqa: S311  # protects nothing
        maker = maker_of(self.make_store, type(self))
        result = asyncio.run(try_clause(clause, maker, shared=self.shared, seed=seed, seconds=self.seconds))
        if result.outcome == "not applicable":
            raise SkipTest(f"not applicable, because {result.reason}")  # pytest knows it, and is not needed for it
        if result.outcome == "FAILED":
            message = f"{clause.sentence}: {result.reason}\nThe contract says: {clause.cites}\n(seed = {seed})"
            raise AssertionError(message) from result.error


def _as_test(clause: Clause) -> Callable[[Any], None]:
    def test(self: StoreConformance) -> None:
        self._try(clause)

    test.__name__ = f"test_{clause.name}"
    test.__qualname__ = f"StoreConformance.{test.__name__}"
    test.__doc__ = clause.cites
    return test


for _clause in all_clauses():
    setattr(StoreConformance, f"test_{_clause.name}", _as_test(_clause))
