"""History: a file is a whole thread or refused, whatever happens while it is written and whatever is done to it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.promises.damage import flip
from tests.promises.moved_threads import LONG, Counting, make_half, written
from tests.promises.processes import STORAGES
from tests.promises.stages import Stage, entries, ledger

from perdure import (
    DamagedCheckpoint,
    InMemoryCheckpointStorage,
    InvalidRun,
    NoThreadFile,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
)
from perdure.checkpoints.history.retention import LatestOnly
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.dump import DumpWriter
from perdure.records import Commit


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    """A thread's file."""
    storage = InMemoryCheckpointStorage()
    await written(storage, "t", 2)
    await storage.export_thread("t", tmp_path / "t.jsonl")
    yield tmp_path / "t.jsonl"
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def is_refused(storage: StoreCheckpointStorage, path: Path, reason: str = ".") -> None:
    with pytest.raises(NoThreadFile, match=reason) as raised:
        await storage.import_thread(path)
    assert str(path) in str(raised.value)
    assert await storage.list_threads() == []
    assert await storage.list_checkpoint_ids() == []


# ---------------------------------------------------------------- out


async def test_export_reports_what_its_file_holds(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    await written(storage, "t", 2)
    report = await storage.export_thread("t", tmp_path / "t.jsonl")
    assert (report.thread_id, report.path) == ("t", str(tmp_path / "t.jsonl"))
    assert (report.number, report.commits, report.checkpoints) == (4, 4, 4)
    assert report.size_bytes == len(content(tmp_path / "t.jsonl"))


async def test_a_file_is_overwritten_only_on_request(storage: StoreCheckpointStorage, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("mine")
    await written(storage, "t", 1)
    with pytest.raises(FileExistsError, match=r"was not overwritten.*overwrite=True.*t\.jsonl"):
        await storage.export_thread("t", path)
    assert path.read_text() == "mine"
    await storage.export_thread("t", path, overwrite=True)
    assert (await InMemoryCheckpointStorage().import_thread(path)).number == 2


async def test_an_export_that_fails_leaves_no_file(storage: StoreCheckpointStorage, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ThreadNotFound):
        await storage.export_thread("nobody", folder / "t.jsonl")
    await written(storage, "t", 1)
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        await storage.export_thread("t", folder)
    with pytest.raises(FileNotFoundError):
        await storage.export_thread("t", folder / "no such folder" / "t.jsonl")
    assert names(folder) == []


async def test_a_damaged_thread_is_not_exported(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    await written(storage, "t", 2)
    read = storage.store.commits

    async def damaged(*arguments: Any, **options: Any) -> list[Commit]:
        commits = list(await read(*arguments, **options))
        return [
            Commit(commit.lease, commit.number, commit.info, commit.root, commit.events) for commit in commits
        ]  # without chunks

    storage.store.commits = damaged  # type: ignore[method-assign]  # as if the store had lost them
    with pytest.raises(DamagedCheckpoint, match=r"of thread 't' cannot be read: chunk \S+ is missing"):
        await storage.export_thread("t", tmp_path / "t.jsonl")
    assert names(tmp_path) == []


@pytest.mark.parametrize("retention", [None, LatestOnly()], ids=["full history", "latest only"])
async def test_a_thread_can_be_exported_while_it_is_run(
    storage: StoreCheckpointStorage, retention: Any, path: Path
) -> None:
    """Each file is one moment of the thread, and the thread can continue from it."""
    storage.retention = retention or storage.retention
    counting, read, numbers = Counting(), storage.store.commits, []

    async def moved_meanwhile(*arguments: Any, **options: Any) -> Any:
        storage.store.commits = read  # type: ignore[method-assign]  # once: then it may be read in peace
        await counting.advance(3)
        return await read(*arguments, **options)

    run = asyncio.ensure_future(counting.workflow(storage).run(1, thread_id="t"))
    await counting.advance(2)
    while not run.done():
        storage.store.commits = moved_meanwhile  # type: ignore[method-assign]  # a tap on the real method
        report = await storage.export_thread("t", path, overwrite=True)
        numbers.append(report.number)
        there = InMemoryCheckpointStorage()
        await there.import_thread(path)
        assert await there.verify() == []
        await Counting(Counting.TURNS).workflow(there).run(thread_id="t")
        assert len(await entries(there)) == Counting.TURNS
    await run
    assert len(set(numbers)) > 4, numbers


async def test_a_thread_that_is_pruned_without_a_pause_is_busy(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    await written(storage, "t", 15)
    read, tries = storage.store.commits, []

    async def pruned_meanwhile(*arguments: Any, **options: Any) -> Any:
        if not options.get("after"):
            infos = await storage.list_checkpoint_infos(thread_id="t")
            await storage.delete(infos[1])
            tries.append(infos[1])
        return await read(*arguments, **options)

    storage.store.commits = pruned_meanwhile  # type: ignore[method-assign]  # a tap on the real method
    with pytest.raises(ThreadBusy, match="Thread 't' is being run"):
        await storage.export_thread("t", tmp_path / "t.jsonl")
    assert len(tries) > 5
    assert names(tmp_path) == []


# ---------------------------------------------------------------- in


async def test_import_does_not_replace_an_existing_thread(storage: StoreCheckpointStorage, path: Path) -> None:
    first = await storage.import_thread(path)
    await ledger(Stage(), storage).run("more", thread_id="t")
    with pytest.raises(ThreadExists, match="Thread 't' was not added"):
        await storage.import_thread(path)
    assert await entries(storage) == [f"0: {LONG}", f"1: {LONG}", "more"]
    with pytest.raises(ThreadExists):
        await storage.import_thread(path, thread_id="t")
    await storage.delete_thread("t")
    assert await storage.import_thread(path) == first


async def test_import_does_not_replace_a_checkpoint_of_another_thread(
    storage: StoreCheckpointStorage, path: Path
) -> None:
    """One id is one checkpoint. Under another thread id the checkpoints are others, too."""
    await storage.import_thread(path)
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    await storage.delete_thread("t")
    await storage.save(_of_thread(head, "u"))
    with pytest.raises(ThreadExists, match=f"its checkpoint '{head.checkpoint_id}' is in thread 'u' here"):
        await storage.import_thread(path)
    assert [thread.thread_id for thread in await storage.list_threads()] == ["u"]
    await storage.import_thread(path, thread_id="v")
    assert (await storage.load(head.checkpoint_id)).thread_id == "u"


def _of_thread(checkpoint: Any, thread_id: str) -> Any:
    fields = {name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__}
    return type(checkpoint)(**{**fields, "thread_id": thread_id, "previous_checkpoint_id": None})


@pytest.mark.parametrize("thread_id", ["", 7, "\udc00"])
async def test_import_under_an_invalid_id_is_refused(path: Path, thread_id: Any) -> None:
    with pytest.raises(InvalidRun, match="thread_id must be"):
        await InMemoryCheckpointStorage().import_thread(path, thread_id=thread_id)


async def test_a_flipped_bit_or_a_lost_end_imports_nothing(storage: StoreCheckpointStorage, path: Path) -> None:
    whole = content(path)
    for place in range(0, len(whole), 197):
        flip(path, place)
        await is_refused(storage, path)
        put(path, whole[:place])
        await is_refused(storage, path)
        put(path, whole)
    assert (await storage.import_thread(path)).thread_id == "t"


async def test_invalid_thread_files_are_refused_with_the_reason(
    storage: StoreCheckpointStorage, path: Path, tmp_path: Path
) -> None:
    await is_refused(storage, tmp_path / "nothing.jsonl", "the file does not exist")
    await is_refused(storage, tmp_path, "it is a folder")
    whole = content(path)
    put(path, b"")
    await is_refused(storage, path, "it is empty")
    put(path, b"level=info\n")
    await is_refused(storage, path, "it is not a file that export_thread wrote")
    put(path, whole[:-1])
    await is_refused(storage, path, "line 6 is damaged: it was cut off")
    put(path, whole + whole)
    await is_refused(storage, path, "something follows line 6")


async def test_file_of_a_file_store_cannot_be_imported(path: Path, tmp_path: Path) -> None:
    async with STORAGES["file"](tmp_path) as storage:
        await written(storage, "t", 1)
    await is_refused(
        InMemoryCheckpointStorage(), tmp_path / "threads" / "t.jsonl", "not a file that export_thread wrote"
    )


async def test_valid_lines_that_do_not_fit_together_are_refused(
    storage: StoreCheckpointStorage, tmp_path: Path
) -> None:
    """Each line has a valid checksum."""
    source = InMemoryCheckpointStorage()
    await make_half(source)
    standing = await source.store.thread_header("half")
    assert standing is not None
    commits = list(await source.store.commits("half"))
    with (tmp_path / "half.jsonl").open("wb") as file:
        writer = DumpWriter(file, standing)
        for commit in commits[1:]:
            writer.add(commit)
        writer.end()
    await is_refused(storage, tmp_path / "half.jsonl", "line 2 is damaged: chunk .* commit 1 does not hold it")


async def test_a_file_that_is_changed_while_it_is_imported_imports_nothing(
    storage: StoreCheckpointStorage, tmp_path: Path
) -> None:
    """It was looked at as a whole, and became another, which is whole too."""
    source, path = InMemoryCheckpointStorage(), tmp_path / "t.jsonl"
    await written(source, "t", 8)
    await source.export_thread("t", path)
    standing = await source.store.thread_header("t")
    assert standing is not None
    other = io.BytesIO()
    writer = DumpWriter(other, standing)
    for commit in await source.store.commits("t"):
        writer.add(msgspec.structs.replace(commit, run_id="another") if commit.number == 16 else commit)
    writer.end()
    add = storage.store.add_thread

    async def changed_before(*arguments: Any) -> None:
        put(path, other.getvalue())
        await add(*arguments)

    storage.store.add_thread = changed_before  # type: ignore[method-assign,assignment]  # a tap on the real method
    await is_refused(storage, path, "it was changed while it was imported")


async def test_an_import_that_is_cancelled_is_whole_or_not_there(storage: StoreCheckpointStorage, path: Path) -> None:
    task = asyncio.ensure_future(storage.import_thread(path))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if await storage.list_threads():
        assert await entries(storage) == [f"0: {LONG}", f"1: {LONG}"]
    assert await storage.verify() == []
