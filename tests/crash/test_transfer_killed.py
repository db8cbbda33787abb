"""Processes killed with SIGKILL while they copy, export or import: each thread is there wholly or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chance import SOAK
from tests.crash.moving import copy, export, killed_at, take_in
from tests.promises.moved_threads import CONTINUATIONS, make_all, written
from tests.promises.processes import STORAGES, Place

from perdure import InMemoryCheckpointStorage, NoThreadFile
from perdure.checkpoints.storage import StoreCheckpointStorage

ON_DISK = [kind for kind in STORAGES if kind != "memory"]
KILLS = 40 if SOAK else 3
"""Of each kind."""


@pytest.fixture(params=ON_DISK)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Processes that are started there end."""
    (tmp_path / "target").mkdir()
    place = Place(request.param, tmp_path / "target")
    yield place
    place.end()


def at_another_place(place: Place, name: str) -> Place:
    """Its processes end with those of the first."""
    folder = place.folder.parent / name
    folder.mkdir()
    return Place(place.kind, folder, place.others)


async def exported(storage: StoreCheckpointStorage, thread_id: str, folder: Path) -> bytes:
    await storage.export_thread(thread_id, folder / "compared", overwrite=True)
    return (folder / "compared").read_bytes()


@pytest.mark.parametrize("kind", ON_DISK)
async def test_a_copy_that_is_killed_again_and_again_is_completed_by_the_next(
    kind: str, target: Place, seed: int, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    async with STORAGES[kind](folder) as source:
        await make_all(source)
        listed = await source.list_threads()
        expected = {thread_id: await exported(source, thread_id, tmp_path) for thread_id in CONTINUATIONS}
    seconds = await at_another_place(target, "undisturbed").start(copy, kind, folder).result()
    chance = random.Random(seed)
    compared = 0
    for _ in range(KILLS):
        await killed_at(target, chance.uniform(0, seconds / 2), copy, kind, folder)
        async with target.storage() as storage:
            there = await storage.list_threads()
            assert there == listed[: len(there)], "they came in order"
            for thread in there[compared:]:
                assert await exported(storage, thread.thread_id, tmp_path) == expected[thread.thread_id]
            assert await storage.verify() == []
            compared = len(there)
    await target.start(copy, kind, folder).result()
    async with target.storage() as storage, STORAGES[kind](folder) as source:
        assert await storage.list_threads() == listed
        assert await storage.verify() == []
        for thread_id, go_on in CONTINUATIONS.items():
            assert await exported(source, thread_id, tmp_path) == expected[thread_id], "the source was changed"
            assert await exported(storage, thread_id, tmp_path) == expected[thread_id]
            assert await go_on(storage) == await go_on(source)


async def test_an_export_that_is_killed_leaves_nothing_that_looks_whole(target: Place, seed: int) -> None:
    out = target.folder.parent / "out"
    out.mkdir()
    async with target.storage() as storage:
        await written(storage, "t", 30)
        expected = await exported(storage, "t", target.folder.parent)
    seconds = await target.start(export, "t", target.folder.parent / "undisturbed").result()
    chance = random.Random(seed)
    for _ in range(KILLS):
        await killed_at(target, chance.uniform(0, seconds), export, "t", out / "t.jsonl")
        for path in out.iterdir():
            if path.name == "t.jsonl":
                assert path.read_bytes() == expected
                path.unlink()
            elif path.read_bytes() != expected:  # beside it, and killed before it was whole
                assert path.name.endswith(".part")
                with pytest.raises(NoThreadFile):
                    await InMemoryCheckpointStorage().import_thread(path)


async def test_an_import_that_is_killed_is_done_or_can_be_done_again(target: Place, seed: int, tmp_path: Path) -> None:
    source = InMemoryCheckpointStorage()
    await written(source, "t", 30)
    expected = await exported(source, "t", tmp_path)
    seconds = await at_another_place(target, "undisturbed").start(take_in, tmp_path / "compared").result()
    chance = random.Random(seed)
    for number in range(KILLS):
        place = at_another_place(target, f"trial-{number}")
        await killed_at(place, chance.uniform(0, seconds), take_in, tmp_path / "compared")
        async with place.storage() as storage:
            assert await storage.verify() == []
            if not await storage.list_threads():
                await storage.import_thread(tmp_path / "compared")
            assert await exported(storage, "t", place.folder) == expected
