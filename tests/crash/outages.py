"""Runs on a disk that remembers, the folders that power cuts leave of them, and what must be true of these."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.chance import SOAK
from tests.crash import notes
from tests.crash.flows import Flow
from tests.crash.lives import Acknowledged
from tests.crash.notes import Story
from tests.crash.power import Operation, RememberingDisk, disk_after, is_synced

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.stores.disk import Disk
from perdure.stores.file.store import FileStore
from perdure.testing import Faults
from perdure.testing.crash import take_to_the_end

SHARES = (0.0, 1.0, 0.5)
"""How much survives of what was not synced, in the cuts that are tried after each operation."""
ROUNDS = 20 if SOAK else 1


class QuickDisk(Disk):
    """The real disk without the waits for a sync: the power is not cut a second time."""

    def sync(self, fd: int) -> None: ...
    def sync_folder(self, path: Path) -> None: ...


class Outages:
    """Record something with `storage`; then `try_all` cuts the power after every operation of it."""

    def __init__(self, folder: Path, seed: int, *, syncs: bool = True) -> None:
        self.disk = RememberingDisk(syncs=syncs)
        self.storage = self.new_storage(folder / "threads")
        self._folder = folder
        self._chance = random.Random(seed)

    def new_storage(self, folder: Path) -> Any:
        """As another process would have it. What is acknowledged is noted among the operations."""
        written = notes.begin_notes()
        written.write_line = self.disk.note
        faults = Faults()
        faults.watch(Acknowledged(written, {}).take)
        return faults.wrap(StoreCheckpointStorage(FileStore(folder, disk=self.disk)))

    async def try_all(
        self, look: Callable[[Path, Story], Awaitable[None]], *, first: int = 0, rounds: int = ROUNDS
    ) -> int:
        """Have each folder looked at, with what was known when the power went. How many there were.

        Rounds after the first differ only where something is not synced.
        """
        await self.storage.close()
        moments = self.disk.moments[first:]
        unsynced = [moment for moment in moments if not is_synced(self.disk.operations[: moment.done])]
        cuts = [(moment.done, 0.0) for moment in moments if moment not in unsynced]
        cuts += [(moment.done, share) for moment in unsynced * rounds for share in SHARES]
        for number, (done, share) in enumerate(cuts):
            folder = self._folder / f"cut-{number}"
            try:
                await look(folder, self._cut(folder, done, share))
            except Exception as error:
                error.add_note(f"power cut {number}: after operation {done}, share {share}")
                raise
            shutil.rmtree(folder)
        return len(cuts)

    def _cut(self, folder: Path, done: int, share: float) -> Story:
        operations = self.disk.operations[:done]
        folder.mkdir()
        for name, content in disk_after(operations, self._chance, share).items():
            (folder / name).write_bytes(content)
        self._put_index(folder, done)
        return story_of(operations)

    def _put_index(self, folder: Path, done: int) -> None:
        """Of this moment, of an earlier one, torn, or gone: it is never synced, so all of that can be."""
        kind = self._chance.choice(["kept", "older", "torn", "gone"])
        before = [moment for moment in self.disk.moments if moment.done <= done]
        moment = self._chance.choice(before) if kind == "older" else before[-1]
        index = folder / "index.db"
        if kind == "gone" or index.name not in moment.index:
            return
        for name, content in moment.index.items():
            (folder / name).write_bytes(content)
        _as_of_another_boot(index)
        if kind == "torn":
            content = index.read_bytes()
            index.write_bytes(content[: self._chance.randrange(len(content) + 1)])


def _as_of_another_boot(index: Path) -> None:
    """Mark the index as of another boot: a machine that lost its power has restarted when a store opens."""
    with closing(sqlite3.connect(index)) as db, db:
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is not None:
            db.execute("UPDATE meta SET value = 'an earlier one' WHERE key = 'boot_id'")


def story_of(operations: list[Operation]) -> Story:
    story = Story(lives=1)
    for operation in operations:
        if operation.what == "note":
            story.take(operation.note)
    return story


# ---------------------------------------------------------------- what must be true


async def taken_to_the_end(flow: Flow, storage: Any) -> Any:
    """How it ended, as plain JSON."""
    ending = await take_to_the_end(flow.build(storage), storage, flow.message, flow.answers, thread_id=flow.name)
    return json.loads(json.dumps([ending.rests[-1], ending.parts]))


async def check(folder: Path, flow: Flow, story: Story, calm: Any) -> None:
    """Nothing acknowledged is gone, nothing torn is seen, nothing recorded is done again, and the end is the same."""
    written = notes.begin_notes()
    async with StoreCheckpointStorage(FileStore(folder, disk=QuickDisk())) as storage:
        numbers = {thread.thread_id: thread.number for thread in await storage.list_threads()}
        assert numbers.get(flow.name, 0) >= story.acknowledged.get(flow.name, 0), "commits were lost"
        await storage.list_checkpoints()
        assert await taken_to_the_end(flow, storage) == calm
    begun = {line.removeprefix("begin ") for line in written.lines if line.startswith("begin ")}
    assert not begun & story.recorded, "recorded and done again"
