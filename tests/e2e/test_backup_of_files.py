"""Backups of SQLite and file stores, made while their threads run."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.backed_up import assert_complete, counting, resume_all, running_threads

from perdure import AesGcm, FileCheckpointStorage, MissingKey, SqliteCheckpointStorage


def vacuum_into(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db:
        db.execute("VACUUM INTO ?", (str(target),))


def backup_call(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db, closing(sqlite3.connect(target)) as copy:
        db.backup(copy)


WAYS = [vacuum_into, backup_call]


@pytest.mark.parametrize("back_up", WAYS, ids=lambda way: way.__name__)
async def test_sqlite_copy_made_while_threads_run_has_threads_that_resume(
    back_up: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    source = tmp_path / "threads.db"
    async with SqliteCheckpointStorage(source) as storage, running_threads(storage) as (gate, runs):
        await gate.all_wait.wait()
        await asyncio.to_thread(back_up, source, tmp_path / "copy.db")
        gate.open()
        await assert_complete(runs)
    async with SqliteCheckpointStorage(tmp_path / "copy.db") as restored:
        assert await restored.verify() == []
        await resume_all(restored, takeover=True)  # their owner is this process, which is alive


async def test_copied_files_of_running_threads_resume_and_have_no_owner(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path / "threads") as storage, running_threads(storage) as (gate, runs):
        await gate.all_wait.wait()
        (tmp_path / "copy").mkdir()
        for path in (tmp_path / "threads").glob("*.jsonl"):
            shutil.copy(path, tmp_path / "copy")
        gate.open()
        await assert_complete(runs)
    async with FileCheckpointStorage(tmp_path / "copy") as restored:
        assert await restored.verify() == []
        await resume_all(restored)


async def test_file_copied_in_the_middle_of_a_line_loses_only_that_line(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path / "threads") as storage, running_threads(storage) as (gate, _):
        await gate.all_wait.wait()
        (tmp_path / "copy").mkdir()
        for path in (tmp_path / "threads").glob("*.jsonl"):
            (tmp_path / "copy" / path.name).write_bytes(path.read_bytes()[:-20])
    async with FileCheckpointStorage(tmp_path / "copy") as restored:
        await resume_all(restored)


async def test_copy_of_an_encrypted_file_needs_its_keys(tmp_path: Path) -> None:
    keys = AesGcm(AesGcm.generate_key())
    async with SqliteCheckpointStorage(tmp_path / "threads.db", encryption=keys) as storage:
        async with running_threads(storage) as (gate, _):
            await gate.all_wait.wait()
            await asyncio.to_thread(vacuum_into, tmp_path / "threads.db", tmp_path / "copy.db")
    async with SqliteCheckpointStorage(tmp_path / "copy.db") as restored:
        with pytest.raises(MissingKey):
            await counting(restored).run(thread_id="t-0")
    async with SqliteCheckpointStorage(tmp_path / "copy.db", encryption=keys) as restored:
        await resume_all(restored, takeover=True)
