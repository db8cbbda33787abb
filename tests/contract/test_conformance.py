"""Every store of perdure keeps every clause that `perdure.testing.conformance` has for everybody's."""

from __future__ import annotations

from pathlib import Path

from tests.contract.places import STORES

from perdure.store import Store
from perdure.testing.conformance import StoreConformance, validate


async def test_the_memory_store_conforms() -> None:
    report = await validate(STORES["memory"], shared=False)
    assert report.ok, report.failures
    assert all("lives in one object" in one.reason for one in report.not_applicable)


class TestSqlite(StoreConformance):
    def make_store(self, folder: Path) -> Store:
        return STORES["sqlite"](folder)


class TestFile(StoreConformance):
    def make_store(self, folder: Path) -> Store:
        return STORES["file"](folder)


class TestPostgres(StoreConformance):
    """Clauses of files are not applicable. Rows are damaged in test_checking.py, and in tests/promises."""

    def make_store(self, folder: Path) -> Store:
        return STORES["postgres"](folder)


def test_there_is_no_other_store() -> None:
    assert set(STORES) == {"memory", "sqlite", "file", "postgres"}, "let the new one run the suite, too"
