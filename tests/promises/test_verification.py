"""verify finds what was damaged in a SQLite file, whatever it is, and names its thread; what is whole is not harmed."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.chance import SOAK, draw_seed
from tests.promises.harm import IN_ROWS, Harm, column, damages, make_whole, named, of_commit, sql
from tests.promises.moved_threads import CONTINUATIONS, Counting, make_all, make_forked, make_half, make_sleeping
from tests.promises.processes import Place

from perdure import InMemoryCheckpointStorage, NewerFormat, StorageFailed, ThreadNotFound
from perdure.checkpoints.history.retention import FullHistory, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing.conformance.threads import read_everything


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whole("sqlite", tmp_path_factory.mktemp("whole"))


# ---------------------------------------------------------------- what is whole


async def test_a_store_that_is_whole_has_no_damage(storage: StoreCheckpointStorage) -> None:
    progress_calls: list[tuple[int, int, str]] = []
    assert await storage.verify() == []
    await make_all(storage)
    assert await storage.verify(progress=lambda *call: progress_calls.append(call)) == []
    assert progress_calls == [
        (number, len(CONTINUATIONS), thread_id) for number, thread_id in enumerate(CONTINUATIONS, 1)
    ]
    for continue_thread in CONTINUATIONS.values():
        await continue_thread(storage)
    assert await storage.verify() == []


@pytest.mark.parametrize("retention", [FullHistory(), LatestOnly()], ids=["full history", "latest only"])
async def test_thread_that_runs_during_verification_is_not_damaged(
    storage: StoreCheckpointStorage, retention: Retention
) -> None:
    storage.retention = retention
    counting, read = Counting(), storage.store.commits

    async def moved_meanwhile(*arguments: Any, **options: Any) -> Any:
        await counting.advance(3)
        return await read(*arguments, **options)

    run = asyncio.ensure_future(counting.workflow(storage).run(1, thread_id="t"))
    await counting.advance(2)
    storage.store.commits = moved_meanwhile  # type: ignore[method-assign]  # a tap on the real method
    while not run.done():
        assert await storage.verify() == []
    await run


async def test_one_thread_can_be_verified(whole: Path, tmp_path: Path) -> None:
    harm = sql("UPDATE commits SET body = x'00' WHERE number = 2 AND thread = {branched}")
    problems = await damages("sqlite", whole, tmp_path, harm, "branched")
    assert named(problems) == {"branched"}
    async with Place("sqlite", tmp_path / "harmed").storage() as storage:
        assert await storage.verify(thread_id="asking") == []
        with pytest.raises(ThreadNotFound):
            await storage.verify(thread_id="nobody")


@pytest.mark.parametrize("method", ["check", "threads", "thread_header", "commits"])
async def test_failing_disk_raises_and_an_invalid_row_is_damage(method: str) -> None:
    storage = InMemoryCheckpointStorage()
    await make_half(storage)
    problem: Exception = OSError(5, "Input/output error")

    async def fails(*arguments: Any, **options: Any) -> Any:
        raise problem

    setattr(storage.store, method, fails)  # as a driver does that reads from a disk
    with pytest.raises(StorageFailed, match="Input/output error"):
        await storage.verify()
    problem = TypeError("int expected, got str")
    assert ["int expected, got str" in damage.reason for damage in await storage.verify()] == [True]


# ---------------------------------------------------------------- a SQLite file


SWAPPED = "(SELECT body FROM commits AS other WHERE other.thread = {} AND other.number = {})"
IN_FILE: dict[str, tuple[str | None, Harm]] = {
    "seal": ("branched", of_commit("seal", "x'00'")),
    "swapped payloads": (
        "branched",
        column("commits", "body", SWAPPED.format("{branched}", "3 - commits.number"), "branched", "number < 3"),
    ),
    "another's payload": ("fork", column("commits", "body", SWAPPED.format("{branched}", "1"), "fork")),
    "a payload is gone": ("branched", of_commit("body", "NULL")),
}


@pytest.mark.parametrize(("thread_id", "harm"), [*IN_ROWS.values(), *IN_FILE.values()], ids=[*IN_ROWS, *IN_FILE])
async def test_a_changed_row_of_a_sqlite_file_is_found(
    thread_id: str | None, harm: Harm, whole: Path, tmp_path: Path
) -> None:
    assert thread_id in named(await damages("sqlite", whole, tmp_path, harm))


async def test_a_flipped_byte_of_any_payload_is_found_and_its_checkpoint_named(whole: Path, tmp_path: Path) -> None:
    async with Place("sqlite", whole).storage() as storage:
        infos = await storage.list_checkpoint_infos()
    for number, info in enumerate(infos[::6]):
        harm = sql(
            f"UPDATE commits SET body = CAST(substr(body, 1, 30) || x'00' || substr(body, 32) AS BLOB)"
            f" WHERE checkpoint_id = x'{info.checkpoint_id}'"
        )
        (tmp_path / str(number)).mkdir()
        problems = await damages("sqlite", whole, tmp_path / str(number), harm)
        assert named(problems) == {info.thread_id}
        assert info.checkpoint_id in {damage.checkpoint_id for damage in problems}


async def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(tmp_path: Path) -> None:
    """Without pins and requests: that something is pinned, and when it was asked, is stored in one place only."""
    chance, whole = random.Random(draw_seed()), tmp_path / "whole"
    whole.mkdir()
    async with Place("sqlite", whole).storage() as storage:
        for make in (make_forked, make_sleeping, make_half):
            await make(storage)
        expected = await in_any_order(storage)
    for number in range(200 if SOAK else 8):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            problems = await damages("sqlite", whole, folder, partial(flip_somewhere, chance))
        except (NewerFormat, StorageFailed) as error:
            if str(folder) not in str(error):  # else it names what is wrong with the file as a whole
                raise
        else:
            async with Place("sqlite", folder / "harmed").storage() as storage:
                assert problems or await in_any_order(storage) == expected


async def in_any_order(storage: StoreCheckpointStorage) -> dict[str, Any]:
    """Which thread moved last is stored in one place only, too."""
    content = await read_everything(storage.store)
    return {**content, "threads": sorted(content["threads"], key=lambda thread: str(thread.thread_id))}


def flip_somewhere(chance: random.Random, folder: Path) -> None:
    data = bytearray((folder / "threads.db").read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    print(f"bit {bit} of byte {place}")
    data[place] ^= 1 << bit
    (folder / "threads.db").write_bytes(data)


async def test_a_page_of_zeros_in_a_sqlite_file_is_found(whole: Path, tmp_path: Path) -> None:
    def harm(folder: Path) -> None:
        path = folder / "threads.db"
        data = bytearray(path.read_bytes())
        middle = len(data) // 2 // 4096 * 4096
        data[middle : middle + 4096] = bytes(4096)
        path.write_bytes(data)

    assert await damages("sqlite", whole, tmp_path, harm)


async def test_verify_reports_every_damage(whole: Path, tmp_path: Path) -> None:
    def harm(folder: Path) -> None:
        for name in ("a first commit is gone", "threads.due_at", "journal.body", "a request is gone"):
            IN_ROWS[name][1](folder)

    assert {"branched", "sleeping", "half", "asking"} <= named(await damages("sqlite", whole, tmp_path, harm))


async def test_thread_that_ends_after_it_was_listed_is_not_damaged() -> None:
    storage = InMemoryCheckpointStorage()
    counting, list_threads = Counting(), storage.store.threads
    run = asyncio.ensure_future(counting.workflow(storage).run(1, thread_id="t"))
    await counting.advance(2)

    async def ended_after(*arguments: Any, **options: Any) -> Any:
        listed = await list_threads(*arguments, **options)
        if not run.done() and options.get("thread_id") is not None:
            await counting.advance(counting.TURNS)
            await asyncio.wait([run])
        return listed

    storage.store.threads = ended_after  # type: ignore[method-assign]  # a tap on the real method

    assert await storage.verify() == []
    await run
