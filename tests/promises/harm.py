"""Harm that is done to a store on the disk, behind its back: to rows of its tables and to its files."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.promises.moved_threads import make_all
from tests.promises.processes import Place

from perdure.records import Damage

Harm = Callable[[Path], object]
"""Done to the folder that a storage is in."""


def make_whole(kind: str, folder: Path) -> Path:
    """A store with threads of every kind, to be copied for each harm."""

    async def make() -> None:
        async with Place(kind, folder).storage() as storage:
            await make_all(storage)

    asyncio.run(make())
    return folder


async def damages(kind: str, whole: Path, folder: Path, harm: Harm, thread_id: str | None = None) -> list[Damage]:
    """Returns the damage that verification reports in a harmed copy."""
    shutil.copytree(whole, folder / "harmed")
    harm(folder / "harmed")
    async with Place(kind, folder / "harmed").storage() as storage:
        return await storage.verify(thread_id=thread_id)


def named(problems: list[Damage]) -> set[str | None]:
    return {damage.thread_id for damage in problems}


# ---------------------------------------------------------------- to rows


def sql(statement: str) -> Harm:
    """`{thread_id}` stands for the thread's row."""

    def harm(folder: Path) -> None:
        (path,) = folder.rglob("*.db")
        db = sqlite3.connect(path)
        rows = dict(db.execute("SELECT thread_id, thread FROM threads").fetchall())
        assert db.execute(statement.format(**rows)).rowcount > 0, "it harms nothing"
        db.commit()
        db.close()

    return harm


def column(table: str, name: str, value: str, thread_id: str, where: str = "TRUE") -> Harm:
    return sql(f"UPDATE {table} SET {name} = {value} WHERE thread = {{{thread_id}}} AND {where}")


def of_commit(name: str, value: str) -> Harm:
    return column("commits", name, value, "branched", "number = 4")


IN_COMMITS = {
    "number": "number + 50",
    "thread": "{fork}",
    "checkpoint_id": "x'0102'",
    "workflow": "workflow + 1",
    "iteration": "iteration + 1",
    "parent": "parent - 1",
    "timestamp": "timestamp + 1",
    "run_id": "x'0102'",
    "status": "'FAILED'",
    "first_seq": "first_seq + 1",
    "events": "events + 1",
}
IN_THREADS = {
    "head": "head - 1",
    "last_seq": "last_seq + 1",
    "first_seq": "first_seq + 1",
    "due_at": "due_at + 1",
    "status": "'FAILED'",
    "updated_at": "updated_at + 1",
}
FIRST = "entry = (SELECT MIN(entry) FROM journal WHERE thread = {half})"
IN_ROWS: dict[str, tuple[str | None, Harm]] = {
    **{f"commits.{name}": ("branched", of_commit(name, to)) for name, to in IN_COMMITS.items()},
    **{f"threads.{name}": ("sleeping", column("threads", name, to, "sleeping")) for name, to in IN_THREADS.items()},
    "commits.previous": ("fork", column("commits", "previous", "'another'", "fork")),
    "threads.number": ("branched", column("threads", "number", "number - 1", "branched")),
    "threads.workflow": ("branched", column("threads", "workflow", "99", "branched")),
    "a first commit is gone": ("branched", sql("DELETE FROM commits WHERE number = 1 AND thread = {branched}")),
    "a commit is gone": ("branched", sql("DELETE FROM commits WHERE number = 4 AND thread = {branched}")),
    "the head is gone": ("branched", sql("DELETE FROM commits WHERE number = 10 AND thread = {branched}")),
    "the thread's row is gone": (None, sql("DELETE FROM threads WHERE thread = {branched}")),
    "journal.body": ("half", column("journal", "body", "x'7b7d'", "half", FIRST)),
    "journal.delivery_id": ("half", column("journal", "delivery_id", "delivery_id + 1", "half", FIRST)),
    "journal.thread": ("branched", column("journal", "thread", "{branched}", "half", FIRST)),
    "inbox.body": ("posted", column("inbox", "body", "x'2232'", "posted", "item_id = 'second'")),
    "inbox.kind": ("posted", column("inbox", "kind", "'other'", "posted", "item_id = 'second'")),
    "inbox.item_id": ("posted", column("inbox", "item_id", "'third'", "posted", "item_id = 'second'")),
    "inbox.item_id of one that was taken in": (
        "posted",
        column("inbox", "item_id", "'third'", "posted", "item_id = 'first'"),
    ),
    "requests.request_id": ("asking", column("requests", "request_id", "'pink'", "asking", "request_id = 'red'")),
    "requests.executor_id": ("asking", column("requests", "executor_id", "'pink'", "asking", "request_id = 'red'")),
    "requests.deadline": ("asking", column("requests", "deadline", "deadline + 1", "asking", "request_id = 'red'")),
    "requests.assignee": ("asking", column("requests", "assignee", "'Eve'", "asking", "request_id = 'red'")),
    "requests.thread": ("branched", column("requests", "thread", "{branched}", "asking", "request_id = 'red'")),
    "a request is gone": ("asking", sql("DELETE FROM requests WHERE request_id = 'red'")),
    "a pin of nothing": ("pruned", column("pins", "number", "99", "pruned")),
}
"""By name: which thread it is done to (None: that is not known any more), and the harm."""
