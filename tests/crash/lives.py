"""One life of some threads: what a process does until it has taken them to their ends, or is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from tests.crash import notes
from tests.crash.flows import FLOWS, Flow
from tests.schemas import where

from perdure import FileCheckpointStorage, SqliteCheckpointStorage
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit, JournalEntry
from perdure.storages import PostgresCheckpointStorage
from perdure.testing import Faults
from perdure.testing.crash import take_to_the_end

PLACES: dict[str, Callable[[Path], StoreCheckpointStorage]] = {
    "file": lambda folder: FileCheckpointStorage(folder / "threads"),
    "sqlite": lambda folder: SqliteCheckpointStorage(folder / "threads.db"),
    "file, fsync=False": lambda folder: FileCheckpointStorage(folder / "threads", fsync=False),
    "sqlite, NORMAL": lambda folder: SqliteCheckpointStorage(folder / "threads.db", synchronous="NORMAL"),
    "postgres": lambda folder: PostgresCheckpointStorage(where(folder).dsn, schema=where(folder).schema),
}
"""The stores that outlive a process, as users have them by default, and without waiting for the disk."""


def prepared(place: str, folder: Path) -> Path:
    """A folder for lives that are about to begin. A server is started, and tables are had, by who outlives them."""
    folder.mkdir(exist_ok=True)
    if place == "postgres":
        where(folder)
    return folder


class Order(TypedDict):
    """What a life is to be."""

    place: str
    folder: str
    notes: str
    """A file in the folder."""
    flows: list[str]
    ready_when_working: bool
    """Whether time is taken from the first piece of work on, rather than from the opening of the store."""


def live(order: Order, report_ready: Callable[[], object]) -> None:
    written = notes.begin_notes(Path(order["folder"]) / order["notes"])
    written.put("life")
    if order["ready_when_working"]:
        written.on_begin = lambda number: report_ready() if number == 1 else None
    else:
        report_ready()
    asyncio.run(_live(order, written))


async def _live(order: Order, written: notes.Notes) -> None:
    storage = PLACES[order["place"]](Path(order["folder"]))
    for thread in await storage.list_threads():
        written.put("found", thread.thread_id, thread.number)
    iterations = {info.thread_id: info.iteration_count for info in await storage.list_checkpoint_infos()}
    faults = Faults()
    faults.watch(Acknowledged(written, iterations).take)
    flows = [FLOWS[name] for name in order["flows"]]
    await asyncio.gather(*(_take_to_the_end(flow, faults.wrap(storage), written) for flow in flows))
    await storage.close()


async def _take_to_the_end(flow: Flow, storage: Any, written: notes.Notes) -> None:
    pruning = asyncio.create_task(_keep_pruning(storage, flow.name)) if flow.is_pruned else None
    ending = await take_to_the_end(flow.build(storage), storage, flow.message, flow.answers, thread_id=flow.name)
    if pruning is not None:
        pruning.cancel()
        await asyncio.wait([pruning])
    written.put("ended", flow.name, json.dumps({"rests": ending.rests, "parts": ending.parts}))


async def _keep_pruning(storage: StoreCheckpointStorage, thread_id: str) -> None:
    while True:
        for info in (await storage.list_checkpoint_infos(thread_id=thread_id))[:-2]:
            await storage.delete(info)
        await asyncio.sleep(notes.pace)


class Acknowledged:
    """Notes each write that the store has acknowledged: it must not be lost any more, nor anything of it repeated."""

    def __init__(self, written: notes.Notes, iterations: dict[str, int]) -> None:
        self._written = written
        self._iterations = iterations
        """Supersteps of each thread's head."""

    def take(self, point: str, written: Any) -> None:
        if isinstance(written, JournalEntry):
            self._written.put("recorded", *notes.works_in(written.body))
        elif isinstance(written, Commit):
            thread_id, what = written.lease.thread_id, "other"
            if written.info is not None:
                if written.info.iteration_count > self._iterations.get(thread_id, 0):
                    what = "superstep"  # all that it ran is settled with it
                self._iterations[thread_id] = written.info.iteration_count
            self._written.put("committed", thread_id, written.number, what)
