"""Schemas of the PostgreSQL that tests share: one for each folder that a store is made over.

A folder leads to its schema in every process. Making the tables takes longer than most tests do, so a schema that a
test has left is emptied and gets the name of the next folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from tests.databases.fixtures import POSTGRES_URL
from tests.databases.postgres import Databases, unique_name
from tests.databases.sql import Sql

VARIABLE, FILE = "PERDURE_TESTS_SCHEMAS", ".perdure-tests-schemas"
"""Where other processes look: those that are started later, and those that were forked off before."""

_FREE = """
SELECT n.nspname FROM pg_namespace n WHERE n.nspname = $2 OR (n.nspname = ANY ($1::text[])
  AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.application_name = n.nspname))
"""
_EMPTY = """
DO $$ DECLARE one regclass; BEGIN
  FOR one IN SELECT oid FROM pg_class WHERE relnamespace = '"{old}"'::regnamespace AND relkind = 'r'
    AND relname <> 'meta' LOOP EXECUTE 'DELETE FROM ' || one; END LOOP;
  ALTER SCHEMA "{old}" RENAME TO "{new}";
END $$
"""
_COPY = """
DO $$ DECLARE one text; BEGIN
  FOR one IN SELECT relname FROM pg_class WHERE relnamespace = '"{old}"'::regnamespace AND relkind = 'r'
    AND relname NOT IN ('meta', 'processes') LOOP
    EXECUTE format('DELETE FROM "{new}".%I', one);
    EXECUTE format('INSERT INTO "{new}".%I SELECT * FROM "{old}".%I WHERE thread IN'
      '(SELECT thread FROM "{old}".threads WHERE thread_id = ANY (%L))', one, one, '{{{threads}}}');
  END LOOP;
END $$
"""


class Where(NamedTuple):
    dsn: str
    schema: str


def where(folder: Path) -> Where:
    """The schema of a folder. Its tables are made by the first store that uses it, unless there are some to be had."""
    dsn, schema = _found(folder)
    SCHEMAS.prepare(dsn, schema)
    parts = urlsplit(dsn)
    # Connections that still use a schema are known by this name.
    query = urlencode({**dict(parse_qsl(parts.query)), "application_name": schema})
    return Where(urlunsplit(parts._replace(query=query)), schema)


def _found(folder: Path) -> Where:
    line = _line_above(folder) or os.environ.get(VARIABLE) or SCHEMAS.start()
    prefix, dsn = line.split(" ", 1)
    return Where(dsn, f"{prefix}_{sha256(os.path.realpath(folder).encode()).hexdigest()[:16]}")


def _line_above(folder: Path) -> str:
    for parent in (folder, *folder.parents):
        try:
            return (parent / FILE).read_text(encoding="utf-8")
        except OSError:
            continue
    return ""


class Schemas:
    """Those of this process, which are its tests'."""

    def __init__(self) -> None:
        self._server: Callable[[], Databases] | None = None
        self._beside: Path | None = None
        self._prefix, self._dsn = "", ""
        self._sql: dict[str, Sql] = {}
        self._taken: list[str] = []
        self._resting: list[str] = []

    def begin(self, server: Callable[[], Databases], beside: Path) -> None:
        """`server` starts one when the first schema is asked for; `beside` is above all folders of tests."""
        self._server, self._beside = server, beside

    def begin_server(self) -> None:
        """Have a server now, so that processes that are started from here on find it."""
        if VARIABLE not in os.environ:
            self.start()

    def start(self) -> str:
        assert self._server is not None and self._beside is not None, "only a process that runs tests starts a server"
        self._dsn, self._prefix = self._server().dsn, unique_name()
        line = f"{self._prefix} {self._dsn}"
        os.environ[VARIABLE] = line
        (self._beside / FILE).write_text(line, encoding="utf-8")
        return line

    @contextmanager
    def apart(self, folder: Path, dsn: str) -> Iterator[None]:
        """Put what is in this folder into a database of its own: no other work keeps its vacuum waiting there."""
        (folder / FILE).write_text(f"{unique_name()} {dsn}", encoding="utf-8")
        yield
        if dsn in self._sql:
            self._sql.pop(dsn).close()

    def prepare(self, dsn: str, schema: str) -> None:
        """Give it empty tables, if some are at rest: those that a killed process may still write to are not."""
        if dsn != self._dsn or schema in self._taken:
            return
        self._taken.append(schema)
        sql = self._connected(dsn)
        free = {row[0] for row in sql.fetch(_FREE, self._resting, schema)} if self._resting else set()
        for old in self._resting if schema not in free else ():
            if old in free:
                self._resting.remove(old)
                try:
                    sql.execute(_EMPTY.format(old=old, new=schema))
                except asyncpg.UniqueViolationError:  # another process has just made it
                    self._resting.append(old)
                return

    def _connected(self, dsn: str) -> Sql:
        if dsn not in self._sql:
            self._sql[dsn] = Sql(dsn)
        return self._sql[dsn]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Those that are asked for meanwhile are not needed afterwards."""
        count = len(self._taken)
        try:
            yield
        finally:
            self._resting += self._taken[count:]
            del self._taken[count:]

    def drop(self, folder: Path) -> None:
        """Drop the schema where more than its rows was changed, or its old content matters. The next store makes it."""
        self.fetch(folder, "DROP SCHEMA IF EXISTS {s} CASCADE")

    def copy(self, folder: Path, to: Path, thread_ids: Iterable[str]) -> None:
        """All rows of these threads, into tables that are there already: afterwards they hold nothing else."""
        (dsn, old), (_, new) = _found(folder), _found(to)
        listed = ", ".join(f'"{thread_id}"' for thread_id in thread_ids)
        self._connected(dsn).execute(_COPY.format(old=old, new=new, threads=listed))

    def fetch(self, folder: Path, statement: str, *arguments: object) -> Sequence[Any]:
        """With `{s}` for the folder's schema."""
        dsn, schema = _found(folder)
        return self._connected(dsn).fetch(statement.replace("{s}", f'"{schema}"'), *arguments)

    def end(self) -> None:
        if POSTGRES_URL in os.environ and self._dsn:  # otherwise the server goes with all that is in it
            sql = self._connected(self._dsn)
            for row in sql.fetch("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)", self._prefix):
                sql.execute(f'DROP SCHEMA "{row[0]}" CASCADE')
        for sql in self._sql.values():
            sql.close()
        self._sql.clear()
        self._dsn = ""
        os.environ.pop(VARIABLE, None)


SCHEMAS = Schemas()
