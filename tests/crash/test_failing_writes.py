"""The n-th write of a run fails, for every n: the run says so, and its thread is resumed to the undisturbed end."""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.chance import SOAK
from tests.crash import notes
from tests.crash.flows import FLOWS, Flow
from tests.crash.lives import PLACES, Acknowledged
from tests.crash.notes import Story
from tests.schemas import SCHEMAS

from perdure import InMemoryCheckpointStorage, Workflow
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import StorageFailed
from perdure.stores.disk import Disk
from perdure.stores.file.store import FileStore
from perdure.testing import Faults
from perdure.testing.crash import take_to_the_end
from perdure.testing.faults import Point, When

STORES: dict[str, Callable[[Path], StoreCheckpointStorage]] = {
    "memory": lambda folder: InMemoryCheckpointStorage(),
    "file": PLACES["file, fsync=False"],
    "sqlite": PLACES["sqlite, NORMAL"],
    "postgres": PLACES["postgres"],
}


@pytest.fixture(autouse=True)
def _work_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(notes, "pace", 0)
    yield
    notes.begin_notes()


class Life:
    """A thread over a storage, with what was acknowledged and done in it."""

    def __init__(self, flow: Flow, storage: Any) -> None:
        self.flow = flow
        self.faults = Faults()
        self.written = notes.begin_notes()
        self.faults.watch(Acknowledged(self.written, {}).take)
        self.storage = self.faults.wrap(storage)
        self.workflow: Workflow = flow.build(self.storage)

    async def to_the_end(self) -> Any:
        flow = self.flow
        self.written.put("life")
        ending = await take_to_the_end(self.workflow, self.storage, flow.message, flow.answers, thread_id=flow.name)
        return json.loads(json.dumps([ending.rests[-1], ending.parts]))

    async def again(self, *, with_a_new_object: bool) -> Any:
        if with_a_new_object:
            self.workflow = self.flow.build(self.storage)
        return await self.to_the_end()

    def repeated(self) -> list[str]:
        story = Story()
        for line in self.written.lines:
            story.take(line)
        return story.recorded_repeated


async def refusal_of(work: Awaitable[Any]) -> str:
    """What the storage said, if it failed."""
    try:
        await work
    except StorageFailed as error:
        return str(error)
    return ""


@pytest.mark.parametrize("place", STORES)
@pytest.mark.parametrize("name", ["fan-3", "asking", "sleeping"] if SOAK else ["fan-3", "asking"])
async def test_thread_resumes_from_acknowledged_state_whichever_write_fails(
    name: str, place: str, tmp_path: Path
) -> None:
    undisturbed = Life(FLOWS[name], STORES[place](tmp_path))
    calm = await undisturbed.to_the_end()
    points: tuple[Point, ...] = get_args(Point)
    moments: tuple[When, ...] = get_args(When)
    writes = [(point, nth + 1) for point in points for nth in range(undisturbed.faults.counts[point])]
    all_of_them = [(*write, when) for write in writes for when in moments]
    for number, (point, nth, when) in enumerate(all_of_them[:: 3 if place == "postgres" and not SOAK else 1]):
        folder = tmp_path / f"{point}-{nth}-{when}"
        folder.mkdir()
        async with AsyncExitStack() as stack:
            stack.enter_context(SCHEMAS.lent())
            storage = await stack.enter_async_context(STORES[place](folder))
            life = Life(FLOWS[name], storage)
            life.faults.fail(point, nth=nth, when=when, error=OSError(errno.EIO, "the disk gave up"))
            refusal = await refusal_of(life.to_the_end())
            if life.faults.counts[point] < nth:
                continue  # who ends last, and needs no record, is left to chance
            assert "the disk gave up" in refusal or point == "release"
            assert await life.again(with_a_new_object=number % 2 == 0) == calm, folder.name
            assert not life.repeated(), folder.name


class FailingDisk(Disk):
    """One operation fails, the n-th of all; or that and all after it."""

    def __init__(self, fails_at: int = 0, *, for_good: bool = False) -> None:
        super().__init__()
        self.fails_at = fails_at
        self.for_good = for_good
        self.done: list[str] = []

    def repair(self) -> None:
        self.fails_at = 0

    def at(self, what: str) -> None:
        self.done.append(what)
        place = len(self.done)
        if self.fails_at and (place == self.fails_at or (self.for_good and place > self.fails_at)):
            raise OSError(errno.ENOSPC, "no space left, says the test")

    def append(self, fd: int, data: bytes) -> None:
        try:
            self.at("append")
        except OSError:
            super().append(fd, data[: len(data) // 2])
            raise
        super().append(fd, data)

    def sync(self, fd: int) -> None:
        self.at("sync")

    def sync_folder(self, path: Path) -> None:
        self.at("sync_folder")


def _also(name: str) -> None:
    real = getattr(Disk, name)

    def fails(self: FailingDisk, *arguments: Any) -> Any:
        self.at(name)
        return real(self, *arguments)

    setattr(FailingDisk, name, fails)


for _name in ("open", "cut", "replace", "remove", "read", "read_line", "is_same", "lock", "unlock", "make_folder"):
    _also(_name)


async def prune_and_go_on(life: Life) -> Any:
    """Run with a pause in the middle, at which a checkpoint is removed: then the file is written again."""
    flow = life.flow
    await life.workflow.run(flow.message, thread_id=flow.name)
    await life.storage.delete((await life.storage.list_checkpoint_ids())[0])
    return await life.to_the_end()


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
async def test_thread_resumes_after_repair_whichever_disk_operation_fails(for_good: bool, tmp_path: Path) -> None:
    flow = FLOWS["asking"]
    healthy = FailingDisk()
    calm = await prune_and_go_on(Life(flow, StoreCheckpointStorage(FileStore(tmp_path / "calm", disk=healthy))))
    assert {"append", "sync", "sync_folder", "replace", "lock", "read_line"} <= set(healthy.done)
    for place, what in enumerate(healthy.done, 1):
        if not SOAK and place % 2 == for_good:  # each operation fails in one of the two ways
            continue
        disk = FailingDisk(place, for_good=for_good)
        async with StoreCheckpointStorage(FileStore(tmp_path / str(place), disk=disk)) as storage:
            life = Life(flow, storage)
            refusal = await refusal_of(prune_and_go_on(life))
            assert refusal == "" or "no space left, says the test" in refusal
            disk.repair()
            description = f"operation {place}, {what}"
            assert await life.again(with_a_new_object=place % 4 < 2) == calm, description
            assert not life.repeated(), description
