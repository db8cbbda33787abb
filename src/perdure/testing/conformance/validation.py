"""validate: all clauses tried on a store, one after the other, with a report."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from perdure.testing.conformance.catalogue import chosen_clauses
from perdure.testing.conformance.clause import Clause
from perdure.testing.conformance.expectations import NotApplicable, NotKept
from perdure.testing.conformance.place import Maker, StoreFactory, maker_of, place_for
from perdure.testing.conformance.report import ClauseResult, ConformanceReport

SECONDS = 20.0
"""What one clause may take; most take milliseconds."""


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
    what one clause may take. Lines of the report are handed to `tell` as they come; None is silent. Raises nothing for
    a clause that fails: see `ok` and `failures` of what it gives.
    """
    maker = maker_of(store_factory)
    seed = random.randrange(2**32) if seed is None else seed  # noqa: S311  # protects nothing
    began, family, results = time.monotonic(), "", []
    for one in chosen_clauses(only):
        result = await try_clause(one, maker, shared=shared, seed=seed, seconds=seconds)
        results.append(result)
        if tell is not None:
            if one.family != family:
                tell(one.family)
            tell(str(result))
        family = one.family
    name = str(getattr(maker.make, "__name__", maker.make))
    report = ConformanceReport(name, tuple(results), seed, time.monotonic() - began)
    if tell is not None:
        tell(report.summary)
    return report


async def try_clause(
    clause: Clause, maker: Maker, *, shared: bool, seed: int, seconds: float = SECONDS
) -> ClauseResult:
    chance = random.Random(f"{seed} {clause.name}")  # noqa: S311  # the same whatever is tried before it
    try:
        async with asyncio.timeout(seconds), place_for(maker, shared=shared, chance=chance) as place:
            why_not = clause.missing(place)
            if why_not is not None:
                return ClauseResult(clause, "not applicable", why_not)
            await clause.try_at(place)
    except NotApplicable as reason:
        return ClauseResult(clause, "not applicable", str(reason))
    except NotKept as error:
        return ClauseResult(clause, "FAILED", str(error), error)
    except TimeoutError as error:
        return ClauseResult(clause, "FAILED", f"it did not end within {seconds:g} s", error)
    except Exception as error:  # noqa: BLE001  # it is what the report is about
        return ClauseResult(clause, "FAILED", f"the store raised {type(error).__name__}: {error}", error)
    return ClauseResult(clause, "passed")
