"""Processes that find no tables, or those of an older version, and all make or change them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypedDict

from tests.fleet.harbour import all_at_once

from perdure.stores.postgres import schema as postgres_schema
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.support.acts import own


class Prepare(TypedDict):
    dsn: str
    schema: str
    processes: int
    upgrade: str | None
    """What the next version of the tables would need."""


def live(order: Prepare, say_ready: Callable[[], object]) -> None:
    """Raises if one of them cannot work."""
    say_ready()
    if order["upgrade"] is not None:
        postgres_schema.UPGRADES[postgres_schema.VERSION] = order["upgrade"]
        postgres_schema.VERSION += 1
    all_at_once(order["processes"], lambda number: asyncio.run(_begin(order, number)))


async def _begin(order: Prepare, number: int) -> None:
    store = PostgresStore(order["dsn"], schema=order["schema"])
    owner = await own(store, f"thread {number}")
    await owner.save(brings=["something"], events=1)
    await owner.release()
    await store.close()
