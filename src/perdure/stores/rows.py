"""Rows of the tables that several parts of a store read, and the connection they are read with."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from perdure.records import CheckpointInfo

T = TypeVar("T")


class Standing(NamedTuple):
    """A thread's row, as far as moving it goes."""

    thread: int
    fence: int
    number: int
    head: int | None
    status: str
    last_seq: int


class Payload(NamedTuple):
    """Where the payload of a commit is: in its row, or in the thread's file."""

    number: int
    seal: bytes | None
    """None where the line in the thread's file has a checksum of its own."""
    body: bytes | None
    place: int | None
    size: int | None


class PackedRow(NamedTuple):
    seq: int
    thread: int
    number: int
    parent: int | None
    checkpoint_id: Any
    body: bytes
    place: int | None
    size: int | None
    seal: bytes


class RawRow(NamedTuple):
    """A commit as it is stored."""

    info: CheckpointInfo | None
    parent: int | None
    status: str
    run_id: str
    timestamp: str
    events: tuple[int | None, int | None]
    """The first one, and how many."""
    payload: Payload


class Rows:
    """Over one connection. Nothing here begins or ends a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._workflows: dict[str, int] = {}
        self._blocks: dict[int, int] = {}
        self._process: tuple[str, int] | None = None
        self.without_journal: set[str] = set()
        """Threads that are owned here and have no entries: nobody else can add one without taking them over."""

    def forget(self) -> None:
        """What is remembered of rows."""
        self._workflows.clear()
        self._blocks.clear()
        self._process = None
        self.without_journal.clear()

    def attempt(self, work: Callable[[], T]) -> T:
        """All of the work inside of a transaction, or none: what it raises undoes it, and nothing that came before."""
        self._db.execute("SAVEPOINT one")
        try:
            result = work()
        except BaseException:
            self.forget()  # what is remembered may have been undone
            self._db.execute("ROLLBACK TO one")
            self._db.execute("RELEASE one")
            raise
        self._db.execute("RELEASE one")
        return result

    def find_thread(self, thread_id: str) -> int | None:
        found = self._db.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if found is None else int(found[0])
