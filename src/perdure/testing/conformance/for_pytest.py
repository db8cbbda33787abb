"""The clauses as tests: one method for each, in a class that users derive from."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

from perdure.store import Store
from perdure.testing.conformance.catalogue import all_clauses
from perdure.testing.conformance.clause import Clause
from perdure.testing.conformance.place import Maker
from perdure.testing.conformance.validation import SECONDS, try_clause
from perdure.testing.importable import importable


class StoreConformance:
    """Every clause of the contract of stores as a test. Derive a class from it that says how the store is made:

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
    """What random clauses draw from; None: another in each run, told where a clause fails."""
    seconds: ClassVar[float] = SECONDS
    """What one clause may take."""

    def make_store(self, folder: Path) -> Store:
        raise NotImplementedError(f"{type(self).__name__} must say how its store is made: def make_store(self, folder)")

    def _try(self, clause: Clause) -> None:
        seed = random.randrange(2**32) if self.seed is None else self.seed  # noqa: S311  # protects nothing
        trying = try_clause(clause, self._maker(), shared=self.shared, seed=seed, seconds=self.seconds)
        result = asyncio.run(trying)
        if result.outcome == "not applicable":
            raise SkipTest(f"not applicable, because {result.reason}")  # pytest knows it, and is not needed for it
        if result.outcome == "FAILED":
            told = f"{clause.sentence}: {result.reason}\nThe contract says: {clause.cites}\n(seed = {seed})"
            raise AssertionError(told) from result.error

    def _maker(self) -> Maker:
        try:
            return Maker(self.make_store, importable("the class", type(self)))
        except TypeError:
            return Maker(self.make_store, None, f"another process cannot import {type(self).__qualname__}")


def _as_test(clause: Clause) -> Callable[[Any], None]:
    def test(self: StoreConformance) -> None:
        self._try(clause)

    test.__name__ = f"test_{clause.name}"
    test.__qualname__ = f"StoreConformance.{test.__name__}"
    test.__doc__ = clause.cites
    return test


for _clause in all_clauses():
    setattr(StoreConformance, f"test_{_clause.name}", _as_test(_clause))
