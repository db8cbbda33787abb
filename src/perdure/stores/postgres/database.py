"""Statements for PostgreSQL: repeated where that is safe, so that a server restart costs time and no work, and combined
where several tasks write at the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from math import inf
from random import random
from typing import Any, Generic, Protocol, TypeVar

from perdure.errors import PerdureError, StorageFailed, StoreUnavailable, UnsupportedId
from perdure.stores.postgres.pool import Lost, NameTooLong, NotText, Pool, Refused, Rolled
from perdure.stores.postgres.schema import in_schema, prepare
from perdure.stores.postgres.urls import redacted_url

T = TypeVar("T")
R = TypeVar("R")

RECONNECT_SECONDS = 15.0
"""How long a statement waits for a server that does not answer: a restart takes a few seconds."""
FIRST_CONNECT_SECONDS = 3.0
_MAX_ROLLBACKS = 20


class Queries(ABC):
    """Statements, with a transaction around them (`PgSession`) or each by itself (`Database`)."""

    @abstractmethod
    def fetch(self, method: str, text: str, values: tuple[Any, ...]) -> Awaitable[Any]: ...

    async def rows(self, text: str, *values: Any) -> list[Any]:
        rows: list[Any] = await self.fetch("fetch", text, values)
        return rows

    async def row(self, text: str, *values: Any) -> Any:
        return await self.fetch("fetchrow", text, values)

    async def value(self, text: str, *values: Any) -> Any:
        return await self.fetch("fetchval", text, values)


class HasDatabase(Protocol):
    """A `PostgresStore`, for the functions that are its methods."""

    db: Database


class OutcomeUnknown(Exception):
    """The connection was lost before the answer: the server may have executed the statement, or not."""


class Database(Queries):
    """One schema of one database, for any number of event loops."""

    def __init__(self, dsn: str, schema: str, pool_size: int, acquire_seconds: float, statement_seconds: float) -> None:
        self.dsn = dsn
        self.schema = schema
        self.name = f"{redacted_url(dsn)} (schema {schema})"
        self._size = pool_size
        self._acquire_seconds = acquire_seconds
        self.statement_seconds = statement_seconds
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._lock = threading.Lock()
        self._is_prepared = False

    def fetch(self, method: str, text: str, values: tuple[Any, ...]) -> Awaitable[Any]:
        """The result of a statement that may run twice: it is sent again until the server answers."""
        return self.retry(lambda: self.once(method, text, values))

    async def once(self, method: str, text: str, values: tuple[Any, ...]) -> Any:
        """Send a statement once. Raises OutcomeUnknown if the server does not answer."""
        pool = await self._pool()
        connection = await pool.take()
        statement = in_schema(text, self.schema)
        try:
            if pool.is_pooled:
                async with connection.transaction():
                    result = await getattr(connection, method)(statement, *values)
            else:
                result = await getattr(connection, method)(statement, *values)
        except BaseException as error:
            self._end_use(pool, connection, error)
            raise
        pool.give_back(connection)
        return result

    def _end_use(self, pool: Pool, connection: Any, error: BaseException) -> None:
        """After an error in a statement. Raises OutcomeUnknown if the server did not answer."""
        pool.give_back_after(connection, error)
        if isinstance(error, Lost) and not isinstance(error, PerdureError):
            is_late = isinstance(error, TimeoutError)
            reason = f"no answer within {self.statement_seconds:g} s" if is_late else _reason(error)
            raise OutcomeUnknown(reason) from error

    @asynccontextmanager
    async def transaction(
        self, isolation: str = "read_committed", *, is_brisk: bool = True
    ) -> AsyncIterator[PgSession]:
        """All or nothing. Raises OutcomeUnknown if the connection is lost. Each statement sees what was committed
        before it began, whatever the server's default isolation is."""
        pool = await self._pool()
        connection = await pool.take()
        try:
            async with connection.transaction(isolation=isolation):
                if is_brisk:  # the server frees the locks of a client that vanishes, before TCP times out
                    idle = int(min(10.0, self.statement_seconds) * 1000)
                    await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {idle}")
                yield PgSession(self.schema, connection)
        except BaseException as error:
            self._end_use(pool, connection, error)
            raise
        pool.give_back(connection)

    async def retry(self, work: Callable[[], Awaitable[T]], *, is_repeatable: bool = True) -> T:
        """Repeat the work until it succeeds. Raises StoreUnavailable if the server does not answer for too long.

        Not `is_repeatable`: for work whose input can be read only once. It is tried once.
        """
        began, deadline, rollbacks = 0.0, None, 0
        while True:
            try:
                return await work()
            except PerdureError:
                raise
            except Rolled as error:
                rollbacks += 1
                if rollbacks > _MAX_ROLLBACKS or not is_repeatable:
                    raise self._rejection(error) from error
                pause = 0.02 * rollbacks * _jitter()
            except (OutcomeUnknown, *Lost) as error:
                if not is_repeatable:
                    reason = f"the connection was lost ({_reason(error)}); check whether the write happened"
                    raise StoreUnavailable("PostgresStore", f"write to {self.name}", reason) from error
                now = time.monotonic()
                if deadline is None:  # a server that never answered is more likely a wrong URL
                    patience = RECONNECT_SECONDS if self._is_prepared else FIRST_CONNECT_SECONDS
                    began, deadline = now, now + patience
                if now >= deadline:
                    reason = f"the server cannot be reached, or does not answer ({_reason(error)})"
                    raise StoreUnavailable("PostgresStore", f"reach {self.name}", reason) from error
                pool = self._pools.get(asyncio.get_running_loop())
                if pool is not None:
                    pool.drop_free()
                pause = min(0.05 + (now - began) / 4, 1.0) * _jitter()
            except Refused as error:
                raise self._rejection(error) from error
            await asyncio.sleep(pause)

    def _rejection(self, error: Exception) -> PerdureError:
        if isinstance(error, NameTooLong):
            return UnsupportedId("id", "...", "it is too long for PostgreSQL")
        if isinstance(error, NotText):
            return UnsupportedId("text", "...", "PostgreSQL stores no text with NUL characters")
        return StorageFailed("PostgresStore", f"use {self.name}", f"{type(error).__name__}: {error}")

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = Pool(self.dsn, self._size, self._acquire_seconds, self.statement_seconds)
            with self._lock:
                self._drop_ended_loops()
                self._pools[loop] = pool
        if not self._is_prepared:
            connection = await pool.take()
            try:
                await prepare(connection, self.schema)
            except BaseException as error:
                pool.give_back_after(connection, error)
                raise
            pool.give_back(connection)
            self._is_prepared = True
        return pool

    async def close(self) -> None:
        with self._lock:
            mine = self._pools.pop(asyncio.get_running_loop(), None)
            self._drop_ended_loops()
        if mine is not None:
            await mine.close()

    def _drop_ended_loops(self) -> None:
        """Their pools closed with them."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            del self._pools[loop]


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _jitter() -> float:
    """Spreads the reconnects of many clients."""
    return 0.5 + random() / 2  # noqa: S311  # nothing secret


class PgSession(Queries):
    """The statements of one transaction."""

    def __init__(self, schema: str, connection: Any) -> None:
        self._schema = schema
        self._connection = connection

    def fetch(self, method: str, text: str, values: tuple[Any, ...]) -> Awaitable[Any]:
        result: Awaitable[Any] = getattr(self._connection, method)(in_schema(text, self._schema), *values)
        return result

    def lock_name(self, thread: object) -> str:
        """The name of a thread's advisory lock, unique among all schemas of the database."""
        return f"{self._schema} {thread}"

    async def many(self, text: str, values: list[tuple[Any, ...]]) -> None:
        await self._connection.executemany(in_schema(text, self._schema), values)


class Batcher(Generic[T, R]):
    """Items that are added while a batch is under way form the next one, in the order of adding. For one event loop.

    A task of its own writes each batch: it is written although a caller is cancelled.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        max_items: float = inf,
        max_seconds: float = inf,
    ) -> None:
        """`write` returns a result for each item. Where so many items wait, or one waits for so long, the next batch
        does not wait for the end of those before."""
        self._write = write
        self._max_items = max_items
        self._max_seconds = max_seconds
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Items that are added meanwhile wait."""
        self._under_way += 1
        try:
            yield
        finally:
            self._end()

    async def add(self, item: T) -> R:
        """The result of the item, once it is written. Raises the error of its batch."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, result))
        if self.is_idle or len(self._waiting) >= self._max_items:
            self._start()
        elif self._max_seconds < inf and self._timer is None:
            self._timer = loop.call_later(self._max_seconds, self._start)
        return await result

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._under_way += 1
        task = asyncio.get_running_loop().create_task(self._write_batch(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  # each caller raises it
            for _, result in batch:
                if not result.done():
                    result.set_exception(error)
        else:
            for (_, result), value in zip(batch, results, strict=True):
                if not result.done():
                    result.set_result(value)
        finally:
            for _, result in batch:
                result.cancel()  # has no effect, unless this task was cancelled
            self._end()

    def _end(self) -> None:
        self._under_way -= 1
        if self._waiting and self.is_idle:
            self._start()
