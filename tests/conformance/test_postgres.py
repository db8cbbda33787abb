"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

from pathlib import Path

from tests.chance import SEED
from tests.conformance.stores import make_postgres

from perdure.store import Store
from perdure.testing.conformance import StoreConformance


class TestPostgres(StoreConformance):
    seed = SEED

    def make_store(self, folder: Path) -> Store:
        return make_postgres(folder)
