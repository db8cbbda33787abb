"""Promise 12 in tables of PostgreSQL: damage is an error that names thread and checkpoint; other threads continue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.promises.damage import assert_threads_continue, is_refused, write
from tests.promises.processes import Place
from tests.promises.stages import Stage, ledger
from tests.schemas import SCHEMAS, where

from perdure import NewerFormat, WorkflowCheckpointException

T = "(SELECT thread FROM {s}.threads WHERE thread_id = 't')"
OF_T = f"thread = {T}"
OF_HEAD = f"{OF_T} AND number = 6"
OF_OTHER = "(SELECT thread FROM {s}.threads WHERE thread_id = 'other')"
COPIED = (
    "UPDATE {s}.commits c SET (root, seal, names, chunks) = ROW (o.root, o.seal, o.names, o.chunks)"
    f" FROM {{s}}.commits o WHERE c.thread = {T} AND c.number = 6"
)
IN_TABLES: dict[str, str] = {
    "a byte of its root": f"UPDATE {{s}}.commits SET root = overlay(root PLACING 'A' FROM 21) WHERE {OF_HEAD}",
    "its root cut off": f"UPDATE {{s}}.commits SET root = substr(root, 1, 50) WHERE {OF_HEAD}",
    "an empty root": f"UPDATE {{s}}.commits SET root = '' WHERE {OF_HEAD}",
    "no root": f"UPDATE {{s}}.commits SET root = NULL WHERE {OF_HEAD}",
    "a seal": f"UPDATE {{s}}.commits SET seal = '\\x0000000000000000' || substr(seal, 9) WHERE {OF_HEAD}",
    "no seal": f"UPDATE {{s}}.commits SET seal = '' WHERE {OF_HEAD}",
    "its time": f"UPDATE {{s}}.commits SET made_at = made_at + interval '1 second' WHERE {OF_HEAD}",
    "its workflow": f"UPDATE {{s}}.commits SET workflow = 'another' WHERE {OF_HEAD}",
    "its status": f"UPDATE {{s}}.commits SET status = 'FAILED' WHERE {OF_HEAD}",
    "the root of another thread": f"{COPIED} AND o.thread = {OF_OTHER} AND o.number = 6",
    "the root of an older checkpoint": f"{COPIED} AND o.thread = c.thread AND o.number = 4",
    "a commit that it shares chunks with": (
        f"UPDATE {{s}}.commits SET chunks = overlay(chunks PLACING 'A' FROM 3) WHERE {OF_T} AND number = 2"
    ),
    "a chunk under the name of another": (
        "UPDATE {s}.commits c SET chunks = o.chunks, names = split_part(c.names, ':', 1) || ':' || length(o.chunks)"
        f" FROM {{s}}.commits o WHERE c.thread = {T} AND c.number = 2 AND o.thread = c.thread AND o.number = 3"
    ),
    "a chunk cut off": f"UPDATE {{s}}.commits SET chunks = substr(chunks, 1, 500) WHERE {OF_T} AND number = 2",
    "no chunks": f"UPDATE {{s}}.commits SET chunks = NULL WHERE {OF_T} AND number = 2",
    "no names": f"UPDATE {{s}}.commits SET names = NULL WHERE {OF_T} AND number = 2",
    "names that are none": f"UPDATE {{s}}.commits SET names = 'aa:bb' WHERE {OF_T} AND number = 2",
    "a chunk that it needs has another name": (
        f"UPDATE {{s}}.commits SET names = 'a' || substr(names, 2) WHERE {OF_T} AND number = 2 AND names !~ '^a'"
    ),
    "a commit that it shares chunks with is gone": f"DELETE FROM {{s}}.commits WHERE {OF_T} AND number = 2",
    "a head that is an older one": "UPDATE {s}.threads SET head = 4 WHERE thread_id = 't'",
    "no head": "UPDATE {s}.threads SET head = NULL WHERE thread_id = 't'",
    "a head that never was": "UPDATE {s}.threads SET head = 7 WHERE thread_id = 't'",
    "another last number": "UPDATE {s}.threads SET number = 2 WHERE thread_id = 't'",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("postgres", tmp_path)


@pytest.fixture
def _is_not_used_again(place: Place) -> Iterator[None]:
    yield
    SCHEMAS.drop(place.folder)


@pytest.mark.parametrize("name", IN_TABLES)
async def test_damage_in_the_rows_of_a_thread_names_its_head(place: Place, name: str) -> None:
    async with place.storage() as storage:
        head_id = await write(storage)
    place.change(postgres=IN_TABLES[name])
    await is_refused(place, "t", head_id)
    await assert_threads_continue(place, "other", "half")


async def test_head_without_its_row_is_refused(place: Place) -> None:
    async with place.storage() as storage:
        await write(storage)
    place.change(postgres=f"DELETE FROM {{s}}.commits WHERE {OF_HEAD}")
    await is_refused(place, "t")
    await assert_threads_continue(place, "other", "half")


async def test_rows_of_two_threads_that_were_exchanged_are_both_refused(place: Place) -> None:
    """Each is whole in itself, and stands where another belongs."""
    async with place.storage() as storage:
        await write(storage)
    steps = (
        f"UPDATE {{s}}.commits SET number = 1006 WHERE number = 6 AND thread = {T}",
        f"UPDATE {{s}}.commits SET thread = {T} WHERE number = 6 AND thread = {OF_OTHER}",
        f"UPDATE {{s}}.commits SET thread = {OF_OTHER}, number = 6 WHERE number = 1006",
    )
    for statement in steps:
        place.change(postgres=statement)
    await is_refused(place, "t")
    await is_refused(place, "other")
    await assert_threads_continue(place, "half")


@pytest.mark.usefixtures("_is_not_used_again")
async def test_a_schema_of_something_else_is_named_and_left_alone(place: Place) -> None:
    schema = where(place.folder).schema
    SCHEMAS.drop(place.folder)
    for statement in ("CREATE SCHEMA {s}", "CREATE TABLE {s}.accounts (name text)"):
        SCHEMAS.fetch(place.folder, statement)
    async with place.storage() as storage:
        with pytest.raises(WorkflowCheckpointException, match=rf"{schema}.*tables of another program"):
            await storage.list_threads()
    assert SCHEMAS.fetch(place.folder, "SELECT relname FROM pg_class WHERE relnamespace = '{s}'::regnamespace") == [
        ("accounts",)
    ]


@pytest.mark.usefixtures("_is_not_used_again")
async def test_a_schema_of_a_newer_version_is_refused_as_such(place: Place) -> None:
    async with place.storage() as storage:
        await write(storage)
    SCHEMAS.fetch(place.folder, "UPDATE {s}.meta SET version = 99")
    before = SCHEMAS.fetch(place.folder, "SELECT * FROM {s}.threads ORDER BY thread")
    async with place.storage() as storage:
        with pytest.raises(NewerFormat, match=rf"{where(place.folder).schema}.*format 99.*upgrade perdure"):
            await ledger(Stage(), storage).run("x", thread_id="t")
    assert SCHEMAS.fetch(place.folder, "SELECT * FROM {s}.threads ORDER BY thread") == before
