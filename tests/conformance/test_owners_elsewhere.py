"""An owner on another machine, which no store can look at, holds its thread until its lease expires."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.conformance.stores import ON_DISK, STORES
from tests.schemas import SCHEMAS

from perdure.testing.conformance.location import find_maker, open_location

DATABASES = {"sqlite": "threads.db", "file": "threads/index.db"}
"""Where stores in files keep their owners."""


def move_owner_elsewhere(kind: str, folder: Path, leased_until: float) -> None:
    """Make the owner of thread `t` a process of another machine."""
    of_postgres = """
        UPDATE {s}.processes SET leased_until = to_timestamp($1),
          identity = (identity::jsonb || '{"boot_id": "another machine"}')::text
          WHERE process = (SELECT process FROM {s}.threads WHERE thread_id = 't')
    """
    of_sqlite = """
        UPDATE processes SET leased_until = ?, identity = json_set(identity, '$.boot_id', 'another machine')
          WHERE process = (SELECT process FROM threads WHERE thread_id = 't')
    """
    if kind == "postgres":
        SCHEMAS.fetch(folder, of_postgres, leased_until)
        return
    with closing(sqlite3.connect(folder / DATABASES[kind], isolation_level=None)) as db:
        db.execute(of_sqlite, (leased_until,))


@pytest.mark.parametrize("kind", ON_DISK)
async def test_an_owner_that_died_elsewhere_is_listed_until_its_lease_expires(kind: str) -> None:
    if kind == "postgres":
        SCHEMAS.begin_server()
    async with open_location(find_maker(STORES[kind]), shared=True, chance=Random(1)) as place:
        process = await place.start_process()
        await process.do("open", "t", "run-1")
        await process.do("save", "t", "t1")

        async def owners() -> list[str | None]:
            return [thread.run_id for thread in await place.store.threads(prefix="t", statuses={"IDLE"})]

        assert await owners() == ["run-1"]
        await process.kill()
        move_owner_elsewhere(kind, place.folder / "store", time.time() + 60)
        assert await owners() == ["run-1"], "nothing here shows that it is dead"
        move_owner_elsewhere(kind, place.folder / "store", time.time() - 1)
        assert await owners() == [None]
