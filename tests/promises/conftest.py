"""Each promise is tried on every storage that can keep it, and resumed by the same object and by a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.databases.postgres import PostgresServer
from tests.promises.processes import STORAGES, Place
from tests.promises.stages import Again, with_a_new_object, with_the_same_object
from tests.schemas import SCHEMAS
from tests.six_methods import SixMethods

from perdure.checkpoints.storage import StoreCheckpointStorage


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    """A storage over a store, empty: it has fences, a journal and an event log. New ones join the list."""
    made = STORAGES[request.param](tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=[*STORAGES, "six methods"])
async def any_storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Also one of which only the six methods are known."""
    if request.param == "six methods":
        yield SixMethods()
        return
    made = STORAGES[request.param](tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=[kind for kind in STORAGES if kind != "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where several processes keep their threads: every storage that outlives a process. Those started there end."""
    made = Place(request.param, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="package")
def quiet_server() -> Iterator[PostgresServer]:
    """A server without autovacuum: no snapshot of another process keeps dead rows."""
    with PostgresServer(settings={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def apart(request: pytest.FixtureRequest, place: Place) -> Iterator[Place]:
    """A place whose size is measured. In PostgreSQL it is a database of its own, on a server without other users."""
    if place.kind != "postgres":
        yield place
        return
    folder = place.folder / "apart"
    folder.mkdir()
    server: PostgresServer = request.getfixturevalue("quiet_server")
    with server.database() as dsn, SCHEMAS.apart(folder, dsn):
        yield Place("postgres", folder)


@pytest.fixture(params=[with_the_same_object, with_a_new_object], ids=["same object", "new object"])
def again(request: pytest.FixtureRequest) -> Again:
    """Continues after an interruption: with the interrupted object, or with a new one as another process would."""
    chosen: Again = request.param
    return chosen
