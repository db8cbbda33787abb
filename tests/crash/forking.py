"""Processes that fork with a store in their hands, and processes that make one store at the same moment."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from tests.crash.lives import PLACES

from perdure.store import Store

POSTS = 20


ROUNDS, CROWD = {"postgres": 4}, 6
"""A store in files takes a few milliseconds to be made, one in PostgreSQL many."""


class Forking(TypedDict):
    place: str
    folder: str


def live(order: Forking, report_ready: Callable[[], object]) -> None:
    """Raises if an item that either of them posted is not there."""
    store = PLACES[order["place"]](Path(order["folder"])).store
    report_ready()
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


def make_at_once(order: Forking, report_ready: Callable[[], object]) -> None:
    """Again and again, several processes open a store that is not there yet. Raises if one of them fails."""
    report_ready()
    for number in range(ROUNDS.get(order["place"], 15)):
        folder = Path(order["folder"]) / str(number)
        folder.mkdir()
        waits, starts = os.pipe()
        children = [_opener(order["place"], folder, who, waits, starts) for who in range(CROWD)]
        os.close(waits)
        os.close(starts)  # now all of them go
        failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
        assert not failed, [path.read_text(encoding="utf-8") for path in folder.glob("failed-*")]


def _opener(place: str, folder: Path, who: int, waits: int, starts: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(starts)
        os.read(waits, 1)
        asyncio.run(_post(PLACES[place](folder).store, f"process-{who}"))
        code = 0
    except BaseException:  # noqa: BLE001  # the process that started this one reads the traceback
        (folder / f"failed-{who}").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)
