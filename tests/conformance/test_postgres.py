"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chance import SEED
from tests.conformance.stores import make_postgres
from tests.schemas import SCHEMAS

from perdure.store import Store
from perdure.testing.conformance import StoreConformance


@pytest.fixture(autouse=True, scope="module")
def server() -> None:
    """A clause may start another process before it makes a store in this one."""
    SCHEMAS.begin_server()


class TestPostgres(StoreConformance):
    seed = SEED

    def make_store(self, folder: Path) -> Store:
        return make_postgres(folder)
