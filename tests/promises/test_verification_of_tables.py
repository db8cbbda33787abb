"""verify finds what was damaged in the tables of PostgreSQL, whatever it is, and names its thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.promises.harm import make_whole, named
from tests.promises.processes import Place
from tests.schemas import SCHEMAS

from holdfast import ThreadNotFound
from holdfast.records import Damage

Harm = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with SCHEMAS.lent():
        yield make_whole("postgres", tmp_path_factory.mktemp("whole"))


async def damages(whole: Path, folder: Path, harm: Harm, thread_id: str | None = None) -> list[Damage]:
    """What is found in a copy that was harmed."""
    async with Place("postgres", folder).storage() as storage:
        await storage.list_threads()  # which makes the tables
        SCHEMAS.copy(whole, folder)
        harm(folder)
        return await storage.verify(thread_id=thread_id)


# ---------------------------------------------------------------- rows


def sql(statement: str) -> Harm:
    """`{name}` stands for the key of that thread, `{s}` for the schema."""

    def harm(folder: Path) -> None:
        rows = SCHEMAS.fetch(folder, "SELECT thread_id, thread FROM {s}.threads")
        keys = {f"{{{name}}}": f"'{key}'::uuid" for name, key in rows}
        filled = statement
        for name, key in keys.items():
            filled = filled.replace(name, key)
        assert SCHEMAS.fetch(folder, f"{filled} RETURNING 1"), "it harms nothing"

    return harm


def column(table: str, name: str, value: str, thread_id: str, where: str = "TRUE") -> Harm:
    change = f"UPDATE {{s}}.{table} SET {name} = {value} WHERE thread = {{{thread_id}}} AND {where}"
    return sql(f"{change} AND {name} IS DISTINCT FROM {value}")


def of_commit(name: str, value: str, number: int = 4) -> Harm:
    return column("commits", name, value, "branched", f"number = {number}")


IN_COMMITS = {
    "number": "number + 50",
    "thread": "{fork}",
    "checkpoint_id": "'another'",
    "workflow": "'another'",
    "iteration": "iteration + 1",
    "parent": "parent - 1",
    "made_at": "made_at + interval '1 second'",
    "run_id": "'another'",
    "status": "'FAILED'",
    "first_seq": "first_seq + 1",
    "event_count": "event_count + 1",
    "dropped": "'aa.1'",
    "root": "overlay(root PLACING 'A' FROM 21)",
    "seal": "overlay(seal PLACING '\\x00' FROM 2)",
    "events": "overlay(events PLACING 'A' FROM 3)",
    "checkpoint_id that is gone": "NULL",
    "root that is gone": "NULL",
    "events that are gone": "NULL",
}
IN_THREADS = {
    "head": "head - 1",
    "number": "number - 1",
    "last_seq": "last_seq + 1",
    "first_seq": "first_seq + 1",
    "due_at": "due_at + interval '1 second'",
    "status": "'FAILED'",
    "updated_at": "'2026-01-01T00:00:00+00:00'",
    "workflow": "'another'",
    "thread_id": "'another'",
}
SWAPPED = "(SELECT {0} FROM {{s}}.commits o WHERE o.thread = commits.thread AND o.number = 3 - commits.number)"
FIRST = "entry = (SELECT MIN(entry) FROM {s}.journal WHERE thread = {half})"


def with_names(table: str, thread_id: str, changes: dict[str, str]) -> dict[str, tuple[str | None, Harm]]:
    return {
        f"{table}.{name}": (thread_id, column(table, name.split()[0], value, thread_id))
        for name, value in changes.items()
    }


IN_TABLES: dict[str, tuple[str | None, Harm]] = {
    **{f"commits.{name}": ("branched", of_commit(name.split()[0], to)) for name, to in IN_COMMITS.items()},
    **with_names("threads", "sleeping", IN_THREADS),
    "threads.thread_id": ("another", column("threads", "thread_id", "'another'", "sleeping")),
    "a seal of events": ("branched", of_commit("seal", "overlay(seal PLACING '\\x00' FROM 10)", 3)),
    "a byte of a chunk": ("branched", of_commit("chunks", "overlay(chunks PLACING 'A' FROM 3)", 3)),
    "a chunk cut off": ("branched", of_commit("chunks", "substr(chunks, 1, 40)", 3)),
    "no chunks": ("branched", of_commit("chunks", "NULL", 3)),
    "no names": ("branched", of_commit("names", "NULL", 3)),
    "another name": ("branched", of_commit("names", "'aaaa' || substr(names, 5)", 3)),
    "swapped roots": ("branched", column("commits", "root", SWAPPED.format("o.root"), "branched", "number < 3")),
    "swapped chunks": ("branched", column("commits", "chunks", SWAPPED.format("o.chunks"), "branched", "number < 3")),
    "commits.previous": ("fork", column("commits", "previous", "'another'", "fork", "number = 1")),
    "a first commit is gone": ("branched", sql("DELETE FROM {s}.commits WHERE number = 1 AND thread = {branched}")),
    "a commit is gone": ("branched", sql("DELETE FROM {s}.commits WHERE number = 4 AND thread = {branched}")),
    "the head is gone": ("branched", sql("DELETE FROM {s}.commits WHERE number = 10 AND thread = {branched}")),
    "the thread's row is gone": (None, sql("DELETE FROM {s}.threads WHERE thread = {branched}")),
    "journal.body": ("half", column("journal", "body", "'{}'", "half", FIRST)),
    "journal.delivery_id": ("half", column("journal", "delivery_id", "delivery_id + 1", "half", FIRST)),
    "journal.thread": ("branched", column("journal", "thread", "{branched}", "half", FIRST)),
    "inbox.body": ("posted", column("inbox", "body", "'\"2\"'", "posted", "item_id = 'second'")),
    "inbox.kind": ("posted", column("inbox", "kind", "'other'", "posted", "item_id = 'second'")),
    "inbox.item_id": ("posted", column("inbox", "item_id", "'third'", "posted", "item_id = 'second'")),
    "inbox.item_id of one that was taken in": (
        "posted",
        column("inbox", "item_id", "'third'", "posted", "item_id = 'first'"),
    ),
    "requests.request_id": ("asking", column("requests", "request_id", "'pink'", "asking", "request_id = 'red'")),
    "requests.executor_id": ("asking", column("requests", "executor_id", "'pink'", "asking", "request_id = 'red'")),
    "requests.deadline": (
        "asking",
        column("requests", "deadline", "deadline + interval '1 second'", "asking", "request_id = 'red'"),
    ),
    "requests.assignee": ("asking", column("requests", "assignee", "'Eve'", "asking", "request_id = 'red'")),
    "requests.thread": ("branched", column("requests", "thread", "{branched}", "asking", "request_id = 'red'")),
    "a request is gone": ("asking", sql("DELETE FROM {s}.requests WHERE request_id = 'red'")),
    "a pin of nothing": ("pruned", column("commits", "is_pinned", "true", "pruned", "checkpoint_id IS NULL")),
}
"""By name: which thread it is done to (None: that is not known any more), and the harm."""


@pytest.mark.parametrize(("thread_id", "harm"), IN_TABLES.values(), ids=IN_TABLES)
async def test_a_changed_row_is_found(thread_id: str | None, harm: Harm, whole: Path, tmp_path: Path) -> None:
    assert thread_id in named(await damages(whole, tmp_path, harm))


async def test_a_copy_that_was_not_harmed_is_whole(whole: Path, tmp_path: Path) -> None:
    assert await damages(whole, tmp_path, lambda folder: None) == []


async def test_one_thread_can_be_verified(whole: Path, tmp_path: Path) -> None:
    found = await damages(whole, tmp_path, of_commit("root", "'{}'", 2), "branched")
    assert named(found) == {"branched"}
    async with Place("postgres", tmp_path).storage() as storage:
        assert await storage.verify(thread_id="asking") == []
        with pytest.raises(ThreadNotFound):
            await storage.verify(thread_id="nobody")


async def test_every_damage_is_told_not_only_the_first(whole: Path, tmp_path: Path) -> None:
    def harm(folder: Path) -> None:
        for name in ("a first commit is gone", "threads.due_at", "journal.body", "a request is gone"):
            IN_TABLES[name][1](folder)

    assert {"branched", "sleeping", "half", "asking"} <= named(await damages(whole, tmp_path, harm))
