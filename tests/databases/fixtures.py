"""Servers as pytest fixtures: one PostgreSQL for all workers of a run, one Valkey a worker, both on first use."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.databases.postgres import Databases, PostgresServer, unique_name
from tests.databases.valkey import ValkeyServer

POSTGRES_URL, VALKEY_URL = "PERDURE_TEST_POSTGRES_URL", "PERDURE_TEST_VALKEY_URL"
"""Servers that are there already, used instead of starting some; tests that harm a server start their own."""


_outliving: list[PostgresServer] = []
"""Started here for all workers, so not ended here."""


class Place(NamedTuple):
    """Where a store may make its tables: a schema that is not there yet."""

    dsn: str
    schema: str


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Not to be killed or paused: others use it at the same time."""
    url = os.environ.get(POSTGRES_URL)
    if url:
        databases = Databases(url)
    elif hasattr(request.config, "workerinput"):  # a worker of xdist: its parent ends last, and the server with it
        databases = _shared(tmp_path_factory.getbasetemp().parent / "postgres", os.getppid())
    else:
        databases = PostgresServer().start()
    yield databases
    databases.close()


def _shared(meeting: Path, run: int) -> Databases:
    """Return the shared server: the first caller starts it, the others read its dsn from this file."""
    with meeting.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if dsn := file.read():
            return Databases(dsn)
        server = PostgresServer(belongs_to=run).start()
        _outliving.append(server)
        file.write(server.dsn)
        return Databases(server.dsn)


@pytest.fixture
def postgres_dsn(postgres_server: Databases) -> Iterator[str]:
    """An empty database; making and dropping it takes 16 ms, so tests that need only a schema take `postgres_place`."""
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
def postgres_place(postgres_server: Databases) -> Iterator[Place]:
    """A schema of one's own, `(dsn, schema)`, dropped at the end."""
    schema = unique_name()
    yield Place(postgres_server.dsn, schema)
    postgres_server.drop_schema(schema)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """One a worker: a message that is published in one database of a server reaches all of them."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def valkey_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database on a server whose channels no other test uses."""
    url = os.environ.get(VALKEY_URL)
    if url:
        yield _flushed(url)
        return
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    server.flush()
    yield server.url


def _flushed(url: str) -> str:
    """The worker's own database of a server that is there already."""
    import redis

    first = int(urlsplit(url).path[1:] or 0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    own = urlunsplit(urlsplit(url)._replace(path=f"/{first + worker}"))
    with redis.Redis.from_url(own) as client:
        client.flushdb()
    return own
