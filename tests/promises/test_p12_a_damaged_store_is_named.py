"""Promise 12 in the tables of a store: damage is an error that names thread and checkpoint; other threads continue."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.promises.damage import WRITTEN, assert_threads_continue, is_refused, write
from tests.promises.processes import Place
from tests.promises.stages import Stage, fan, ledger

from perdure import NewerFormat, WorkflowCheckpointException, WorkflowRunResult

OF_HEAD = "thread = (SELECT thread FROM threads WHERE thread_id = 't') AND number = 6"
IN_TABLES: dict[str, str] = {
    "a byte of its body": (
        f"UPDATE commits SET body = CAST(substr(body, 1, 20) || 'A' || substr(body, 22) AS BLOB) WHERE {OF_HEAD}"
    ),
    "text for bytes": f"UPDATE commits SET body = CAST(body AS TEXT) WHERE {OF_HEAD}",
    "its body cut off": f"UPDATE commits SET body = substr(body, 1, 50) WHERE {OF_HEAD}",
    "an empty body": f"UPDATE commits SET body = x'' WHERE {OF_HEAD}",
    "no body": f"UPDATE commits SET body = NULL WHERE {OF_HEAD}",
    "a seal": f"UPDATE commits SET seal = zeroblob(16) WHERE {OF_HEAD}",
    "the body of another thread": (
        "UPDATE commits SET (seal, body) = (SELECT seal, body FROM commits JOIN threads USING (thread)"
        f" WHERE thread_id = 'other' AND commits.number = 6) WHERE {OF_HEAD}"
    ),
    "the body of an older checkpoint": (
        f"UPDATE commits SET (seal, body) = (SELECT c.seal, c.body FROM commits c WHERE c.thread = commits.thread"
        f" AND c.number = 4) WHERE {OF_HEAD}"
    ),
    "a commit that it shares chunks with": (
        "UPDATE commits SET body = zeroblob(length(body)) WHERE number = 2"
        " AND thread = (SELECT thread FROM threads WHERE thread_id = 't')"
    ),
    "a head that is an older one": "UPDATE threads SET head = 4 WHERE thread_id = 't'",
    "no head": "UPDATE threads SET head = NULL WHERE thread_id = 't'",
    "a head that never was": "UPDATE threads SET head = 7 WHERE thread_id = 't'",
    "another last number": "UPDATE threads SET number = 2 WHERE thread_id = 't'",
}


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path)


@pytest.mark.parametrize("statement", IN_TABLES.values(), ids=IN_TABLES)
async def test_damage_in_the_rows_of_a_thread_names_its_head(sqlite_place: Place, statement: str) -> None:
    async with sqlite_place.storage() as storage:
        head_id = await write(storage)
    sqlite_place.change(sqlite=statement)
    await is_refused(sqlite_place, "t", head_id)
    await assert_threads_continue(sqlite_place, "other", "half")


async def test_head_without_its_row_is_refused(sqlite_place: Place) -> None:
    async with sqlite_place.storage() as storage:
        await write(storage)
    sqlite_place.change(sqlite=f"DELETE FROM commits WHERE {OF_HEAD}")
    await is_refused(sqlite_place, "t")
    await assert_threads_continue(sqlite_place, "other", "half")


JOURNAL = (
    "UPDATE journal SET body = replace(body, 'x-source', 'y-source') WHERE entry = (SELECT MIN(entry) FROM journal)",
    (
        "UPDATE {s}.journal SET body = overlay(body PLACING 'y' FROM position('x-source' IN body))"
        " WHERE entry = (SELECT MIN(entry) FROM {s}.journal)"
    ),
)
INBOX = (
    "UPDATE inbox SET body = replace(body, 'posted', 'forged')",
    "UPDATE {s}.inbox SET body = overlay(body PLACING 'forged' FROM position('posted' IN body))",
)


async def test_changed_journal_or_inbox_is_never_used(place: Place) -> None:
    """Else a finished delivery would have another outcome, and no error would show it."""
    async with place.storage() as storage:
        await write(storage)
        await storage.store.post("t", "item", "message", b'"posted"')
    for in_sqlite, in_postgres in (JOURNAL, INBOX):
        place.change(sqlite=in_sqlite, postgres=in_postgres)
    right = {"half": ["x-source-a+x-source-b+x-source-c"], "t": [[*WRITTEN, "posted"]]}
    async with place.storage() as storage:
        for make, thread_id in ((fan, "half"), (ledger, "t")):
            outcomes = await asyncio.gather(make(Stage(), storage).run(thread_id=thread_id), return_exceptions=True)
            outcome: object = outcomes[0]
            if isinstance(outcome, WorkflowCheckpointException):
                assert f"thread {thread_id!r}" in str(outcome)
            else:  # an index may be rebuilt
                assert isinstance(outcome, WorkflowRunResult) and outcome.get_outputs() == right[thread_id]
    await assert_threads_continue(place, "other")


async def test_foreign_database_file_is_named_and_stays_unchanged(sqlite_place: Place) -> None:
    for content in (b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 500):
        sqlite_place.database.write_bytes(content)
        async with sqlite_place.storage() as storage:
            with pytest.raises(WorkflowCheckpointException, match=r"threads\.db"):
                await ledger(Stage(), storage).run("x", thread_id="t")
        assert sqlite_place.database.read_bytes() == content
    sqlite_place.database.unlink()
    with closing(sqlite3.connect(sqlite_place.database)) as db, db:
        db.execute("CREATE TABLE accounts (name)")
    async with sqlite_place.storage() as storage:
        with pytest.raises(WorkflowCheckpointException, match=r"threads\.db.*database of something else"):
            await storage.list_threads()


async def test_a_database_that_was_cut_off_is_an_error(sqlite_place: Place) -> None:
    async with sqlite_place.storage() as storage:
        await write(storage)
    data = sqlite_place.database.read_bytes()
    for size in (len(data) // 2, 1024, 100):
        sqlite_place.database.write_bytes(data[:size])
        async with sqlite_place.storage() as storage:
            with pytest.raises(WorkflowCheckpointException, match=r"threads\.db"):
                await ledger(Stage(), storage).run("x", thread_id="t")


@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_a_database_of_a_newer_version_is_refused_as_such(place: Place) -> None:
    async with place.storage() as storage:
        await write(storage)
    with closing(sqlite3.connect(place.database)) as db:
        db.execute("PRAGMA user_version = 99")
    before = place.database.read_bytes()
    async with place.storage() as storage:
        with pytest.raises(NewerFormat, match=rf"{place.database.name}.*format 99.*upgrade perdure"):
            await ledger(Stage(), storage).run("x", thread_id="t")
    assert place.database.read_bytes() == before
