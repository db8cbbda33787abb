"""A process that is stopped in the middle of its work, loses its thread to another one, and continues regardless."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from tests.crash import notes
from tests.crash.flows import FLOWS, Flow
from tests.crash.lives import PLACES

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import ThreadConflict
from perdure.testing.crash import take_to_the_end

FENCED_OUT = 3


class Stopping(TypedDict):
    place: str
    folder: str
    flow: str
    begins: int
    """It is stopped when so many pieces of work have begun: while it waits for nothing but these."""


def live(order: Stopping, report_ready: Callable[[], object]) -> None:
    """Raises if the thread does not belong to the second process alone once that has taken it."""
    folder, flow = Path(order["folder"]), FLOWS[order["flow"]]
    report_ready()
    stopped = os.fork()
    if stopped == 0:
        os._exit(_stop_oneself(PLACES[order["place"]](folder), flow, order["begins"]))
    assert os.WIFSTOPPED(os.waitpid(stopped, os.WUNTRACED)[1])
    notes.begin_notes()
    storage = PLACES[order["place"]](folder)
    ending = asyncio.run(_to_the_end(flow, storage, takeover=True))
    before = asyncio.run(_standing(storage))
    os.kill(stopped, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(stopped, 0)[1]) == FENCED_OUT
    assert asyncio.run(_standing(storage)) == before
    assert not asyncio.run(storage.store.open(flow.name, "a reader")).journal
    (folder / "ending").write_text(json.dumps(ending), encoding="utf-8")


def _stop_oneself(storage: StoreCheckpointStorage, flow: Flow, begins: int) -> int:
    def stop(number: int) -> None:
        if number == begins:
            os.kill(os.getpid(), signal.SIGSTOP)

    notes.begin_notes().on_begin = stop
    try:
        asyncio.run(_to_the_end(flow, storage))
    except ThreadConflict:
        return FENCED_OUT
    return 0


async def _to_the_end(flow: Flow, storage: Any, *, takeover: bool = False) -> Any:
    ending = await take_to_the_end(
        flow.build(storage), storage, flow.message, flow.answers, thread_id=flow.name, takeover=takeover
    )
    return [ending.rests[-1], ending.parts]


async def _standing(storage: StoreCheckpointStorage) -> Any:
    infos = await storage.list_checkpoint_infos()
    return [(thread.number, thread.status) for thread in await storage.list_threads()], infos
