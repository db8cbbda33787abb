"""A store in PostgreSQL, and the Valkey beside it, judged."""

from __future__ import annotations

import re

from perdure.cli.doctor.findings import Finding, contents_found, version_found
from perdure.cli.output.tables import format_count, format_size
from perdure.stores.postgres.health import Connections, Holder, Report, Schema, Server, Standby, Table
from perdure.stores.postgres.schema import quote_identifier
from perdure.stores.valkey.health import ValkeyReport

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
    "track_counts": "autovacuum does not know what to do, and the tables grow without end",
}
"""What it means that a setting is off."""


def postgres_found(report: Report, shown: str) -> list[Finding]:
    server, schema = report.server, report.schema
    findings = [_connection(server, shown), _server(report), _pooler(server), _clock(server), *_schema(schema, server)]
    findings += _settings(server)
    if report.standbys or server.settings.get("synchronous_standby_names"):
        findings.append(_replication(report.standbys))
    if report.connections is not None:
        findings.append(_connections(report.connections))
    findings.append(_holders(report.holders, server))
    if report.tables:
        findings += [_sizes(report.tables), *_vacuum(report.tables)]
    if report.contents is not None:
        findings += contents_found(report.contents)
    for name, reason in report.unanswered.items():
        findings.append(Finding("warn", name, f"the server did not report this: {reason}"))
    return findings


# ---------------------------------------------------------------- the server


def _connection(server: Server, shown: str) -> Finding:
    tls = "" if server.has_tls is None or server.is_pooled else ", with TLS" if server.has_tls else ", without TLS"
    whose = "" if "@" in shown else f" as {server.user}"
    text = f"{shown}{whose}, {_milliseconds(server.round_trip_seconds)} a round trip{tls}"
    if server.round_trip_seconds > FAR_AWAY_SECONDS:
        remedy = "Every commit takes at least one: run nearer to the server"
        return Finding("warn", "connection", text, remedy)
    return Finding("ok", "connection", text)


def _server(report: Report) -> Finding:
    server = report.server
    major = server.version_number // 10_000
    text = f"PostgreSQL {server.version}"
    if server.is_standby:
        behind = "" if report.behind_seconds is None else f", {_seconds(report.behind_seconds)} behind its primary"
        remedy = "Name the primary in the URL, or several hosts with target_session_attrs=read-write"
        return Finding("fail", "server", f"{text}, a standby{behind}: it may only be read", remedy)
    if server.is_read_only:
        remedy = "default_transaction_read_only is on, for the server, this user or this database: set it to off"
        return Finding("fail", "server", f"{text}: it may only be read", remedy)
    if major < OLDEST:
        return Finding("fail", "server", text, f"perdure needs PostgreSQL {OLDEST} or newer: upgrade the server")
    if major > NEWEST:
        remedy = f"Newer than what this perdure was tried with ({OLDEST} to {NEWEST}): see whether there is a newer one"
        return Finding("warn", "server", text, remedy)
    return Finding("ok", "server", text)


def _pooler(server: Server) -> Finding:
    if server.is_pooled:
        text = "there is one: statements are sent in transactions and not kept prepared, which takes more round trips"
        return Finding("ok", "pooler", text)
    return Finding("ok", "pooler", "none")


def _clock(server: Server) -> Finding:
    difference = abs(server.clock_ahead_seconds)
    if difference < max(0.01, server.clock_error_seconds):
        return Finding("ok", "clock", "that of the server and the one here agree")
    way = "ahead of" if server.clock_ahead_seconds > 0 else "behind"
    text = f"that of the server is {_seconds(difference)} {way} the one here"
    if difference - server.clock_error_seconds > CLOCK_SECONDS:
        remedy = "Leases go by the server's, sleeps and deadlines by the one here: let both follow NTP"
        return Finding("warn", "clock", text, remedy)
    return Finding("ok", "clock", text)


def _settings(server: Server) -> list[Finding]:
    settings, user = server.settings, _name(server.user)
    wrong = [
        Finding("warn", "settings", f"{name} is off: {harm}", f"Set {name} = on")
        for name, harm in OFF.items()
        if settings.get(name) == "off"
    ]
    if settings.get("synchronous_commit") == "off":
        text = "synchronous_commit is off: a crash of the server may lose the last commits, though acknowledged"
        wrong.append(Finding("warn", "settings", text, f"ALTER ROLE {user} SET synchronous_commit = on"))
    if 0 < int(settings.get("statement_timeout", 0)) < SHORT_TIMEOUT_MS:
        text = f"statement_timeout is {settings['statement_timeout']} ms: large commits, lists and pruning may not end"
        wrong.append(Finding("warn", "settings", text, f"ALTER ROLE {user} SET statement_timeout = '30s'"))
    return wrong or [
        Finding("ok", "settings", "fsync, full_page_writes and synchronous_commit keep what was acknowledged")
    ]


def _replication(standbys: tuple[Standby, ...]) -> Finding:
    if not standbys:
        remedy = "Commits wait until one is there: start it, or empty synchronous_standby_names"
        return Finding("warn", "replication", "a synchronous standby is asked for, and none is there", remedy)
    notes, is_late = [], False
    for row in standbys:
        behind = "" if row.behind_bytes is None else f" {format_size(max(0, row.behind_bytes))} behind"
        late = "" if row.behind_seconds is None else f" ({_seconds(row.behind_seconds)})"
        notes.append(f"{row.name} ({row.sync or 'unknown'}){behind}{late}")
        is_late = is_late or (row.behind_seconds or 0) > BEHIND_SECONDS or (row.behind_bytes or 0) > BEHIND_BYTES
    text = f"{format_count(len(standbys), 'standby')}: {', '.join(notes)}"
    if is_late:
        return Finding("warn", "replication", text, "What a standby has not received is lost if it takes over")
    return Finding("ok", "replication", text)


def _connections(connections: Connections) -> Finding:
    text = f"{connections.used} of {connections.limit} in use"
    if connections.used > FULL * connections.limit:
        remedy = "Give storages a smaller pool_size, raise max_connections, or put a pooler in between"
        return Finding("warn", "connections", text, remedy)
    return Finding("ok", "connections", text)


def _holders(holders: tuple[Holder, ...], server: Server) -> Finding:
    notes = [f"{row.kind} {row.name}, {row.state}, for {_seconds(row.seconds)}" for row in holders if _is_long(row)]
    if notes:
        more = f" and {len(notes) - 3} more" if len(notes) > 3 else ""
        remedy = "Dead rows stay while it lasts: end it, and set idle_in_transaction_session_timeout"
        return Finding("warn", "transactions", "; ".join(notes[:3]) + more, remedy)
    text = "none is long"
    if server.hidden_sessions:
        text += f", as far as this user may see: of {format_count(server.hidden_sessions, 'session')} it may not"
        return Finding("ok", "transactions", f"{text} (GRANT pg_read_all_stats lets it)")
    return Finding("ok", "transactions", text)


def _is_long(row: Holder) -> bool:
    if row.kind == "replication slot":
        return True
    return row.seconds > (IDLE_SECONDS if row.state.startswith("idle") or row.state == "prepared" else LONG_SECONDS)


# ---------------------------------------------------------------- our tables


def _schema(schema: Schema, server: Server) -> list[Finding]:
    name, user = _name(schema.name), _name(server.user)
    if schema.foreign:
        return [
            Finding("fail", "schema", f"{name} is not perdure's: {schema.foreign}", "Name another with ?schema=NAME")
        ]
    if schema.is_there and not schema.may_use:
        remedy = f"Its owner runs: GRANT USAGE ON SCHEMA {name} TO {user}"
        return [Finding("fail", "schema", f"{name} is there, and {user} may not use it", remedy)]
    if not schema.version and not schema.may_create:
        remedy = f"An administrator runs: CREATE SCHEMA {name} AUTHORIZATION {user}"
        what = "there, without tables" if schema.is_there else "not there"
        return [Finding("fail", "schema", f"{name} is {what}, and {user} may not make them", remedy)]
    if not schema.version:
        return [Finding("warn", "schema", f"{name} is not made yet: the first use makes it")]
    findings = [Finding("ok", "schema", name)]
    findings.append(version_found(schema.version, schema.known_version, may_upgrade=schema.may_upgrade))
    if schema.missing_rights:
        rights = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {user}"
        remedy = f"The owner of the tables runs: {rights}; GRANT USAGE ON SEQUENCE {name}.moves TO {user}"
        shown = ", ".join(schema.missing_rights[:4]) + (", ..." if len(schema.missing_rights) > 4 else "")
        findings.append(Finding("fail", "rights", f"{user} is missing {shown}", remedy))
    if schema.missing_indexes:
        remedy = (
            "Make them as docs/reference/postgresql.md shows them: without them lists and lookups read whole tables"
        )
        findings.append(
            Finding("warn", "indexes", f"missing or not valid: {', '.join(schema.missing_indexes)}", remedy)
        )
    return findings


def _name(name: str) -> str:
    """As one writes it in SQL."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quote_identifier(name)


def _sizes(tables: tuple[Table, ...]) -> Finding:
    all_of_it = sum(row.table_bytes + row.index_bytes for row in tables)
    return Finding(
        "ok", "size", f"{format_size(all_of_it)}, {format_size(sum(row.index_bytes for row in tables))} of it indexes"
    )


def _vacuum(tables: tuple[Table, ...]) -> list[Finding]:
    bloated = [row for row in tables if row.dead_rows > max(DEAD_ROWS, DEAD_SHARE * (row.rows + row.dead_rows))]
    findings = [
        Finding(
            "warn",
            "dead rows",
            f"{row.name}: {row.dead_rows} beside {row.rows} that live",
            f"Is a long transaction in the way? Otherwise: VACUUM {row.name}, and let autovacuum come more often",
        )
        for row in bloated
    ]
    if not findings:
        dead = sum(row.dead_rows for row in tables)
        findings.append(Finding("ok", "dead rows", str(dead)))
    for row in tables:
        if row.name == "threads" and row.updates >= HOT_UPDATES and row.hot_updates < HOT_SHARE * row.updates:
            text = f"only {row.hot_updates * 100 // row.updates} % of the updates of threads stayed within their page"
            remedy = "Was an index added to it, or its fillfactor raised? Or is a long transaction in the way?"
            findings.append(Finding("warn", "updates", text, remedy))
    return findings


# ---------------------------------------------------------------- Valkey


def valkey_found(report: ValkeyReport) -> Finding:
    if report.problem:
        remedy = "Nothing is lost or wrong without it, only slower"
        return Finding("warn", "valkey", f"{report.address}: {report.problem}", remedy)
    text = f"{report.version} at {report.address}, {_milliseconds(report.round_trip_seconds)} a round trip"
    limit = f" of {format_size(report.limit_bytes)}" if report.limit_bytes else ""
    return Finding("ok", "valkey", f"{text}, {format_size(report.used_bytes)}{limit} used")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
