"""Backups of a store in PostgreSQL, made while its threads run and restored as the how-to page describes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.databases.fixtures import POSTGRES_URL
from tests.databases.postgres import Databases, PostgresServer, programs
from tests.e2e.backed_up import THREADS, WHOLE, assert_complete, counting, resume_all, running_threads
from tests.e2e.test_doctor_postgres import sql

from perdure import AesGcm, MissingKey, PostgresCheckpointStorage, ThreadBusy, ThreadConflict

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "operate" / "back-up-and-restore.md"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """A server of the same version as the programs. Newer programs use statements that an older server rejects."""
    if POSTGRES_URL not in os.environ:
        yield request.getfixturevalue("postgres_server")
        return
    with PostgresServer() as own:
        yield own


@pytest.fixture
def dsn(server: Databases) -> Iterator[str]:
    with server.database() as dsn:
        yield dsn


def release_all() -> str:
    """The SQL that the page gives for a restored database."""
    [statements] = re.findall(r"^```sql\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(statements)


async def program(name: str, *arguments: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(programs() / name, *arguments, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


async def dump(dsn: str, file: Path) -> None:
    await program("pg_dump", "--format=custom", "--schema=perdure", f"--file={file}", dsn)


async def restore(file: Path, dsn: str) -> None:
    await program("pg_restore", "--no-owner", "--exit-on-error", "--single-transaction", f"--dbname={dsn}", file)


async def test_dump_made_while_threads_run_restores_threads_that_resume(
    server: Databases, dsn: str, tmp_path: Path
) -> None:
    async with PostgresCheckpointStorage(dsn) as storage:
        assert await storage.list_threads() == []  # creates the tables
        async with running_threads(storage) as (gate, runs):
            await dump(dsn, tmp_path / "early")
            await gate.all_wait.wait()
            await dump(dsn, tmp_path / "late")
            gate.open()
            await assert_complete(runs)
    for file in ("early", "late"):
        with server.database() as other:
            await restore(tmp_path / file, other)
            async with PostgresCheckpointStorage(other) as restored:
                assert await restored.verify() == []
                for thread in await restored.list_threads():
                    result = await counting(restored).run(thread_id=thread.thread_id, takeover=True)
                    assert result.get_outputs() == [WHOLE]
                assert await restored.verify() == []
                assert file != "late" or len(await restored.list_threads()) == len(THREADS)


async def test_restored_thread_keeps_its_owner_until_the_sql_releases_it(
    server: Databases, dsn: str, tmp_path: Path
) -> None:
    async with PostgresCheckpointStorage(dsn) as storage, running_threads(storage) as (gate, _):
        await gate.all_wait.wait()
        await dump(dsn, tmp_path / "dump")
    with server.database() as other:
        await restore(tmp_path / "dump", other)
        async with PostgresCheckpointStorage(other) as restored:
            with pytest.raises(ThreadBusy):  # the owner is this process, which is alive
                await counting(restored).run(thread_id=THREADS[0])
            with sql(other) as session:
                session.execute(release_all())
            await resume_all(restored)


async def test_process_from_before_a_restore_cannot_write_to_the_store(dsn: str, tmp_path: Path) -> None:
    async with PostgresCheckpointStorage(dsn) as storage, running_threads(storage) as (gate, runs):
        await gate.all_wait.wait()
        await dump(dsn, tmp_path / "dump")
        with sql(dsn) as session:
            session.execute("DROP SCHEMA perdure CASCADE")
            await restore(tmp_path / "dump", dsn)
            session.execute(release_all())
        gate.open()
        ended = await asyncio.gather(*runs, return_exceptions=True)
        assert {type(error) for error in ended} == {ThreadConflict}
        await resume_all(storage)


async def test_dump_of_an_encrypted_store_needs_its_keys(server: Databases, dsn: str, tmp_path: Path) -> None:
    keys = AesGcm(AesGcm.generate_key())
    async with PostgresCheckpointStorage(dsn, encryption=keys) as storage, running_threads(storage) as (gate, _):
        await gate.all_wait.wait()
        await dump(dsn, tmp_path / "dump")
    with server.database() as other:
        await restore(tmp_path / "dump", other)
        with sql(other) as session:
            session.execute(release_all())
        for wrong in (None, AesGcm(AesGcm.generate_key())):
            async with PostgresCheckpointStorage(other, encryption=wrong) as restored:
                with pytest.raises(MissingKey):
                    await counting(restored).run(thread_id=THREADS[0])
        async with PostgresCheckpointStorage(other, encryption=keys) as restored:
            await resume_all(restored)
