"""The findings of `perdure doctor` about a store. Stores report facts; this module judges them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from perdure.errors.wording import format_count, format_size

if TYPE_CHECKING:  # the modules of other stores, and their drivers, are not needed
    from perdure.records import StoreContents
    from perdure.stores.file.health import FileReport
    from perdure.stores.postgres.health import Holder, Report, Schema, Server, Standby, Table
    from perdure.stores.sqlite.health import SqliteReport
    from perdure.stores.valkey.store import ValkeyReport


class Finding(NamedTuple):
    mark: Literal["ok", "warn", "fail"]
    check: str
    text: str
    remedy: str = ""


ok, warn, fail = partial(Finding, "ok"), partial(Finding, "warn"), partial(Finding, "fail")


# ---------------------------------------------------------------- any store


LITTLE_DISK = 1024**3
HARDLY_ANY_DISK = 16 * 1024**2
VERIFY = "`perdure verify` checks every digest and every link"


def check_contents(contents: StoreContents) -> Iterator[Finding]:
    about = "about " if contents.is_estimated else ""
    text = f"{format_count(contents.threads, 'thread')}, {about}{format_count(contents.checkpoints, 'checkpoint')}"
    if contents.owned:
        text += f"; {contents.owned} running"
    if contents.inbox:
        text += f"; {format_count(contents.inbox, 'message')} in inboxes"
    yield ok("threads", text)
    if contents.left_behind:
        text = f"owned by processes that ended: {format_count(contents.left_behind, 'thread')}"
        yield warn("owners", text, "`perdure threads` shows their status, `perdure resume APP THREAD` resumes one")
    if contents.overdue:
        text = f"{format_count(contents.overdue, 'thread')} due for more than a minute"
        yield warn("due", text, "Sleeps, retries and deadlines need a run: `perdure resume APP THREAD`")
    late = f", {contents.late_requests} of them past the deadline" if contents.late_requests else ""
    yield ok("requests", f"{contents.requests} pending{late}")
    if contents.is_encrypted:
        yield ok("encryption", "on: commands need its keys, in PERDURE_KEYS")


def check_disk(free: int, used: int) -> Finding:
    text = f"{format_size(free)} free"
    if free < HARDLY_ANY_DISK:
        return fail("disk", text, "Commits fail when it is full: free space, or move the store")
    if free < max(LITTLE_DISK, used):
        return warn("disk", text, "Free space before commits fail; `perdure prune` removes old checkpoints")
    return ok("disk", text)


def check_version(version: int, known: int, *, may_upgrade: bool = True) -> Finding:
    """Of the format that a store is written in."""
    if version > known:
        text = f"version {version}; this perdure reads up to {known}"
        return fail("format", text, "Upgrade perdure here; an older version changes nothing")
    if version < known and not may_upgrade:
        text = f"version {version}; this user may not upgrade it to {known}"
        return fail("format", text, "Let the owner of the tables use the store once, with this version of perdure")
    return ok("format", f"version {version}" + (f"; the next use upgrades it to {known}" if version < known else ""))


def check_lock(is_locked: bool) -> Finding:
    if not is_locked:
        return ok("lock", "free")
    remedy = "Was a process stopped, or does it hang? No other can write until it continues or ends"
    return warn("lock", "another process held the lock during the whole check", remedy)


# ---------------------------------------------------------------- SQLite and files


def check_sqlite(report: SqliteReport) -> Iterator[Finding]:
    text = f"{report.path}, {format_size(report.file_bytes)}"
    if report.free_pages:
        text += f", {format_size(report.free_pages * report.page_bytes)} of it free"
    if report.log_bytes:
        text += f", and {format_size(report.log_bytes)} in its log"
    yield ok("file", text)
    if report.damage:
        remedy = "Restore it from a backup, or move it away to begin with an empty one"
        yield fail("database", f"it cannot be read: {report.damage}", remedy)
    elif report.foreign:
        yield fail("database", "it is the database of another program", "Name another file")
    elif not report.version:
        yield warn("format", "it is empty: the next use creates the tables")
    else:
        yield check_version(report.version, report.known_version)
    if not report.is_writable:
        text = "the file or its folder is not writable"
        yield fail("rights", text, "Every run writes both: let this user write them")
    yield check_disk(report.free_disk_bytes, report.file_bytes)
    if report.contents is not None:
        is_wal = report.journal_mode == "wal"
        yield ok(
            "journal", "wal: readers never wait" if is_wal else f"{report.journal_mode}: the next use sets it to wal"
        )
        yield check_lock(report.is_locked)
        yield from check_contents(report.contents)
        yield ok("integrity", f"not checked: {VERIFY}")


def check_files(report: FileReport) -> Iterator[Finding]:
    yield ok("folder", f"{report.path}, {format_count(report.files, 'thread')}, {format_size(report.file_bytes)}")
    if report.newer:
        text = f"{_some(report.newer)}: of a newer perdure; this one reads up to version {report.known_version}"
        yield fail("format", text, "Upgrade perdure here; an older version changes nothing")
    else:
        yield ok("format", f"version {report.known_version}")
    if report.unreadable:
        text = f"{_some(report.unreadable)}: the first line names no thread"
        yield fail("files", text, f"Restore them from a backup, or move them away; {VERIFY}")
    if report.shortened:
        text = f"{_some(report.shortened)}: the file is shorter than what was acknowledged"
        yield fail("files", text, f"Commits were lost: restore the files from a backup; {VERIFY}")
    if not report.is_writable:
        yield fail("rights", "the folder is not writable", "Let this user write it")
    yield check_disk(report.free_disk_bytes, report.file_bytes)
    index = report.index
    if index is None:
        yield ok("index", "none: the next use builds it from the files")
    elif index.damage or index.foreign:
        yield warn("index", "damaged: the next use rebuilds it from the files")
    elif not report.is_index_current:
        yield ok("index", "of an earlier start of the machine: the next use rebuilds it from the files")
    else:
        yield ok("index", format_size(index.file_bytes + index.log_bytes))
    yield check_lock(report.is_locked or (index is not None and index.is_locked))
    if index is not None and index.contents is not None:
        yield from check_contents(index.contents)
    yield ok("integrity", f"not checked: {VERIFY}")


def _some(names: Sequence[str], separator: str = ", ") -> str:
    more = len(names) - 3
    return separator.join(names[:3]) + (f" and {more} more" if more > 0 else "")


# ---------------------------------------------------------------- PostgreSQL

OLDEST, NEWEST = 14, 18
"""Versions of PostgreSQL that perdure is made for."""
FAR_AWAY_SECONDS = 0.02
CLOCK_SECONDS = 1.0
BEHIND_SECONDS, BEHIND_BYTES = 30.0, 256 * 1024**2
IDLE_SECONDS, LONG_SECONDS = 60.0, 600.0
"""Seconds after which an idle transaction, and an active one, is reported."""
FULL = 0.8
DEAD_SHARE, DEAD_ROWS = 0.2, 10_000
HOT_SHARE, HOT_UPDATES = 0.5, 1_000
SHORT_TIMEOUT_MS = 1_000
OFF = {
    "fsync": "a crash of its machine may lose what was acknowledged, and damage the database",
    "full_page_writes": "a crash of its machine may damage the database",
    "autovacuum": "dead rows are never removed, and the tables grow without end",
    "track_counts": "autovacuum has no statistics, and the tables grow without end",
}
"""The harm of each setting that is off."""


def check_postgres(report: Report, url: str) -> Iterator[Finding]:
    server = report.server
    yield from _check_server(report, url)
    yield from _check_schema(report.schema, server)
    yield from _check_settings(server)
    if report.standbys or server.settings.get("synchronous_standby_names"):
        yield _check_replication(report.standbys)
    if report.connections is not None:
        text = f"{report.connections.used} of {report.connections.limit} in use"
        if report.connections.used > FULL * report.connections.limit:
            remedy = "Give storages a smaller pool_size, raise max_connections, or put a pooler in between"
            yield warn("connections", text, remedy)
        else:
            yield ok("connections", text)
    yield _check_transactions(report.holders, server)
    if report.tables:
        yield from _check_tables(report.tables)
    if report.contents is not None:
        yield from check_contents(report.contents)
    for name, reason in report.unanswered.items():
        yield warn(name, f"the server did not report this: {reason}")


def _check_server(report: Report, url: str) -> Iterator[Finding]:
    server = report.server
    tls = "" if server.has_tls is None or server.is_pooled else ", with TLS" if server.has_tls else ", without TLS"
    whose = "" if "@" in url else f" as {server.user}"
    text = f"{url}{whose}, {_milliseconds(server.round_trip_seconds)} a round trip{tls}"
    is_far = server.round_trip_seconds > FAR_AWAY_SECONDS
    far_away = warn("connection", text, "Every commit takes at least one: run nearer to the server")
    yield far_away if is_far else ok("connection", text)
    yield _check_usable(report)
    pooled = "yes: statements are sent in transactions and not kept prepared, which takes more round trips"
    yield ok("pooler", pooled if server.is_pooled else "none")
    difference = abs(server.clock_ahead_seconds)
    way = "ahead of" if server.clock_ahead_seconds > 0 else "behind"
    text = f"the clock of the server is {_seconds(difference)} {way} the clock here"
    if difference < max(0.01, server.clock_error_seconds):
        yield ok("clock", "the clocks of the server and this machine agree")
    elif difference - server.clock_error_seconds > CLOCK_SECONDS:
        remedy = "Leases use the clock of the server, sleeps and deadlines the clock here: let both follow NTP"
        yield warn("clock", text, remedy)
    else:
        yield ok("clock", text)


def _check_usable(report: Report) -> Finding:
    server = report.server
    text = f"PostgreSQL {server.version}"
    if server.is_standby:
        behind = "" if report.behind_seconds is None else f", {_seconds(report.behind_seconds)} behind its primary"
        remedy = "Name the primary in the URL, or several hosts with target_session_attrs=read-write"
        return fail("server", f"{text}, a standby{behind}: it is read-only", remedy)
    if server.is_read_only:
        remedy = "default_transaction_read_only is on, for the server, this user or this database: set it to off"
        return fail("server", f"{text}: it is read-only", remedy)
    major = server.version_number // 10_000
    if major < OLDEST:
        return fail("server", text, f"perdure needs PostgreSQL {OLDEST} or newer: upgrade the server")
    if major > NEWEST:
        remedy = f"This perdure was tested with {OLDEST} to {NEWEST}: look for a newer perdure"
        return warn("server", text, remedy)
    return ok("server", text)


def _check_settings(server: Server) -> Iterator[Finding]:
    settings, user = server.settings, _name(server.user)
    harms = {name: harm for name, harm in OFF.items() if settings.get(name) == "off"}
    for name, harm in harms.items():
        yield warn("settings", f"{name} is off: {harm}", f"Set {name} = on")
    is_quick = settings.get("synchronous_commit") == "off"
    if is_quick:
        text = "synchronous_commit is off: a crash of the server may lose the last commits, though acknowledged"
        yield warn("settings", text, f"ALTER ROLE {user} SET synchronous_commit = on")
    is_short = 0 < int(settings.get("statement_timeout", 0)) < SHORT_TIMEOUT_MS
    if is_short:
        text = f"statement_timeout is {settings['statement_timeout']} ms: large commits, lists and pruning may not end"
        yield warn("settings", text, f"ALTER ROLE {user} SET statement_timeout = '30s'")
    if not harms and not is_quick and not is_short:
        yield ok("settings", "fsync, full_page_writes and synchronous_commit keep what was acknowledged")


def _check_replication(standbys: tuple[Standby, ...]) -> Finding:
    if not standbys:
        remedy = "Commits wait for it: start it, or empty synchronous_standby_names"
        return warn("replication", "a synchronous standby is required, and none is connected", remedy)
    notes = []
    for row in standbys:
        behind = "" if row.behind_bytes is None else f" {format_size(max(0, row.behind_bytes))} behind"
        late = "" if row.behind_seconds is None else f" ({_seconds(row.behind_seconds)})"
        notes.append(f"{row.name} ({row.sync or 'unknown'}){behind}{late}")
    text = f"{format_count(len(standbys), 'standby')}: {', '.join(notes)}"
    if any((row.behind_seconds or 0) > BEHIND_SECONDS or (row.behind_bytes or 0) > BEHIND_BYTES for row in standbys):
        return warn("replication", text, "What a standby has not received is lost if it takes over")
    return ok("replication", text)


def _check_transactions(holders: tuple[Holder, ...], server: Server) -> Finding:
    notes = [f"{row.kind} {row.name}, {row.state}, for {_seconds(row.seconds)}" for row in holders if _is_long(row)]
    if notes:
        remedy = "Dead rows stay while it lasts: end it, and set idle_in_transaction_session_timeout"
        return warn("transactions", _some(notes, "; "), remedy)
    hidden = f", as far as this user may see: of {format_count(server.hidden_sessions, 'session')} it may not"
    hint = f"{hidden} (GRANT pg_read_all_stats lets it)" if server.hidden_sessions else ""
    return ok("transactions", f"none is long{hint}")


def _is_long(row: Holder) -> bool:
    if row.kind == "replication slot":
        return True
    return row.seconds > (IDLE_SECONDS if row.state.startswith("idle") or row.state == "prepared" else LONG_SECONDS)


def _check_schema(schema: Schema, server: Server) -> Iterator[Finding]:
    name, user = _name(schema.name), _name(server.user)
    if schema.foreign:
        yield fail("schema", f"{name} is not perdure's: {schema.foreign}", "Name another with ?schema=NAME")
    elif schema.is_there and not schema.may_use:
        remedy = f"Its owner runs: GRANT USAGE ON SCHEMA {name} TO {user}"
        yield fail("schema", f"{name} exists, but {user} may not use it", remedy)
    elif not schema.version and not schema.may_create:
        remedy = f"An administrator runs: CREATE SCHEMA {name} AUTHORIZATION {user}"
        what = "exists without tables" if schema.is_there else "does not exist"
        yield fail("schema", f"{name} {what}, and {user} may not create them", remedy)
    elif not schema.version:
        yield warn("schema", f"{name} does not exist yet: the first use creates it")
    else:
        yield ok("schema", name)
        yield check_version(schema.version, schema.known_version, may_upgrade=schema.may_upgrade)
        if schema.missing_rights:
            rights = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {user}"
            remedy = f"The owner of the tables runs: {rights}; GRANT USAGE ON SEQUENCE {name}.moves TO {user}"
            listed = ", ".join(schema.missing_rights[:4]) + (", ..." if len(schema.missing_rights) > 4 else "")
            yield fail("rights", f"{user} is missing {listed}", remedy)
        if schema.missing_indexes:
            how = "Create them as docs/reference/postgresql.md shows"
            remedy = f"{how}: without them lists and lookups read whole tables"
            yield warn("indexes", f"missing or not valid: {', '.join(schema.missing_indexes)}", remedy)


def _name(name: str) -> str:
    """As SQL writes it."""
    from perdure.stores.postgres.schema import quote_identifier

    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quote_identifier(name)


def _check_tables(tables: tuple[Table, ...]) -> Iterator[Finding]:
    index_bytes = sum(row.index_bytes for row in tables)
    all_bytes = index_bytes + sum(row.table_bytes for row in tables)
    yield ok("size", f"{format_size(all_bytes)}, {format_size(index_bytes)} of it indexes")
    bloated = [row for row in tables if row.dead_rows > max(DEAD_ROWS, DEAD_SHARE * (row.rows + row.dead_rows))]
    for row in bloated:
        remedy = f"Does a long transaction block it? Otherwise: VACUUM {row.name}, and let autovacuum run more often"
        yield warn("dead rows", f"{row.name}: {row.dead_rows} beside {row.rows} live ones", remedy)
    if not bloated:
        yield ok("dead rows", str(sum(row.dead_rows for row in tables)))
    for row in tables:
        if row.name == "threads" and row.updates >= HOT_UPDATES and row.hot_updates < HOT_SHARE * row.updates:
            text = f"only {row.hot_updates * 100 // row.updates} % of the updates of threads stayed within their page"
            remedy = "Was an index added to it, or its fillfactor raised? Or does a long transaction block it?"
            yield warn("updates", text, remedy)


# ---------------------------------------------------------------- Valkey


def check_valkey(report: ValkeyReport) -> Finding:
    if report.problem:
        remedy = "Without it nothing is lost; notifications are slower"
        return warn("valkey", f"{report.address}: {report.problem}", remedy)
    text = f"{report.version} at {report.address}, {_milliseconds(report.round_trip_seconds)} a round trip"
    limit = f" of {format_size(report.limit_bytes)}" if report.limit_bytes else ""
    return ok("valkey", f"{text}, {format_size(report.used_bytes)}{limit} used")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
