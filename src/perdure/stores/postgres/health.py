"""The facts that `perdure doctor` reads from a PostgreSQL server, without a judgement.

Each query is a read-only transaction. A query that the user may not run, or that takes too long, stays unanswered.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from perdure.errors import StorageFailed
from perdure.names import RESERVED_THREAD
from perdure.records import StoreContents
from perdure.stores.postgres.pool import CONNECT_SECONDS, Lost, Pool, Refused
from perdure.stores.postgres.rows import thread_key
from perdure.stores.postgres.schema import TABLES, VERSION, find_version, in_schema
from perdure.stores.postgres.urls import explain_unreachable
from perdure.stores.process_identity import is_owner_dead

T = TypeVar("T")
Row = dict[str, Any]

ANSWER_SECONDS = 10.0
"""The limit of one query."""
PROBES = 5
MAX_COUNTED = 1_000_000
"""Rows that are counted; beyond that the report has the server's estimate."""
NAMES = re.findall(r"CREATE TABLE \{s\}\.(\w+)", TABLES)
INDEXES = re.findall(r"CREATE INDEX (\w+)", TABLES)

_SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS version_number,
  current_user::text AS user, pg_is_in_recovery() AS is_standby,
  current_setting('default_transaction_read_only') = 'on' AS is_read_only,
  (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS has_tls,
  (SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user
    AND state IS NULL) AS hidden_sessions
"""
_SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum',
  'track_counts', 'synchronous_standby_names', 'statement_timeout', 'idle_in_transaction_session_timeout')
"""
_SCHEMA = """
SELECT n.oid IS NOT NULL AS is_there,
  CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
    ELSE has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE') END AS may_create,
  COALESCE(has_schema_privilege(n.oid, 'USAGE'), false) AS may_use
FROM (SELECT 1) single LEFT JOIN pg_namespace n ON n.nspname = $1
"""
_MISSING = """
WITH relation AS (SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1),
own AS (SELECT * FROM relation WHERE relkind IN ('r', 'p') AND relname = ANY ($2))
SELECT ARRAY(
    SELECT format('%s on %s', p.name, relname) FROM own, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p (name)
    WHERE NOT has_table_privilege(own.oid, p.name) AND (relname <> 'meta' OR p.name = 'SELECT')
    UNION ALL SELECT 'USAGE on the sequence ' || relname FROM relation
    WHERE CASE WHEN relkind = 'S' AND relname = 'moves' THEN NOT has_sequence_privilege(oid, 'USAGE') END ORDER BY 1
  ) AS rights,
  (SELECT count(*) FROM own WHERE NOT pg_has_role(relowner, 'USAGE')) AS others,
  ARRAY(SELECT name FROM unnest($3::text[]) name WHERE NOT EXISTS (SELECT 1 FROM relation r
    JOIN pg_index i ON i.indexrelid = r.oid WHERE r.relname = name AND i.indisvalid)) AS indexes
"""
"""The privileges that the user lacks, the tables that belong to others, and the indexes that do not exist or are not
valid."""
_TABLES = """
WITH RECURSIVE part AS (
  SELECT c.oid AS root, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname = ANY ($2)
  UNION ALL SELECT part.root, i.inhrelid FROM part JOIN pg_inherits i ON i.inhparent = part.oid
)
SELECT max(r.relname::text) AS name, (count(*) - 1)::int AS partitions,
  sum(CASE WHEN c.relkind = 'p' THEN 0 ELSE GREATEST(c.reltuples, s.n_live_tup, 0) END)::bigint AS rows,
  COALESCE(sum(s.n_dead_tup), 0)::bigint AS dead_rows,
  sum(pg_table_size(c.oid))::bigint AS table_bytes, sum(pg_indexes_size(c.oid))::bigint AS index_bytes,
  COALESCE(sum(s.n_tup_upd), 0)::bigint AS updates, COALESCE(sum(s.n_tup_hot_upd), 0)::bigint AS hot_updates,
  max(GREATEST(s.last_vacuum, s.last_autovacuum)) AS vacuumed_at
FROM part JOIN pg_class c ON c.oid = part.oid JOIN pg_class r ON r.oid = part.root
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
GROUP BY part.root ORDER BY sum(pg_total_relation_size(c.oid)) DESC, 1
"""
_THREADS = """
SELECT count(*) FILTER (WHERE thread <> $1)::bigint AS threads, count(owner)::bigint AS owned,
  count(*) FILTER (WHERE thread = $1) > 0 AS is_encrypted,
  count(*) FILTER (WHERE owner IS NULL AND due_at < clock_timestamp() - interval '1 minute')::bigint AS overdue
FROM {s}.threads
"""
_OWNERS = """
SELECT p.identity, COALESCE(p.leased_until > clock_timestamp(), false) AS is_leased, count(t.thread)::int AS threads
FROM {s}.processes p FULL JOIN (SELECT thread, process FROM {s}.threads WHERE owner IS NOT NULL) t
  ON t.process = p.process
GROUP BY p.process, p.identity, p.leased_until
"""
_COMMITS = "SELECT count(*)::bigint AS commits, count(checkpoint_id)::bigint AS checkpoints FROM {s}.commits"

_ESTIMATED_CHECKPOINTS = """
SELECT COALESCE(sum(c.reltuples), 0)::bigint AS checkpoints
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'i' AND (c.relname = 'commits_checkpoint' OR c.oid IN (SELECT i.inhrelid
  FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = 'commits_checkpoint'))
"""
_WAITING = """
SELECT (SELECT count(*) FROM {s}.requests)::bigint AS requests,
  (SELECT count(*) FROM {s}.requests WHERE deadline < clock_timestamp())::bigint AS late_requests,
  (SELECT count(*) FROM {s}.inbox WHERE body IS NOT NULL AND thread <> $1)::bigint AS inbox
"""
_HOLDERS = """
SELECT 'session' AS kind, concat_ws(' ', pid, usename, NULLIF(application_name, '')) AS name, state,
  extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
UNION ALL
SELECT 'prepared transaction', gid || ' of ' || owner, 'prepared',
  extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'replication slot', slot_name::text, 'inactive', 0 FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
ORDER BY 4 DESC LIMIT 20
"""
_CONNECTIONS = """
SELECT (SELECT COALESCE(sum(numbackends), 0) FROM pg_stat_database)::int AS used,
  (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - COALESCE(current_setting('reserved_connections', true), '0')::int) AS limit
"""
_STANDBYS = """
SELECT COALESCE(NULLIF(application_name, ''), host(client_addr), pid::text) AS name, state, sync_state AS sync,
  pg_wal_lsn_diff(pg_current_wal_lsn(), COALESCE(replay_lsn, flush_lsn))::bigint AS behind_bytes,
  extract(epoch FROM replay_lag)::float8 AS behind_seconds
FROM pg_stat_replication ORDER BY 1
"""
_BEHIND = """
SELECT CASE WHEN pg_last_wal_receive_lsn() IS NOT DISTINCT FROM pg_last_wal_replay_lsn() THEN 0
  ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END::float8 AS seconds
"""


@dataclass(frozen=True)
class Server:
    version: str
    version_number: int
    user: str
    is_standby: bool
    is_read_only: bool
    has_tls: bool | None
    """Between the server and its client, which may be a pooler."""
    settings: dict[str, str]
    hidden_sessions: int
    """Sessions of other users, whose statements this user may not see."""
    is_pooled: bool = False
    round_trip_seconds: float = 0.0
    clock_ahead_seconds: float = 0.0
    """The server's clock, compared with this machine's."""
    clock_error_seconds: float = 0.0


@dataclass(frozen=True)
class Schema:
    name: str
    known_version: int
    """The version that this perdure writes."""
    is_there: bool = False
    version: int = 0
    """0: without tables."""
    foreign: str = ""
    """Why the schema is not perdure's; empty if it is."""
    may_create: bool = False
    """Whether this user may create what is missing."""
    may_use: bool = False
    may_upgrade: bool = True
    missing_rights: tuple[str, ...] = ()
    missing_indexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    name: str
    partitions: int
    rows: int
    """The server's estimate."""
    dead_rows: int
    table_bytes: int
    index_bytes: int
    updates: int
    hot_updates: int
    vacuumed_at: datetime | None


@dataclass(frozen=True)
class Holder:
    """A session, prepared transaction or replication slot that keeps dead rows from being removed."""

    kind: str
    name: str
    state: str
    seconds: float


@dataclass(frozen=True)
class Connections:
    used: int
    limit: int
    """Without the connections that are reserved for other users."""


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
    """The age of the data of a standby."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Queries without an answer, and the reason."""


async def inspect_database(dsn: str, schema: str) -> Report:
    """Raises Unreachable."""
    async with _inspection(dsn, schema) as inspection:
        ask, rows = inspection.ask, inspection.rows
        server, schema_info = await inspection.server(), await inspection.schema()
        tables = contents = behind = standbys = None
        if schema_info.version and not schema_info.foreign and not schema_info.missing_rights:
            tables = await ask("sizes", rows(Table, _TABLES, schema, NAMES))
            contents = await ask("contents", inspection.contents(tables or ()))
        if server.is_standby:
            behind = await ask("replication", inspection.row(Row, _BEHIND))
        else:
            standbys = await ask("replication", rows(Standby, _STANDBYS))
        return Report(
            server,
            schema_info,
            tables or (),
            contents,
            holders=await ask("transactions", rows(Holder, _HOLDERS)) or (),
            connections=await ask("connections", inspection.row(Connections, _CONNECTIONS)),
            standbys=standbys or (),
            behind_seconds=None if behind is None else behind["seconds"],
            unanswered=inspection.unanswered,
        )


async def inspect_schema(dsn: str, schema: str) -> Schema:
    """Enough to know whether a command can use the schema. Raises Unreachable."""
    async with _inspection(dsn, schema) as inspection:
        return await inspection.schema()


@asynccontextmanager
async def _inspection(dsn: str, schema: str) -> AsyncIterator[_Inspection]:
    pool = Pool(dsn, 1, CONNECT_SECONDS, ANSWER_SECONDS)
    try:
        connection = await pool.take()
    except (*Lost, Refused, ValueError) as error:
        await pool.close()
        raise explain_unreachable(error, dsn) from None  # its text may contain parts of the URL
    try:
        yield _Inspection(connection, bool(pool.is_pooled), schema)
    except (*Lost, Refused) as error:
        raise explain_unreachable(error, dsn) from None
    finally:
        pool.drop(connection)
        await pool.close()


class _Inspection:
    """The queries, one by one, on one connection."""

    def __init__(self, connection: Any, is_pooled: bool, schema: str) -> None:
        self._connection = connection
        self._is_pooled = is_pooled
        self._schema = schema
        self.unanswered: dict[str, str] = {}

    async def rows(self, kind: Callable[..., T], text: str, *values: Any) -> tuple[T, ...]:
        """A record of this kind for each row."""
        async with self._connection.transaction(readonly=True):
            rows = await self._connection.fetch(in_schema(text, self._schema), *values)
        return tuple(kind(**row) for row in rows)

    async def row(self, kind: Callable[..., T], text: str, *values: Any) -> T:
        return (await self.rows(kind, text, *values))[0]

    async def ask(self, name: str, query: Awaitable[T]) -> T | None:
        """The answer; None if the server rejects the query, or does not answer in time."""
        try:
            return await query
        except TimeoutError:
            self.unanswered[name] = f"it took more than {ANSWER_SECONDS:g} s"
        except Refused as error:
            self.unanswered[name] = str(error)
        return None

    async def server(self) -> Server:
        server = await self.row(Row, _SERVER)
        settings = {row["name"]: row["setting"] for row in await self.rows(Row, _SETTINGS)}
        connection = self._connection
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
            **server,
            settings=settings,
            is_pooled=self._is_pooled,
            round_trip_seconds=min(trips),
            clock_ahead_seconds=ahead,
            clock_error_seconds=took / 2,
        )

    async def schema(self) -> Schema:
        schema = await self.row(partial(Schema, self._schema, VERSION), _SCHEMA, self._schema)
        if not schema.may_use:
            return schema
        try:
            async with self._connection.transaction(readonly=True):
                version = await find_version(self._connection, self._schema)
        except StorageFailed as error:
            return replace(schema, foreign=str(error))
        except Refused as error:  # the user may not read `meta`
            return replace(schema, version=VERSION, missing_rights=(str(error),))
        if not version:
            return schema
        missing = await self.row(Row, _MISSING, self._schema, NAMES, INDEXES)
        return replace(
            schema,
            version=version,
            may_upgrade=schema.may_create and not missing["others"],
            missing_rights=tuple(missing["rights"]),
            missing_indexes=tuple(missing["indexes"]),
        )

    async def contents(self, tables: Iterable[Table]) -> StoreContents:
        reserved = thread_key(RESERVED_THREAD)
        threads = await self.row(Row, _THREADS, reserved)
        owners = await self.rows(Row, _OWNERS)
        are_dead = [is_owner_dead(owner["identity"], owner["is_leased"]) for owner in owners]
        left_behind = sum(owner["threads"] for owner, is_dead in zip(owners, are_dead, strict=True) if is_dead)
        estimate = next((table.rows for table in tables if table.name == "commits"), 0)
        if estimate <= MAX_COUNTED:
            commits = await self.row(Row, _COMMITS)
        else:
            commits = await self.row(Row, _ESTIMATED_CHECKPOINTS, self._schema)
            commits |= {"commits": estimate, "is_estimated": True}
        threads["owned"] -= left_behind
        counts = threads | commits | await self.row(Row, _WAITING, reserved)
        return StoreContents(**counts, left_behind=left_behind, processes=are_dead.count(False))
