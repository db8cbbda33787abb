"""The contract of stores as a suite: any implementation of `perdure.store.Store` runs it, ours and yours.

    class TestMyStore(StoreConformance):          # as tests of pytest
        def make_store(self, folder: Path) -> Store:
            return MyStore(folder / "threads.db")

    report = await validate(make_my_store)        # or as a report: report.ok, report.failures

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.names import homes_of, lazy_exports

if TYPE_CHECKING:
    from perdure.testing.conformance.suite import (
        ClauseResult as ClauseResult,
        ConformanceReport as ConformanceReport,
        StoreConformance as StoreConformance,
        validate as validate,
    )

_HOME = homes_of({"perdure.testing.conformance.suite": "ClauseResult ConformanceReport StoreConformance validate"})

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
