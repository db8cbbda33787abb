"""Runs all that a page shows, in order and with real servers: Python, SQL and commands.

On a page, servers are at `localhost`: `postgresql://[user[:password]@]localhost/database` and `redis://localhost`. Each
database of a page is a database of the test, empty at first. Without a user, or as `postgres`, a session has all
rights. Roles that a page creates are called `perdure_...`.

Console blocks of these pages are recorded runs. `PERDURE_RECORD=1 pytest tests/docs/test_pages.py` writes the current
output of the commands into them. `...` stands for any text.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.databases.postgres import programs
from tests.databases.sql import Sql
from tests.e2e.command import COMMAND, environment
from tests.e2e.recording import COLUMNS, COMMANDS, TIMES, Step, is_as_shown
from tests.e2e.terminal import in_this_terminal

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^\1\2 *$", re.DOTALL | re.MULTILINE
)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+?) -->\s*$")
POSTGRES = re.compile(r"postgresql://(?:(?P<user>\w+)(?::(?P<password>\w+))?@)?localhost/(?P<database>\w+)")
VALKEY = re.compile(r"redis://localhost(?::6379)?(?:/\d+)?")
ROLE = re.compile(r"\bperdure_[a-z]+\b")
NUMBERS = {
    **TIMES,
    r"\bPostgreSQL \d+\.\d+": "PostgreSQL 18.1",
    r"\bValkey \d+\.\d+\.\d+": "Valkey 9.1.0",
    r"\b[\d.]+ ms\b": "0.4 ms",
    r"\b\d+ of \d+ in use": "4 of 97 in use",
}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str
    """The reason why the test does not run it; empty if the test runs it."""
    start: int = 0
    """The position of its code in the page."""


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        marked = NOT_RUN.search(text[: match.start()])
        line = text.count("\n", 0, match.start("code"))
        code = "".join(row.removeprefix(match["indent"]) for row in match["code"].splitlines(keepends=True))
        yield Block(page, line, match["language"], code, marked["reason"] if marked else "", match.start("code"))


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language in {"python", "py"}]


class Server(Protocol):
    """A running PostgreSQL, such as `tests.databases.postgres.Databases`."""

    dsn: str

    def new_database(self) -> str: ...
    def drop_database(self, dsn: str) -> None: ...
    def execute(self, statement: str) -> None: ...


class Servers:
    """The real servers for the names of servers on a page."""

    def __init__(self, postgres: Server | None = None, valkey_url: str = "") -> None:
        self._postgres = postgres
        self._valkey_url = valkey_url
        self._databases: dict[str, str] = {}
        """The dsn of each database, by its name on the page."""
        self.last_database = ""
        """The dsn of the database that the page named last."""
        self._roles: dict[str, str] = {}

    def use_real_servers(self, text: str) -> str:
        """Replace the servers that the page names by the real servers."""
        if self._postgres is not None:
            text = ROLE.sub(lambda match: self._role(match[0]), POSTGRES.sub(self._dsn, text))
        return VALKEY.sub(self._valkey_url, text) if self._valkey_url else text

    def use_page_names(self, text: str) -> str:
        """Replace the real servers by the names of the page."""
        for name, dsn in self._databases.items():
            real = urlsplit(dsn)
            text = text.replace(f"{real.hostname}:{real.port}{real.path}", f"localhost/{name}")
        for name, role in self._roles.items():
            text = text.replace(role, name)
        return text

    def _dsn(self, match: re.Match[str]) -> str:
        assert self._postgres is not None
        dsn = self._databases.get(match["database"])
        if dsn is None:
            dsn = self._databases[match["database"]] = self._postgres.new_database()
        self.last_database = dsn
        if match["user"] in (None, "postgres"):
            return dsn
        real = urlsplit(dsn)
        secret = "" if match["password"] is None else f":{match['password']}"
        return urlunsplit(real._replace(netloc=f"{self._role(match['user'])}{secret}@{real.hostname}:{real.port}"))

    def _role(self, name: str) -> str:
        return self._roles.setdefault(name, f"{name}_{os.getpid()}")

    def close(self) -> None:
        for dsn in self._databases.values():
            assert self._postgres is not None
            self._postgres.drop_database(dsn)
        for role in self._roles.values():
            assert self._postgres is not None
            self._postgres.execute(f"DROP ROLE IF EXISTS {role}")


class Reader:
    """Runs one page in the current folder."""

    def __init__(self, page: Path, servers: Servers, patch: pytest.MonkeyPatch | None = None) -> None:
        self._page = page
        self._servers = servers
        self._patch = patch
        self._names: dict[str, Any] = {"__name__": f"page_{re.sub(r'[^a-z0-9]', '_', page.stem.lower())}"}
        path = f"{COMMAND.parent}{os.pathsep}{programs()}{os.pathsep}{os.environ['PATH']}"
        self._variables = environment(PATH=path)

    async def python(self, block: Block) -> None:
        """Run a block. All blocks of a page share their names."""
        source = "\n" * block.line + self._servers.use_real_servers(
            block.code
        )  # so that tracebacks name the line of the page
        code = compile(source, str(self._page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, self._names)
        else:
            # In a thread: a script has no running loop, and may call asyncio.run itself.
            await asyncio.to_thread(exec, code, self._names)

    async def sql(self, block: Block) -> None:
        """Execute a block in the database that the page named last, with all rights."""
        session = Sql(self._servers.last_database)
        try:
            await asyncio.to_thread(session.execute, self._servers.use_real_servers(block.code))
        finally:
            session.close()

    async def console(self, block: Block) -> str:
        """The block with the current output of its commands. Output that still matches stays as it is written."""
        pieces, at = [], 0
        for match in COMMANDS.finditer(block.code):
            printed = await asyncio.to_thread(self._printed, match["command"])
            if not is_as_shown(Step(match["command"], match["printed"], 0), printed):
                pieces += [block.code[at : match.start("printed")], printed]
                at = match.end()
        return "".join([*pieces, block.code[at:]])

    def _printed(self, command: str) -> str:
        real_command = self._servers.use_real_servers(command)
        if command.startswith("export "):
            name, _, value = real_command.removeprefix("export ").partition("=")
            self._variables[name] = value
            return ""
        if command.startswith("perdure ") and self._patch is not None:
            variables = {name: value for name, value in self._variables.items() if name.startswith("PERDURE")}
            printed = in_this_terminal(self._patch, shlex.split(real_command)[1:], columns=COLUMNS, **variables).text
        else:
            printed = self._in_a_shell(real_command)
        printed = self._servers.use_page_names(printed)
        for pattern, shown in NUMBERS.items():
            printed = re.sub(pattern, shown, printed)
        return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())

    def _in_a_shell(self, command: str) -> str:
        ended = subprocess.run(
            command,
            shell=True,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        return ended.stdout


async def run_page(page: Path, servers: Servers | None = None) -> None:
    """Run the Python blocks of one page, in order."""
    reader = Reader(page, servers or Servers())
    for block in python_blocks(page):
        if not block.not_run:
            await reader.python(block)


async def follow(page: Path, text: str, servers: Servers, patch: pytest.MonkeyPatch) -> str:
    """Run all blocks of one page, in order. Returns its text with the current output of its commands."""
    reader, moved = Reader(page, servers, patch), 0
    for block in blocks_of(page):
        if block.not_run:
            continue
        if block.language in ("python", "py"):
            await reader.python(block)
        elif block.language == "sql":
            await reader.sql(block)
        elif block.language == "console":
            now = await reader.console(block)
            start = block.start + moved
            text = text[:start] + now + text[start + len(block.code) :]
            moved += len(now) - len(block.code)
    return text
