"""The contract of stores as a suite: any implementation of `perdure.store.Store` runs it, ours and yours.

    class TestMyStore(StoreConformance):          # as tests of pytest
        def make_store(self, folder: Path) -> Store:
            return MyStore(folder / "threads.db")

    report = await validate(make_my_store)        # or as a report: report.ok, report.failures

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.conformance.suite import (
        ClauseResult as ClauseResult,
        ConformanceReport as ConformanceReport,
        StoreConformance as StoreConformance,
        validate as validate,
    )

_HOME = {
    "ClauseResult": "perdure.testing.conformance.suite",
    "ConformanceReport": "perdure.testing.conformance.suite",
    "StoreConformance": "perdure.testing.conformance.suite",
    "validate": "perdure.testing.conformance.suite",
}

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            from perdure.errors import did_you_mean

            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{did_you_mean(name, _HOME)}")
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        globals()[name] = value  # found directly from now on
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
