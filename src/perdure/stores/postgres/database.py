"""Statements sent to PostgreSQL, again where that is safe: a server that restarts costs time, not work."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import random
from typing import Any, Protocol, TypeVar
from uuid import UUID

from perdure.errors import PerdureError, StorageFailed, StoreUnavailable, UnsupportedId
from perdure.log import get_logger
from perdure.records import Lease
from perdure.stores.postgres.pool import DataError, Lost, NameTooLong, NotText, Pool, Refused, Rolled
from perdure.stores.postgres.rows import key_of
from perdure.stores.postgres.schema import in_schema, prepare
from perdure.stores.postgres.urls import shown
from perdure.stores.process_identity import LEASE_SECONDS, RENEW_SECONDS, this_process, to_json

T = TypeVar("T")

RECONNECT_SECONDS = 15.0
"""How long a server that is away is waited for: a restart takes a few seconds."""
FIRST_CONNECT_SECONDS = 3.0
_MOST_ROLLED_BACK = 20


class Unknown(Exception):
    """The connection was lost while a statement was on its way: it was executed, or it was not."""


class Database:
    """One schema of one database, from any number of event loops."""

    def __init__(self, dsn: str, schema: str, pool_size: int, acquire_seconds: float, statement_seconds: float) -> None:
        self.dsn = dsn
        self.schema = schema
        self.name = f"{shown(dsn)} (schema {schema})"
        self._size = pool_size
        self._acquire_seconds = acquire_seconds
        self.statement_seconds = statement_seconds
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._lock = threading.Lock()
        self._is_prepared = False
        self._texts: dict[str, str] = {}

    def sql(self, text: str) -> str:
        """With `{s}` for the schema. The text of a statement is what it is known by: it is made once."""
        made = self._texts.get(text)
        if made is None:
            made = self._texts[text] = in_schema(text, self.schema)
        return made

    # ------------------------------------------------------------ single statements

    async def rows(self, text: str, *given: Any) -> list[Any]:
        """Of a statement that does the same if it is executed twice: it is sent again until it was answered."""
        return await self.again(lambda: self.once("fetch", text, given))

    async def row(self, text: str, *given: Any) -> Any:
        return await self.again(lambda: self.once("fetchrow", text, given))

    async def value(self, text: str, *given: Any) -> Any:
        return await self.again(lambda: self.once("fetchval", text, given))

    async def once(self, method: str, text: str, given: tuple[Any, ...]) -> Any:
        """Sent once. Raises Unknown if it was sent and not answered."""
        pool = await self._pool()
        connection = await pool.take()
        statement = self.sql(text)
        try:
            if pool.is_pooled:
                async with connection.transaction():
                    found = await getattr(connection, method)(statement, *given)
            else:
                found = await getattr(connection, method)(statement, *given)
        except DataError:
            pool.give_back(connection)
            raise
        except TimeoutError as error:  # the server is still at it, and is told to leave it
            pool.drop_gently(connection)
            raise Unknown(f"no answer within {self.statement_seconds:g} s") from error
        except Lost as error:
            pool.drop(connection)
            raise Unknown(str(error) or type(error).__name__) from error
        except Refused:
            pool.give_back(connection)
            raise
        except BaseException:  # cancelled: the server may still be at it
            pool.drop_gently(connection)
            raise
        pool.give_back(connection)
        return found

    @asynccontextmanager
    async def transaction(
        self, isolation: str = "read_committed", *, is_brisk: bool = True
    ) -> AsyncIterator[PgSession]:
        """All or nothing. Raises Unknown if it is not known which. Each statement sees what is there when it begins,
        whatever the server's default is."""
        pool = await self._pool()
        try:
            async with pool.transaction(isolation, is_brisk=is_brisk) as connection:
                yield PgSession(self, connection)
        except (PerdureError, DataError):
            raise
        except Lost as error:
            raise Unknown(str(error) or type(error).__name__) from error

    @asynccontextmanager
    async def single_transaction(self) -> AsyncIterator[PgSession]:
        """One that cannot be repeated: what it writes can be read only once. Raises StoreUnavailable, StorageFailed."""
        try:
            async with self.transaction(is_brisk=False) as session:  # whoever gives what is written chooses the pace
                yield session
        except (Unknown, *Lost) as error:
            if isinstance(error, PerdureError):
                raise
            if isinstance(error, DataError):
                raise self._refused(error) from error
            reason = f"the connection was lost ({str(error) or type(error).__name__}); look whether it was done"
            raise StoreUnavailable("PostgresStore", f"write to {self.name}", reason) from error
        except Refused as error:
            raise self._refused(error) from error

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Until it comes to an end. Raises StoreUnavailable when the server was away for too long."""
        began, deadline = 0.0, None
        rolled_back = 0
        while True:
            try:
                return await work()
            except Rolled as error:
                rolled_back += 1
                if rolled_back > _MOST_ROLLED_BACK:
                    raise StorageFailed("PostgresStore", f"use {self.name}", str(error)) from error
                pause = 0.02 * rolled_back * _jitter()
            except (Unknown, *Lost) as error:
                if isinstance(error, DataError):
                    raise self._refused(error) from error
                now = time.monotonic()
                if deadline is None:  # one that was never there is more likely to be named wrongly
                    patience = RECONNECT_SECONDS if self._is_prepared else FIRST_CONNECT_SECONDS
                    began, deadline = now, now + patience
                if isinstance(error, PerdureError) or now >= deadline:
                    raise self._unavailable(error) from error
                self._forget_connections()
                pause = min(0.05 + (now - began) / 4, 1.0) * _jitter()
            except Refused as error:
                raise self._refused(error) from error
            await asyncio.sleep(pause)

    def _refused(self, error: Exception) -> PerdureError:
        if isinstance(error, NameTooLong):
            return UnsupportedId("id", "...", "it is too long for PostgreSQL")
        if isinstance(error, NotText):
            return UnsupportedId("text", "...", "PostgreSQL keeps no text with a NUL in it")
        return StorageFailed("PostgresStore", f"use {self.name}", f"{type(error).__name__}: {error}")

    def _unavailable(self, error: Exception) -> PerdureError:
        if isinstance(error, PerdureError):
            return error
        reason = f"the server cannot be reached, or does not answer ({str(error) or type(error).__name__})"
        return StoreUnavailable("PostgresStore", f"reach {self.name}", reason)

    # ------------------------------------------------------------ pools

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = Pool(self.dsn, self._size, self._acquire_seconds, self.statement_seconds)
            with self._lock:
                self._forget_ended_loops()
                self._pools[loop] = pool
        if not self._is_prepared:
            async with self._prepared(pool) as connection:
                await prepare(connection, self.schema)
            self._is_prepared = True
        return pool

    @asynccontextmanager
    async def _prepared(self, pool: Pool) -> AsyncIterator[Any]:
        connection = await pool.take()
        try:
            yield connection
        except BaseException:
            pool.drop(connection)
            raise
        pool.give_back(connection)

    def _forget_connections(self) -> None:
        pool = self._pools.get(asyncio.get_running_loop())
        if pool is not None:
            pool.forget_free()

    async def close(self) -> None:
        with self._lock:
            mine = self._pools.pop(asyncio.get_running_loop(), None)
            self._forget_ended_loops()
        if mine is not None:
            await mine.close()

    def _forget_ended_loops(self) -> None:
        """Their pools were closed with them."""
        for loop in [one for one in self._pools if one.is_closed()]:
            del self._pools[loop]


def _jitter() -> float:
    """So that not all who were cut off come back at the same instant."""
    return 0.5 + random() / 2  # noqa: S311  # nothing secret


class PgSession:
    """Within a transaction."""

    def lock_name(self, thread: object) -> str:
        """Of a thread, among all schemas of the database."""
        return f"{self._database.schema} {thread}"

    def __init__(self, database: Database, connection: Any) -> None:
        self._database = database
        self._connection = connection

    async def rows(self, text: str, *given: Any) -> list[Any]:
        found: list[Any] = await self._connection.fetch(self._database.sql(text), *given)
        return found

    async def row(self, text: str, *given: Any) -> Any:
        return await self._connection.fetchrow(self._database.sql(text), *given)

    async def value(self, text: str, *given: Any) -> Any:
        return await self._connection.fetchval(self._database.sql(text), *given)

    async def many(self, text: str, given: list[tuple[Any, ...]]) -> None:
        await self._connection.executemany(self._database.sql(text), given)


# ---------------------------------------------------------------- heartbeat


logger = get_logger("stores")

_LEASED = f"clock_timestamp() + interval '{LEASE_SECONDS:g} seconds'"

RENEW = (
    f"INSERT INTO {{s}}.processes (process, identity, leased_until) VALUES ($1, $2, {_LEASED})"
    " ON CONFLICT (process) DO UPDATE SET leased_until = excluded.leased_until"
)

RELEASE = """
UPDATE {s}.threads SET owner = NULL, process = NULL WHERE thread = $1 AND owner = $2
  AND fence = $3
RETURNING cardinality(forgotten) > 0 OR silent_swept < silent_before
"""


class Owner(Protocol):
    """What the heartbeat looks at."""

    db: Database
    held: dict[Lease, Any]
    unreleased: dict[tuple[str, str], tuple[int | None, float]]


def own_process() -> tuple[UUID, str]:
    identity = to_json(this_process())
    return key_of(identity), identity


class Heartbeat:
    """Says every few seconds that this process lives, while it owns threads: from a thread and a connection of its own,
    so that an event loop that is busy for long does not lose what it owns."""

    def __init__(self, owning: Owner) -> None:
        self._owning = weakref.ref(owning)
        self._given = (owning.db.dsn, owning.db.schema)
        self._thread: threading.Thread | None = None
        self._at_work: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._lock = threading.Lock()

    @property
    def is_beating(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """For a thread that is held from now on."""
        with self._lock:
            if not self.is_beating:  # also in a process that was forked off
                self._at_work = None
                self._thread = threading.Thread(target=self._live, name="perdure-postgres-heartbeat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            (thread, self._thread), at_work = (self._thread, None), self._at_work
            if at_work is not None:
                try:
                    at_work[0].call_soon_threadsafe(at_work[1].cancel)
                except RuntimeError:
                    pass  # it has just ended
        if thread is not None:
            thread.join(timeout=5)

    def _live(self) -> None:
        try:
            asyncio.run(self._beat_on())
        except asyncio.CancelledError:
            pass

    async def _beat_on(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # it is run as one
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # it was stopped before it had begun
            self._at_work = asyncio.get_running_loop(), task
        database = Database(*self._given, 1, LEASE_SECONDS, RENEW_SECONDS)
        try:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                if not self._goes_on():
                    return
                try:
                    await self._beat(database)
                except PerdureError as error:
                    logger.warning("the lease of this process could not be renewed: %s", error)
        finally:
            await database.close()

    def _goes_on(self) -> bool:
        """Ends by itself where nothing is held any more."""
        owning = self._owning()
        with self._lock:
            if self._thread is threading.current_thread():
                if owning is not None and (owning.held or owning.unreleased):
                    return True
                self._thread = None
            return False

    async def _beat(self, database: Database) -> None:
        await database.value(RENEW, *own_process())
        owning = self._owning()
        if owning is not None:
            for claim, left in [*owning.unreleased.items()]:
                if await self._is_given_up(database, owning, claim, left) and owning.unreleased.get(claim) is left:
                    del owning.unreleased[claim]

    async def _is_given_up(
        self, database: Database, owning: Owner, claim: tuple[str, str], left: tuple[int | None, float]
    ) -> bool:
        (thread_id, owner), (fence, until) = claim, left
        key = key_of(thread_id)
        if fence is None:
            fence = await database.value("SELECT fence FROM {s}.threads WHERE thread = $1 AND owner = $2", key, owner)
        if fence is None:
            return time.monotonic() > until
        if owning.unreleased.get(claim) is left:  # else it was opened again
            await database.value(RELEASE, key, owner, fence)
        return True
