"""Connections to PostgreSQL: the one place that knows asyncpg.

asyncpg's own pool ends each use with a second round trip, and in a task of its own. Nothing here leaves anything behind
in a session that would have to be taken back, so connections are simply handed on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.errors import MissingExtra, PoolExhausted

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "asyncpg", "postgres") from error

CONNECT_SECONDS = 10.0

Rolled = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server undid the statement: it can be sent again."""

Lost = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
)
"""The connection is of no use any more (a time that ran out is an OSError), or there was none: whether the statement
was executed is not known."""

Refused = asyncpg.PostgresError
"""Whatever else the server says."""

NameTooLong = asyncpg.ProgramLimitExceededError

DataError = asyncpg.DataError
"""What was given cannot be sent: nothing was."""


class Pool:
    """Connections of one event loop, at most so many."""

    def __init__(self, dsn: str, size: int, acquire_seconds: float, statement_seconds: float) -> None:
        self._dsn = dsn
        self._size = size
        self._acquire_seconds = acquire_seconds
        self._statement_seconds = statement_seconds
        self._free: list[Any] = []
        self._used: set[Any] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_pooled: bool | None = None
        """Whether there is a pooler between us and the server, which gives each transaction another session."""

    async def take(self) -> Any:
        """Raises PoolExhausted, or one of `Lost`."""
        while True:
            while self._free:
                connection = self._free.pop()  # the one that was used last: the others may rest
                if not connection.is_closed():
                    self._used.add(connection)
                    return connection
            if len(self._used) + self._opening < self._size:
                return await self._open()
            await self._wait()

    async def _open(self) -> Any:
        self._opening += 1
        try:
            # Named statements live in a session, and a pooler gives the next one another.
            cached = {"statement_cache_size": 0} if self.is_pooled else {}
            given = {"timeout": CONNECT_SECONDS, "command_timeout": self._statement_seconds, **cached}
            connection = await asyncpg.connect(self._dsn, **given)
            if self.is_pooled is None:
                self.is_pooled = await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
                if self.is_pooled:
                    connection.terminate()
                    connection = await asyncpg.connect(self._dsn, statement_cache_size=0, **given)
            self._used.add(connection)
            return connection
        finally:
            self._opening -= 1
            self._wake()

    async def _wait(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._acquire_seconds):
                await turn
        except TimeoutError:
            reason = f"all {self._size} connections were in use for {self._acquire_seconds:g} s"
            raise PoolExhausted("PostgresStore", "get a connection", f"{reason}; raise pool_size") from None
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.cancelled() or not turn.done():
                self._wake()  # its turn goes to the next

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def give_back(self, connection: Any) -> None:
        self._used.discard(connection)
        if not connection.is_closed():
            self._free.append(connection)
        self._wake()

    def drop(self, connection: Any) -> None:
        """One of which it is not known where it stands."""
        self._used.discard(connection)
        connection.terminate()
        self._wake()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        connection = await self.take()
        try:
            async with connection.transaction():
                yield connection
        except BaseException:
            if connection.is_closed() or connection.is_in_transaction():
                self.drop(connection)
            else:
                self.give_back(connection)
            raise
        self.give_back(connection)

    def forget_free(self) -> None:
        """The server was restarted: whatever was open is of no use."""
        while self._free:
            self._free.pop().terminate()

    async def close(self) -> None:
        while self._free:
            connection = self._free.pop()
            try:
                await connection.close(timeout=2)
            except Lost:
                connection.terminate()

    def abandon(self) -> None:
        """Its event loop is gone."""
        for connection in (*self._free, *self._used):
            transport = getattr(connection, "_transport", None)
            sock = None if transport is None else transport.get_extra_info("socket")
            if sock is not None:
                sock.close() if hasattr(sock, "close") else None
        self._free.clear()
        self._used.clear()
