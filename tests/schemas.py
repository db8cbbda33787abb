"""Schemas of the PostgreSQL that tests share: one for each folder that a store is made over.

A folder leads to its schema in every process. Making the tables takes longer than most tests do, so a schema that a
test has left is emptied and gets the name of the next folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from tests.servers.fixtures import POSTGRES_URL
from tests.servers.postgres import Databases, unique_name
from tests.servers.sql import Sql

VARIABLE, FILE = "HOLDFAST_TESTS_SCHEMAS", ".holdfast-tests-schemas"
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
    AND relname <> 'meta' LOOP EXECUTE format('INSERT INTO "{new}".%I SELECT * FROM "{old}".%I', one, one); END LOOP;
END $$
"""


class Where(NamedTuple):
    dsn: str
    schema: str


def where(folder: Path) -> Where:
    """The schema of a folder. Its tables are made by the first store that uses it, unless there are some to be had."""
    told = os.environ.get(VARIABLE) or SCHEMAS.start() or _told_above(folder)
    prefix, dsn = told.split(" ", 1)
    schema = f"{prefix}_{sha256(os.path.realpath(folder).encode()).hexdigest()[:16]}"
    SCHEMAS.prepare(schema)
    parts = urlsplit(dsn)
    # Whoever still uses a schema is known by this name.
    query = urlencode({**dict(parse_qsl(parts.query)), "application_name": schema})
    return Where(urlunsplit(parts._replace(query=query)), schema)


def _told_above(folder: Path) -> str:
    for one in (folder, *folder.parents):
        if (one / FILE).exists():
            return (one / FILE).read_text(encoding="utf-8")
    raise AssertionError(f"Nobody has said which PostgreSQL {folder} belongs to.")


class Schemas:
    """Those of this process, which are its tests'."""

    def __init__(self) -> None:
        self._server: Callable[[], Databases] | None = None
        self._beside: Path | None = None
        self._prefix = ""
        self._sql: Sql | None = None
        self._taken: list[str] = []
        self._resting: list[str] = []

    def begin(self, server: Callable[[], Databases], beside: Path) -> None:
        """`server` starts one when the first schema is asked for; `beside` is above all folders of tests."""
        self._server, self._beside = server, beside

    def start(self) -> str:
        if self._server is None or self._beside is None:
            return ""
        dsn = self._server().dsn
        self._sql, self._prefix = Sql(dsn), unique_name()
        told = f"{self._prefix} {dsn}"
        os.environ[VARIABLE] = told
        (self._beside / FILE).write_text(told, encoding="utf-8")
        return told

    def prepare(self, schema: str) -> None:
        """Give it empty tables, if some are at rest: those that a killed process may still write to are not."""
        if self._sql is None or schema in self._taken:
            return
        self._taken.append(schema)
        found = {row[0] for row in self._sql.fetch(_FREE, self._resting, schema)} if self._resting else set()
        for old in self._resting if schema not in found else ():
            if old in found:
                self._resting.remove(old)
                try:
                    self._sql.execute(_EMPTY.format(old=old, new=schema))
                except asyncpg.UniqueViolationError:  # another process has just made it
                    self._resting.append(old)
                return

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
        """Where more than its rows was changed, or what it held before matters: whoever comes next makes it anew."""
        self.fetch(folder, "DROP SCHEMA IF EXISTS {s} CASCADE")

    def copy(self, folder: Path, to: Path) -> None:
        """All rows, into tables that are there already."""
        assert self._sql is not None
        self._sql.execute(_COPY.format(old=where(folder).schema, new=where(to).schema))

    def fetch(self, folder: Path, statement: str, *given: object) -> Sequence[Any]:
        """With `{s}` for the folder's schema."""
        schema = where(folder).schema
        assert self._sql is not None
        return self._sql.fetch(statement.replace("{s}", f'"{schema}"'), *given)

    def end(self) -> None:
        if self._sql is None:
            return
        if POSTGRES_URL in os.environ:  # otherwise the server goes with all that is in it
            query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)"
            for row in self._sql.fetch(query, self._prefix):
                self._sql.execute(f'DROP SCHEMA "{row[0]}" CASCADE')
        self._sql.close()
        self._sql = None
        del os.environ[VARIABLE]


SCHEMAS = Schemas()
