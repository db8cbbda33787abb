"""History: a copy of a store can be cut short and completed, leaves what is there, and reports what it could not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.promises.moved_threads import written
from tests.promises.processes import STORAGES
from tests.promises.stages import Stage, ledger
from tests.schemas import SCHEMAS, where
from tests.six_methods import SixMethods

from perdure import InMemoryCheckpointStorage, StorageFailed
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.copy_store import NotCopied, copy_store
from perdure.records import Commit, ThreadHeader
from perdure.storages import FileCheckpointStorage, PostgresCheckpointStorage, SqliteCheckpointStorage

IDS = ["first", "second", "third", "fourth"]


@pytest.fixture
async def source() -> StoreCheckpointStorage:
    made = InMemoryCheckpointStorage()
    for thread_id in IDS:
        await written(made, thread_id, 2)
    return made


async def ids(storage: StoreCheckpointStorage) -> list[str]:
    return [thread.thread_id for thread in await storage.list_threads()]


async def test_copy_leaves_existing_threads_unchanged(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    assert list((await copy_store(source, storage)).copied) == IDS
    before = await storage.list_checkpoint_infos()
    again = await copy_store(source, storage)
    assert (list(again.copied), list(again.already_there), again.is_complete) == ([], IDS, True)
    assert await storage.list_checkpoint_infos() == before


async def test_threads_that_moved_last_end_up_last(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    await ledger(Stage(), source).run("more", thread_id="second")
    await copy_store(source, storage)
    assert await ids(storage) == await ids(source) == ["first", "third", "fourth", "second"]


async def test_threads_that_differ_are_conflicts_and_stay_unchanged(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    await copy_store(source, storage, thread_ids=IDS[:3])
    await ledger(Stage(), source).run("here", thread_id="first")
    await ledger(Stage(), storage).run("there", thread_id="second")
    await storage.delete_thread("third")
    await written(storage, "third", 2)  # of the same length, and another
    report = await copy_store(source, storage)
    assert list(report.copied) == ["fourth"] and not report.is_complete
    reasons = {conflict.thread_id: conflict.reason for conflict in report.conflicts}
    assert "is at commit 6 with its head at 6, but in the target it is at commit 4" in reasons["first"]
    assert "is at commit 4 with its head at 4, but in the target it is at commit 6" in reasons["second"]
    assert "another thread of that id" in reasons["third"]
    assert (await storage.list_threads())[0].number == 4, "the first was left as it was"
    assert await storage.verify() == []


async def test_a_checkpoint_that_the_target_has_in_another_thread_is_a_conflict(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    head = await source.get_latest(thread_id="second")
    assert head is not None
    fields = {name: getattr(head, name) for name in head.__struct_fields__}
    await storage.save(type(head)(**{**fields, "thread_id": "mine", "previous_checkpoint_id": None}))
    report = await copy_store(source, storage)
    assert [conflict.thread_id for conflict in report.conflicts] == ["second"]
    assert "is in thread 'mine' here" in report.conflicts[0].reason
    assert await ids(storage) == ["mine", "first", "third", "fourth"]


async def test_copy_takes_only_the_selected_threads(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    await ledger(Stage(), source, name="other").run("x", thread_id="of another workflow")
    report = await copy_store(source, storage, thread_ids=["third", "nobody", "first"])
    assert list(report.copied) == ["first", "third"]
    assert report.failed == [NotCopied("nobody", "the source has no thread 'nobody'")]
    assert list((await copy_store(source, storage, workflow_name="other")).copied) == ["of another workflow"]
    both = await copy_store(source, storage, workflow_name="other", thread_ids=["fourth"])
    assert both.failed == [NotCopied("fourth", "the source has no thread 'fourth' of workflow 'other'")]
    with pytest.raises(TypeError, match="thread_ids expects several ids, got the string 'third'"):
        await copy_store(source, storage, thread_ids="third")


async def test_copy_reports_progress_and_completes_after_an_interruption(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    progress_calls: list[tuple[int, int, str]] = []

    def interrupted(done: int, total: int, thread_id: str) -> None:
        progress_calls.append((done, total, thread_id))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_store(source, storage, progress=interrupted)
    assert progress_calls == [(1, 4, "first"), (2, 4, "second")]
    report = await copy_store(source, storage)
    assert (list(report.already_there), list(report.copied)) == (IDS[:2], IDS[2:])
    assert await ids(storage) == IDS


async def test_copy_raises_errors_of_the_target(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    add, room = storage.store.add_thread, [1, 1]

    async def full(header: ThreadHeader, commits: Iterable[Commit]) -> None:
        if not room:
            raise OSError(28, "No space left on device")
        room.pop()
        await add(header, commits)

    storage.store.add_thread = full  # type: ignore[method-assign]  # a disk that is full
    with pytest.raises(StorageFailed, match="No space left"):
        await copy_store(source, storage)
    assert await ids(storage) == IDS[:2]
    storage.store.add_thread = add  # type: ignore[method-assign]  # a tap on the real method
    assert (await copy_store(source, storage)).is_complete


async def test_thread_deleted_during_a_copy_is_reported(
    source: StoreCheckpointStorage, storage: StoreCheckpointStorage
) -> None:
    listed = await source.list_threads()
    await source.delete_thread("second")
    list_threads = source.list_threads

    async def as_it_was(**_: Any) -> Any:
        return listed

    source.list_threads = as_it_was  # type: ignore[method-assign]  # deleted after it was listed
    report = await copy_store(source, storage)
    assert [failure.thread_id for failure in report.failed] == ["second"]
    assert list(report.copied) == ["first", "third", "fourth"]
    source.list_threads = list_threads  # type: ignore[method-assign]  # a tap on the real method


# ---------------------------------------------------------------- damage


@pytest.fixture(params=["sqlite", "file", "postgres"])
async def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    """With a flipped bit in the middle of `second`."""
    folder = tmp_path / "damaged"
    folder.mkdir()
    async with STORAGES[request.param](folder) as storage:
        for thread_id in IDS:
            await written(storage, thread_id, 2)
    if request.param == "sqlite":
        with closing(sqlite3.connect(folder / "threads.db")) as db, db:
            ((seq, body),) = db.execute(
                "SELECT seq, body FROM commits WHERE number = 2"
                " AND thread = (SELECT thread FROM threads WHERE thread_id = 'second')"
            )
            db.execute("UPDATE commits SET body = ? WHERE seq = ?", (flipped(body), seq))
        db.close()
    elif request.param == "postgres":
        changed = "UPDATE {s}.commits SET root = overlay(root PLACING 'A' FROM 21) WHERE number = 2 AND thread ="
        SCHEMAS.fetch(folder, changed + " (SELECT thread FROM {s}.threads WHERE thread_id = 'second')")
    else:
        path = folder / "threads" / "second.jsonl"
        path.write_bytes(flipped(path.read_bytes()))
    async with STORAGES[request.param](folder) as storage:
        yield storage


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


async def test_a_damaged_thread_is_reported_and_the_others_are_copied(damaged: StoreCheckpointStorage) -> None:
    target = InMemoryCheckpointStorage()
    report = await copy_store(damaged, target)
    assert list(report.copied) == ["first", "third", "fourth"]
    assert [failure.thread_id for failure in report.failed] == ["second"]
    assert "second" in report.failed[0].reason


async def test_a_thread_that_is_damaged_in_the_target_is_a_conflict(
    damaged: StoreCheckpointStorage, source: StoreCheckpointStorage
) -> None:
    before = await damaged.list_threads()
    report = await copy_store(source, damaged)
    assert {conflict.thread_id for conflict in report.conflicts} == set(IDS)
    reason = next(conflict.reason for conflict in report.conflicts if conflict.thread_id == "second")
    assert "damaged" in reason
    assert await damaged.list_threads() == before


# ---------------------------------------------------------------- invalid arguments


async def test_a_store_is_not_copied_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory = InMemoryCheckpointStorage()
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "link")
    dsn, schema = where(tmp_path)
    for source, target in (
        (memory, memory),
        (PostgresCheckpointStorage(dsn, schema=schema), PostgresCheckpointStorage(dsn, schema=schema)),
        (SqliteCheckpointStorage("threads.db"), SqliteCheckpointStorage(tmp_path / "threads.db")),
        (FileCheckpointStorage("real"), FileCheckpointStorage("link")),
    ):
        with pytest.raises(ValueError, match="source and target are the same store"):
            await copy_store(source, target)


async def test_storage_of_another_library_is_refused(source: StoreCheckpointStorage) -> None:
    foreign: Any = SixMethods()
    with pytest.raises(TypeError, match="target expects a storage of perdure"):
        await copy_store(source, foreign)
    with pytest.raises(TypeError, match="source expects a storage of perdure"):
        await copy_store(foreign, source)
