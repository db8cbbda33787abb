"""Processes that find no tables, and all create them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypedDict

from tests.fleet.harbour import all_at_once

from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own


class Prepare(TypedDict):
    dsn: str
    schema: str
    processes: int


def live(order: Prepare, report_ready: Callable[[], object]) -> None:
    """Raises if one of them cannot work."""
    report_ready()
    all_at_once(order["processes"], lambda number: asyncio.run(_begin(order, number)))


async def _begin(order: Prepare, number: int) -> None:
    store = PostgresStore(order["dsn"], schema=order["schema"])
    owner = await own(store, f"thread {number}")
    await owner.save(brings=["something"], events=1)
    await owner.release()
    await store.close()
