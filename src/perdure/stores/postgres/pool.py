"""Connections to PostgreSQL: the one place that knows asyncpg.

asyncpg's own pool ends each use with a second round trip, and in a task of its own. Nothing here leaves anything behind
in a session that would have to be taken back, so connections are simply handed on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from perdure.errors import MissingExtra, PerdureError, PoolExhausted

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "asyncpg", "postgres") from error

CONNECT_SECONDS = 10.0
READ_BYTES = 64 * 1024
"""Read at once from a connection. asyncio would make room for 256 KB with each answer: a tenth of a commit's time."""

Rolled = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.UniqueViolationError,
)
"""The server undid the statement: it can be sent again. (Of two that bring the same checkpoint id at once, one finds
the other then.)"""

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
    asyncpg.ReadOnlySQLTransactionError,  # it became a standby
)
"""The connection is of no use any more (a time that ran out is an OSError), or there was none: whether the statement
was executed is not known."""

Refused = asyncpg.PostgresError
"""Whatever else the server says."""

NameTooLong = asyncpg.ProgramLimitExceededError

NotText = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)

IdTaken = asyncpg.UniqueViolationError
"""Another commit has the checkpoint's id."""

DataError = asyncpg.DataError
"""What was given cannot be sent: nothing was."""


_FIRST_OWN_TYPE = 16384
"""Below this, the numbers of types are PostgreSQL's own, and the same in every database."""

_known_types: dict[frozenset[int], Any] = {}


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Asks what PostgreSQL's own types are once for all connections: the answer takes the server some milliseconds."""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        known = _known_types.get(asked)
        if known is not None:
            return known, _NO_STATEMENT
        found, statement = await super()._introspect_types(asked, timeout)
        if max(asked) < _FIRST_OWN_TYPE:
            _known_types[asked] = found
        return found, statement


_NO_STATEMENT = SimpleNamespace(name="none")
"""In place of the one that asked: it has a name, so no other was displaced by it."""


class Pool:
    """Connections of one event loop, at most so many. Who waits longest gets the next one."""

    def __init__(self, dsn: str, size: int, acquire_seconds: float, statement_seconds: float) -> None:
        self._dsn = dsn
        self._size = size
        self._acquire_seconds = acquire_seconds
        self._statement_seconds = statement_seconds
        self._free: list[Any] = []
        self._used = 0
        """Those that are taken, or being opened."""
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._is_closed = False
        self._closing: set[asyncio.Future[None]] = set()
        self._at_end: AsyncGenerator[None, None] | None = None
        self.is_pooled: bool | None = None
        """Whether there is a pooler between us and the server, which gives each transaction another session."""

    async def take(self) -> Any:
        """Raises PoolExhausted, or one of `Lost`."""
        connection = None
        if self._used >= self._size or self._waiting:
            connection = await self._wait()  # counted by whoever handed it over
        else:
            self._used += 1
        while connection is None and self._free:
            connection = self._free.pop()  # the one that was used last: the others may rest
            if connection.is_closed():
                connection = None
        return await self._open() if connection is None else connection

    async def _wait(self) -> Any:
        """A connection, or None for the right to open one."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._acquire_seconds):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it came, and nobody is there to take it
                self._hand_on(turn.result())
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                reason = f"all {self._size} connections were in use for {self._acquire_seconds:g} s"
                raise PoolExhausted("PostgresStore", "get a connection", f"{reason}; raise pool_size") from None
            raise

    def _hand_on(self, connection: Any) -> None:
        """To who waits longest; None: the right to open one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        self._used -= 1
        if connection is not None:
            self._free.append(connection)

    async def _open(self) -> Any:
        if self._at_end is None:
            self._at_end = _closing_with_its_loop(self)
            await anext(self._at_end)
        connection = None
        try:
            connection = await self._connect()
            if self.is_pooled is None:
                self.is_pooled = await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
                if self.is_pooled:
                    connection.terminate()
                    connection = await self._connect()
            return connection
        except BaseException:
            if connection is not None:
                connection.terminate()
            self._hand_on(None)
            raise

    async def _connect(self) -> Any:
        # Named statements live in a session, and a pooler gives the next transaction another.
        cached = {"statement_cache_size": 0} if self.is_pooled else {}
        connection = await asyncpg.connect(
            self._dsn,
            timeout=min(CONNECT_SECONDS, self._statement_seconds),
            command_timeout=self._statement_seconds,
            connection_class=_Connection,
            **cached,
        )
        transport = getattr(connection, "_transport", None)
        if transport is not None and hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES
        return connection

    def give_back(self, connection: Any) -> None:
        if connection.is_closed() or self._is_closed or connection.is_in_transaction():
            self.drop(connection)
        else:
            self._hand_on(connection)

    def drop(self, connection: Any) -> None:
        """One of which it is not known where it stands."""
        connection.terminate()
        self._hand_on(None)

    def drop_gently(self, connection: Any) -> None:
        """One whose statement was given up: the server is told so, else it would go on with it."""
        if connection.is_closed():
            self.drop(connection)
            return
        task = asyncio.ensure_future(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._hand_on(None)

    @asynccontextmanager
    async def transaction(self, isolation: str, *, is_brisk: bool) -> AsyncIterator[Any]:
        connection = await self.take()
        try:
            async with connection.transaction(isolation=isolation):
                if is_brisk:  # who vanishes in the middle must not keep what it locked until the network gives up
                    idle = int(min(10.0, self._statement_seconds) * 1000)
                    await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {idle}")
                yield connection
        except (PerdureError, Refused):
            self.give_back(connection)  # it was rolled back
            raise
        except BaseException:  # lost, or cancelled: a BEGIN may still be on its way
            self.drop_gently(connection)
            raise
        self.give_back(connection)

    def forget_free(self) -> None:
        """The server was restarted: whatever was open is of no use."""
        while self._free:
            self._free.pop().terminate()

    async def close(self) -> None:
        """Those that are in use are closed when they are given back."""
        self._is_closed = True
        free, self._free = self._free, []
        await asyncio.gather(*map(_close, free))
        if self._closing:
            await asyncio.wait(self._closing)
        at_end, self._at_end = self._at_end, None
        if at_end is not None:
            await at_end.aclose()


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=2)
    except Lost:
        connection.terminate()


async def _closing_with_its_loop(pool: Pool) -> AsyncGenerator[None, None]:
    """A loop that ends closes its generators first: so connections are closed though nobody closed the store."""
    try:
        yield
    finally:
        pool._at_end = None
        await pool.close()
