"""A PostgreSQL that no other test uses: what is counted and measured there is ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.databases.postgres import PostgresServer
from tests.databases.proxy import Proxy


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresServer]:
    """Without a vacuum, which comes when it likes."""
    with PostgresServer(settings={"autovacuum": "off"}) as started:
        yield started


@pytest.fixture
def dsn(server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    with server.database() as made:
        yield made


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as started:
        yield started
