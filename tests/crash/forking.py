"""A process that forks with a store in its hands: parent and child go on with the same object."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from tests.crash.lives import PLACES

from holdfast.store import Store

POSTS = 40


class Forking(TypedDict):
    place: str
    folder: str


def live(order: Forking, say_ready: Callable[[], object]) -> None:
    """Raises if an item that either of them posted is not there."""
    store = PLACES[order["place"]](Path(order["folder"])).store
    say_ready()
    asyncio.run(_post(store, "before"))
    child = os.fork()
    asyncio.run(_post(store, "child" if child == 0 else "parent"))
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    posted = {f"{who}-{number}" for who in ("before", "child", "parent") for number in range(POSTS)}
    inbox = asyncio.run(_inbox(store))
    assert sorted(inbox) == sorted(posted)


async def _post(store: Store, who: str) -> None:
    for number in range(POSTS):
        await store.post("t", f"{who}-{number}", "message", b'"hello"')


async def _inbox(store: Store) -> list[str]:
    return [item.item_id for item in (await store.open("t", "reader")).inbox]
