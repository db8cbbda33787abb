"""What `perdure doctor` asks a PostgreSQL: facts, without a judgement.

Nothing is made or changed: each question is a transaction that may only read. What the user may not see, or what takes
too long, stays unanswered, and the rest is told.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from perdure.errors import StorageFailed
from perdure.names import RESERVED_THREAD
from perdure.stores.health import StoreContents, is_owner_dead
from perdure.stores.postgres import health_queries as ask
from perdure.stores.postgres.pool import CONNECT_SECONDS, Lost, Pool, Refused
from perdure.stores.postgres.rows import thread_key
from perdure.stores.postgres.schema import TABLES, VERSION, find_version, quoted
from perdure.stores.postgres.urls import explain_unreachable

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""What takes longer to find out is not found out."""
PROBES = 5
MOST_COUNTED = 1_000_000
"""Rows. Of more, the server's own estimate is told."""
NAMES = re.findall(r"CREATE TABLE \{s\}\.(\w+)", TABLES)
INDEXES = re.findall(r"CREATE INDEX (\w+)", TABLES)


@dataclass(frozen=True)
class Server:
    version: str
    version_number: int
    user: str
    database: str
    is_standby: bool
    is_read_only: bool
    has_tls: bool | None
    """Between the server and whoever talks to it, which may be a pooler."""
    settings: dict[str, str]
    hidden_sessions: int
    """Sessions of others, of which this user may not see what they do."""
    is_pooled: bool = False
    round_trip_seconds: float = 0.0
    clock_ahead_seconds: float = 0.0
    """The server's clock, compared with the one here."""
    clock_error_seconds: float = 0.0


@dataclass(frozen=True)
class Schema:
    name: str
    known_version: int
    """What this perdure writes."""
    is_there: bool = False
    version: int = 0
    """0: no tables yet."""
    foreign: str = ""
    """Why it is none of ours, if it is not."""
    may_create: bool = False
    """Whether this user may make what is missing."""
    may_use: bool = False
    may_upgrade: bool = True
    missing_rights: tuple[str, ...] = ()
    missing_indexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    name: str
    partitions: int
    rows: int
    """As the server estimates."""
    dead_rows: int
    table_bytes: int
    index_bytes: int
    updates: int
    hot_updates: int
    vacuumed_at: datetime | None


@dataclass(frozen=True)
class Holder:
    """Something that keeps dead rows from being removed."""

    kind: str
    """`session`, `prepared transaction` or `replication slot`."""
    name: str
    state: str
    seconds: float


@dataclass(frozen=True)
class Connections:
    used: int
    limit: int
    """For this user: what is reserved for others is left out."""


@dataclass(frozen=True)
class Standby:
    name: str
    state: str | None
    sync: str | None
    behind_bytes: int | None
    behind_seconds: float | None


@dataclass(frozen=True)
class Report:
    server: Server
    schema: Schema
    tables: tuple[Table, ...] = ()
    contents: StoreContents | None = None
    holders: tuple[Holder, ...] = ()
    connections: Connections | None = None
    standbys: tuple[Standby, ...] = ()
    behind_seconds: float | None = None
    """Of a standby: how old what it shows is."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """What was asked, and why there is no answer."""


async def look(dsn: str, schema: str) -> Report:
    """Raises NotReached."""
    async with _session(dsn) as session:
        looking = Looking(session, schema)
        server = await looking.server()
        found = await looking.schema()
        is_usable = found.version and not found.foreign and not found.missing_rights
        tables = await looking.ask("sizes", looking.tables) if is_usable else None
        return Report(
            server,
            found,
            tables or (),
            await looking.ask("contents", looking.contents) if is_usable else None,
            holders=await looking.ask("transactions", looking.holders) or (),
            connections=await looking.ask("connections", looking.connections),
            standbys=() if server.is_standby else await looking.ask("replication", looking.standbys) or (),
            behind_seconds=await looking.ask("replication", looking.behind) if server.is_standby else None,
            unanswered=looking.unanswered,
        )


async def look_at_schema(dsn: str, schema: str) -> Schema:
    """Only that: enough to know whether a command can use it. Raises NotReached."""
    async with _session(dsn) as session:
        return await Looking(session, schema).schema()


class HealthSession:
    """One connection, for reading."""

    def __init__(self, connection: Any, is_pooled: bool) -> None:
        self.connection = connection
        self.is_pooled = is_pooled

    async def rows(self, text: str, *given: Any) -> list[Any]:
        async with self.connection.transaction(readonly=True):
            found: list[Any] = await self.connection.fetch(text, *given)
            return found

    async def row(self, text: str, *given: Any) -> Any:
        return (await self.rows(text, *given))[0]


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[HealthSession]:
    pool = Pool(dsn, 1, CONNECT_SECONDS, ANSWER_SECONDS)
    try:
        connection = await pool.take()
    except (*Lost, Refused, ValueError) as error:
        await pool.close()
        raise explain_unreachable(error, dsn) from None  # what it says may hold parts of the URL
    try:
        yield HealthSession(connection, bool(pool.is_pooled))
    except (*Lost, Refused) as error:
        raise explain_unreachable(error, dsn) from None
    finally:
        pool.drop(connection)
        await pool.close()


class Looking:
    """The questions, one by one."""

    def __init__(self, session: HealthSession, schema: str) -> None:
        self._session = session
        self._schema = schema
        self.unanswered: dict[str, str] = {}

    def _sql(self, text: str) -> str:
        return text.replace("{s}", quoted(self._schema))

    async def ask(self, name: str, question: Callable[[], Awaitable[T]]) -> T | None:
        """None for what the server does not say, or not in time."""
        try:
            return await question()
        except TimeoutError:
            self.unanswered[name] = f"it took more than {ANSWER_SECONDS:g} s"
        except Refused as error:
            self.unanswered[name] = str(error)
        return None

    # ------------------------------------------------------------ the server

    async def server(self) -> Server:
        row = await self._session.row(ask.SERVER)
        settings = {one["name"]: one["setting"] for one in await self._session.rows(ask.SETTINGS)}
        connection = self._session.connection
        trips, clocks = [], []
        async with connection.transaction(readonly=True):
            for _ in range(PROBES):
                started = time.perf_counter()
                await connection.execute("SELECT 1")  # always one round trip
                trips.append(time.perf_counter() - started)
                before, started = time.time(), time.perf_counter()
                now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
                took = time.perf_counter() - started
                clocks.append((took, now - before - took / 2))
        took, ahead = min(clocks)
        return Server(
            **row,
            settings=settings,
            is_pooled=self._session.is_pooled,
            round_trip_seconds=min(trips),
            clock_ahead_seconds=ahead,
            clock_error_seconds=took / 2,
        )

    async def holders(self) -> tuple[Holder, ...]:
        return tuple(Holder(**row) for row in await self._session.rows(ask.HOLDERS))

    async def connections(self) -> Connections:
        return Connections(**await self._session.row(ask.CONNECTIONS))

    async def standbys(self) -> tuple[Standby, ...]:
        return tuple(Standby(**row) for row in await self._session.rows(ask.STANDBYS))

    async def behind(self) -> float | None:
        found: float | None = (await self._session.row(ask.BEHIND))["seconds"]
        return found

    # ------------------------------------------------------------ our tables

    async def schema(self) -> Schema:
        row = await self._session.row(ask.SCHEMA, self._schema)
        found = Schema(self._schema, VERSION, **row)
        if not found.may_use:
            return found
        try:
            async with self._session.connection.transaction(readonly=True):
                version = await find_version(self._session.connection, self._schema)
        except StorageFailed as error:
            return replace(found, foreign=str(error))
        except Refused as error:  # `meta` may not be read
            return replace(found, version=VERSION, missing_rights=(str(error),))
        if not version:
            return found
        missing = await self._session.rows(ask.RIGHTS, self._schema, NAMES)
        others = await self._session.row(ask.OWNED_BY_OTHERS, self._schema, NAMES)
        there = {one["name"] for one in await self._session.rows(ask.INDEXES, self._schema)}
        return replace(
            found,
            version=version,
            may_upgrade=found.may_create and not others["count"],
            missing_rights=tuple(one["missing"] for one in missing),
            missing_indexes=tuple(name for name in INDEXES if name not in there),
        )

    async def tables(self) -> tuple[Table, ...]:
        return tuple(Table(**row) for row in await self._session.rows(ask.TABLES, self._schema, NAMES))

    async def contents(self) -> StoreContents:
        reserved = thread_key(RESERVED_THREAD)
        threads = await self._session.row(self._sql(ask.THREADS), reserved)
        owners = await self._session.rows(self._sql(ask.OWNERS))
        gone = [is_owner_dead(one["identity"], one["is_leased"]) for one in owners]
        left_behind = sum(one["threads"] for one, is_dead in zip(owners, gone, strict=True) if is_dead)
        return StoreContents(
            threads=threads["threads"],
            owned=threads["owned"] - left_behind,
            left_behind=left_behind,
            overdue=threads["overdue"],
            **await self._commits(),
            **await self._session.row(self._sql(ask.WAITING), reserved),
            processes=gone.count(False),
            is_encrypted=threads["is_encrypted"],
        )

    async def _commits(self) -> dict[str, Any]:
        (estimate,) = [one.rows for one in await self.tables() if one.name == "commits"]
        if estimate <= MOST_COUNTED:
            return dict(await self._session.row(self._sql(ask.COMMITS)))
        checkpoints = (await self._session.row(ask.ESTIMATED_CHECKPOINTS, self._schema))["count"]
        return {"commits": estimate, "checkpoints": checkpoints, "is_estimated": True}
