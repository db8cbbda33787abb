"""What the tests with Valkey share: real servers, and the place where threads are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.databases.fixtures import postgres_dsn, postgres_place, postgres_server, valkey_server, valkey_url
from tests.databases.valkey import ValkeyServer
from tests.valkey.others import Others
from tests.valkey.places import Place

__all__ = ["postgres_dsn", "postgres_place", "postgres_server", "valkey_server", "valkey_url"]


@pytest.fixture(params=["sqlite", "postgres"])
def truth(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store without Valkey: give it one with `truth.beside(url)`."""
    if request.param == "sqlite":
        return Place("sqlite", str(tmp_path / "threads.db"))
    dsn, schema = request.getfixturevalue("postgres_place")
    return Place("postgres", dsn, schema)


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """One to be killed, paused and flushed."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
async def others() -> AsyncIterator[Others]:
    """Other processes; all of them have ended when the test has."""
    started = Others()
    yield started
    await started.end()
