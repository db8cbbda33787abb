"""SQL from tests that are not asynchronous, and from fixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
from tests.databases.looping import LoopThread


class Sql:
    """One connection, made when it is first needed. Each statement is a transaction of its own."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = LoopThread()
        self._connection: Any = None

    def execute(self, statement: str) -> None:
        self._loop.run(self._execute(statement))

    def fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        return self._loop.run(self._fetch(query, *arguments))

    def close(self) -> None:
        if self._loop.is_running:
            self._loop.run(self._disconnect())
            self._loop.close()

    async def _execute(self, statement: str) -> None:
        await (await self._connected()).execute(statement)

    async def _fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        rows: Sequence[Any] = await (await self._connected()).fetch(query, *arguments)
        return rows

    async def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()  # without a word: the server may be gone
            self._connection = None

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._dsn)
        return self._connection
