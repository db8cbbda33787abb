"""verify finds what was damaged in the tables of PostgreSQL, whatever it is, and names its thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.promises.harm import make_whole, named
from tests.promises.processes import Place
from tests.schemas import SCHEMAS

from perdure import ThreadNotFound


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with SCHEMAS.lent():
        yield make_whole("postgres", tmp_path_factory.mktemp("whole"))


Harm = str
"""A statement. `{name}` stands for the key of that thread, `{s}` for the schema."""


def column(table: str, name: str, value: str, thread_id: str, where: str = "TRUE") -> Harm:
    change = f"UPDATE {{s}}.{table} SET {name} = {value} WHERE thread = {{{thread_id}}} AND {where}"
    return f"{change} AND {name} IS DISTINCT FROM {value}"


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
    "a first commit is gone": ("branched", ("DELETE FROM {s}.commits WHERE number = 1 AND thread = {branched}")),
    "a commit is gone": ("branched", ("DELETE FROM {s}.commits WHERE number = 4 AND thread = {branched}")),
    "the head is gone": ("branched", ("DELETE FROM {s}.commits WHERE number = 10 AND thread = {branched}")),
    "the thread's row is gone": (None, ("DELETE FROM {s}.threads WHERE thread = {branched}")),
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
    "a request is gone": ("asking", "DELETE FROM {s}.requests WHERE request_id = 'red' AND thread = {asking}"),
    "a pin of nothing": ("pruned", column("commits", "is_pinned", "true", "pruned", "checkpoint_id IS NULL")),
}
"""By name: which thread it is done to (None: that is not known any more), and the harm."""


def threads_in(*harms: Harm) -> list[str]:
    return re.findall(r"{(?!s})([a-z ]+)}", " ".join(harms))


def do(folder: Path, harm: Harm) -> None:
    keys = dict(SCHEMAS.fetch(folder, "SELECT thread_id, thread FROM {s}.threads"))
    for name in threads_in(harm):
        harm = harm.replace(f"{{{name}}}", f"'{keys[name]}'::uuid")
    assert SCHEMAS.fetch(folder, f"{harm} RETURNING 1"), "it harms nothing"


@pytest.mark.parametrize("part", range(6))
async def test_a_changed_row_is_found(part: int, whole: Path, tmp_path: Path) -> None:
    missed = {}
    async with Place("postgres", tmp_path).storage() as storage:
        await storage.list_threads()  # which makes the tables
        for name, (thread_id, harm) in [*IN_TABLES.items()][part::6]:
            SCHEMAS.copy(whole, tmp_path, threads_in(harm))
            assert await storage.verify() == [], f"before {name}"
            do(tmp_path, harm)
            problems = await storage.verify()
            if thread_id not in named(problems):
                missed[name] = problems
    assert missed == {}


async def test_verify_reports_every_damage(whole: Path, tmp_path: Path) -> None:
    harms = [IN_TABLES[name][1] for name in ("a first commit is gone", "threads.due_at", "journal.body")]
    async with Place("postgres", tmp_path).storage() as storage:
        await storage.list_threads()
        SCHEMAS.copy(whole, tmp_path, ["asking", *threads_in(*harms)])
        for harm in harms:
            do(tmp_path, harm)
        assert {"branched", "sleeping", "half"} == named(await storage.verify())
        assert named(await storage.verify(thread_id="branched")) == {"branched"}
        assert await storage.verify(thread_id="asking") == []
        with pytest.raises(ThreadNotFound):
            await storage.verify(thread_id="nobody")
