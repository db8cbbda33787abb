"""Backups of SQLite and file stores, made while their threads run."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.backed_up import at_work, counting, go_on, undisturbed

from perdure import AesGcm, FileCheckpointStorage, MissingKey, SqliteCheckpointStorage


def vacuum_into(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db:
        db.execute("VACUUM INTO ?", (str(target),))


def backup_call(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db, closing(sqlite3.connect(target)) as copy:
        db.backup(copy)


WAYS = [vacuum_into, backup_call]


@pytest.mark.parametrize("back_up", WAYS, ids=lambda way: way.__name__)
async def test_a_copy_by_sqlite_while_threads_run_holds_a_moment_from_which_all_of_them_go_on(
    back_up: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    source = tmp_path / "threads.db"
    async with SqliteCheckpointStorage(source) as storage, at_work(storage) as (gate, runs):
        await gate.all_wait.wait()
        await asyncio.to_thread(back_up, source, tmp_path / "copy.db")
        gate.open()
        await undisturbed(runs)
    async with SqliteCheckpointStorage(tmp_path / "copy.db") as restored:
        assert await restored.verify() == []
        await go_on(restored, takeover=True)  # the process that owned them lives: it is this one


async def test_copied_files_of_running_threads_go_on_in_another_folder_and_belong_to_nobody(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path / "threads") as storage, at_work(storage) as (gate, runs):
        await gate.all_wait.wait()
        (tmp_path / "copy").mkdir()
        for path in (tmp_path / "threads").glob("*.jsonl"):
            shutil.copy(path, tmp_path / "copy")
        gate.open()
        await undisturbed(runs)
    async with FileCheckpointStorage(tmp_path / "copy") as restored:
        assert await restored.verify() == []
        await go_on(restored)


async def test_a_file_that_was_copied_in_the_middle_of_a_line_loses_only_that_line(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path / "threads") as storage, at_work(storage) as (gate, _):
        await gate.all_wait.wait()
        (tmp_path / "copy").mkdir()
        for path in (tmp_path / "threads").glob("*.jsonl"):
            (tmp_path / "copy" / path.name).write_bytes(path.read_bytes()[:-20])
    async with FileCheckpointStorage(tmp_path / "copy") as restored:
        await go_on(restored)


async def test_a_copy_of_an_encrypted_file_needs_its_keys(tmp_path: Path) -> None:
    keys = AesGcm(AesGcm.generate_key())
    async with SqliteCheckpointStorage(tmp_path / "threads.db", encryption=keys) as storage:
        async with at_work(storage) as (gate, _):
            await gate.all_wait.wait()
            await asyncio.to_thread(vacuum_into, tmp_path / "threads.db", tmp_path / "copy.db")
    async with SqliteCheckpointStorage(tmp_path / "copy.db") as restored:
        with pytest.raises(MissingKey):
            await counting(restored).run(thread_id="t-0")
    async with SqliteCheckpointStorage(tmp_path / "copy.db", encryption=keys) as restored:
        await go_on(restored, takeover=True)
