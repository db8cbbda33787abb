"""Connections to PostgreSQL: the one place that knows asyncpg.

asyncpg's pool resets a connection after each use, with a second round trip in a separate task. Statements of perdure
leave no state in a session, so this pool does without the reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from types import SimpleNamespace
from typing import Any

from perdure.errors import MissingExtra, PerdureError, PoolExhausted

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("PostgreSQL", "asyncpg", "postgres") from error

CONNECT_SECONDS = 10.0
READ_BYTES = 64 * 1024
"""The read buffer of a connection. asyncio's 256 KB, allocated for each answer, cost a tenth of a commit."""

Rolled = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.UniqueViolationError,
)
"""The server rolled the statement back: it can be sent again. (Of two concurrent statements with the same checkpoint
id, one finds the other in the second attempt.)"""

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
"""The connection is lost, or was never open (a timeout is an OSError). The server may have executed the statement."""

Refused = asyncpg.PostgresError
"""Any error that the server returns."""

NameTooLong = asyncpg.ProgramLimitExceededError

NotText = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)

IdTaken = asyncpg.UniqueViolationError
"""Another commit has the checkpoint's id."""

_FIRST_OWN_TYPE = 16384
"""Type numbers below this are PostgreSQL's own, and the same in every database."""

_types: dict[frozenset[int], Any] = {}


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Reads the definitions of PostgreSQL's own types once for all connections: each read takes some milliseconds."""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        numbers = frozenset(typeoids)
        cached = _types.get(numbers)
        if cached is not None:
            return cached, _NO_STATEMENT
        types, statement = await super()._introspect_types(numbers, timeout)
        if max(numbers) < _FIRST_OWN_TYPE:
            _types[numbers] = types
        return types, statement


_NO_STATEMENT = SimpleNamespace(name="none")
"""Stands for the introspection statement. It has a name, so asyncpg does not replace a prepared statement."""


class Pool:
    """At most `size` connections of one event loop. The task that waits longest gets the next one."""

    def __init__(self, dsn: str, size: int, acquire_seconds: float, statement_seconds: float) -> None:
        self._dsn = dsn
        self._size = size
        self._acquire_seconds = acquire_seconds
        self._statement_seconds = statement_seconds
        self._free: list[Any] = []
        self._used = 0
        """Connections that are taken, or being opened."""
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._is_closed = False
        self._closing: set[asyncio.Future[None]] = set()
        self._at_end: AsyncGenerator[None, None] | None = None
        self.is_pooled: bool | None = None
        """Whether a pooler stands before the server, and gives each transaction another session."""

    async def take(self) -> Any:
        """Raises PoolExhausted, or one of `Lost`."""
        connection = None
        if self._used >= self._size or self._waiting:
            connection = await self._wait()  # counted when it was handed over
        else:
            self._used += 1
        while connection is None and self._free:
            connection = self._free.pop()  # the most recently used one: the others may stay idle
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
            if turn.done() and not turn.cancelled():  # handed over to a task that is cancelled
                self._hand_on(turn.result())
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                reason = f"all {self._size} connections were in use for {self._acquire_seconds:g} s"
                raise PoolExhausted("PostgresStore", "get a connection", f"{reason}; raise pool_size") from None
            raise

    def _hand_on(self, connection: Any) -> None:
        """Give it to the task that waits longest; None: the right to open one."""
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
            self._at_end = _close_with_loop(self)
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
        # Prepared statements belong to a session, and a pooler gives the next transaction another one.
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

    def give_back_after(self, connection: Any, error: BaseException) -> None:
        """Keep the connection only if its state is known after the error."""
        if isinstance(error, PerdureError) or (isinstance(error, Refused) and not isinstance(error, Lost)):
            self.give_back(connection)  # the server answered, and a transaction was rolled back
        elif isinstance(error, TimeoutError) or not isinstance(error, Lost):
            self.drop_gently(connection)  # abandoned: the server may still run the statement
        else:
            self.drop(connection)

    def drop(self, connection: Any) -> None:
        """Terminate a connection in an unknown state."""
        connection.terminate()
        self._hand_on(None)

    def drop_gently(self, connection: Any) -> None:
        """Close a connection whose statement was abandoned, and cancel the statement on the server."""
        if connection.is_closed():
            self.drop(connection)
            return
        task = asyncio.ensure_future(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._hand_on(None)

    def drop_free(self) -> None:
        """Terminate the idle connections: the server was restarted."""
        while self._free:
            self._free.pop().terminate()

    async def close(self) -> None:
        """Close the idle connections. Connections in use are closed when they are given back."""
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


async def _close_with_loop(pool: Pool) -> AsyncGenerator[None, None]:
    """An event loop that ends closes its async generators: this one closes the connections of an unclosed store."""
    try:
        yield
    finally:
        pool._at_end = None
        await pool.close()
