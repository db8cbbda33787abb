"""Findings of `perdure doctor` for facts that a test cannot cause: old transactions, clocks, lagging standbys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perdure.cli.checks import Finding, check_contents, check_disk, check_postgres, check_version
from perdure.records import StoreContents
from perdure.stores.postgres.health import Connections, Holder, Report, Schema, Server, Standby, Table

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "track_counts": "on",
    "synchronous_standby_names": "",
    "statement_timeout": "0",
}
SERVER = Server("18.1", 180001, "app", False, False, True, SETTINGS, 0, False, 0.0004, 0.0002, 0.0001)
SCHEMA = Schema("perdure", 1, is_there=True, version=1, may_create=True, may_use=True)
THREADS = Table("threads", 0, 1000, 100, 8192, 8192, 5000, 4900, None)
HEALTHY = Report(SERVER, SCHEMA, (THREADS,), StoreContents(threads=1000), connections=Connections(10, 97))


def findings_of(report: Report) -> list[Finding]:
    return list(check_postgres(report, "postgresql://app@db/threads"))


def server(**changes: Any) -> Report:
    return replace(HEALTHY, server=replace(SERVER, **changes))


def schema(**changes: Any) -> Report:
    return replace(HEALTHY, schema=replace(SCHEMA, **changes))


def with_setting(name: str, value: str) -> Report:
    return server(settings={**SETTINGS, name: value})


def holder(state: str, seconds: float, kind: str = "session") -> Report:
    return replace(HEALTHY, holders=(Holder(kind, "42 app", state, seconds),))


def standby(**changes: Any) -> Report:
    return replace(HEALTHY, standbys=(replace(Standby("berlin", "streaming", "async", 1024, 0.1), **changes),))


def test_healthy_server_has_only_ok_marks() -> None:
    assert {finding.mark for finding in findings_of(HEALTHY)} == {"ok"}
    assert not any(finding.remedy for finding in findings_of(HEALTHY))


@pytest.mark.parametrize(
    ("report", "check", "mark", "text"),
    [
        (server(round_trip_seconds=0.08), "connection", "warn", "80 ms a round trip"),
        (server(version="13.9", version_number=130009), "server", "fail", "needs PostgreSQL 14"),
        (server(version="19.0", version_number=190000), "server", "warn", "14 to 18"),
        (server(is_read_only=True), "server", "fail", "default_transaction_read_only"),
        (replace(server(is_standby=True), behind_seconds=90.0), "server", "fail", "a standby, 90.0 s behind"),
        (server(clock_ahead_seconds=4.0), "clock", "warn", "4.0 s ahead of the clock here"),
        (server(clock_ahead_seconds=-300.0), "clock", "warn", "5 min behind the clock here"),
        (server(clock_ahead_seconds=1.5, clock_error_seconds=1.0), "clock", "ok", "1.5 s ahead"),
        (with_setting("fsync", "off"), "settings", "warn", "Set fsync = on"),
        (with_setting("full_page_writes", "off"), "settings", "warn", "Set full_page_writes = on"),
        (with_setting("synchronous_commit", "off"), "settings", "warn", "ALTER ROLE app SET synchronous_commit = on"),
        (with_setting("autovacuum", "off"), "settings", "warn", "grow without end"),
        (with_setting("statement_timeout", "200"), "settings", "warn", "statement_timeout is 200 ms"),
        (with_setting("synchronous_standby_names", "*"), "replication", "warn", "none is connected"),
        (standby(), "replication", "ok", "1 standby: berlin (async) 1.0 KB behind (100 ms)"),
        (standby(behind_seconds=45.0), "replication", "warn", "lost if it takes over"),
        (standby(behind_bytes=10**9), "replication", "warn", "953.7 MB behind"),
        (standby(behind_bytes=None, behind_seconds=None, sync=None), "replication", "ok", "berlin (unknown)"),
        (holder("idle in transaction", 59), "transactions", "ok", "none is long"),
        (holder("idle in transaction", 61), "transactions", "warn", "session 42 app, idle in transaction, for 61.0 s"),
        (holder("active", 500), "transactions", "ok", "none is long"),
        (holder("active", 700), "transactions", "warn", "for 12 min"),
        (holder("prepared", 100, "prepared transaction"), "transactions", "warn", "end it"),
        (holder("inactive", 0, "replication slot"), "transactions", "warn", "replication slot 42 app"),
        (server(hidden_sessions=3), "transactions", "ok", "of 3 sessions it may not (GRANT pg_read_all_stats"),
        (replace(HEALTHY, connections=Connections(90, 97)), "connections", "warn", "pool_size"),
        (replace(HEALTHY, tables=(replace(THREADS, dead_rows=20_000),)), "dead rows", "warn", "VACUUM threads"),
        (replace(HEALTHY, tables=(replace(THREADS, hot_updates=1000),)), "updates", "warn", "only 20 %"),
        (replace(HEALTHY, unanswered={"sizes": "it took long"}), "sizes", "warn", "did not report this: it took long"),
        (schema(version=2), "format", "fail", "Upgrade perdure"),
        (schema(known_version=2), "format", "ok", "the next use upgrades it to 2"),
        (schema(known_version=2, may_upgrade=False), "format", "fail", "Let the owner of the tables"),
        (schema(missing_indexes=("threads_due",)), "indexes", "warn", "threads_due"),
    ],
)
def test_finding_has_its_mark_and_text_and_other_checks_are_ok(
    report: Report, check: str, mark: str, text: str
) -> None:
    [finding] = [finding for finding in findings_of(report) if finding.check == check]
    assert finding.mark == mark
    assert text in f"{finding.text}. {finding.remedy}"
    assert finding.remedy or finding.mark == "ok" or check == "sizes"
    assert {other.mark for other in findings_of(report) if other is not finding and other.check != check} == {"ok"}


def test_suggested_sql_quotes_identifiers() -> None:
    report = replace(schema(name='my "own"', may_use=False), server=replace(SERVER, user="Ada"))
    [finding] = [finding for finding in findings_of(report) if finding.check == "schema"]
    assert finding.remedy.endswith('GRANT USAGE ON SCHEMA "my ""own""" TO "Ada"')


def test_estimated_counts_are_printed_with_about() -> None:
    [threads, _] = check_contents(StoreContents(threads=3, checkpoints=2_000_000, is_estimated=True, owned=1, inbox=2))
    assert threads.text == "3 threads, about 2000000 checkpoints; 1 running; 2 messages in inboxes"


@pytest.mark.parametrize(
    ("free", "used", "mark"),
    [(10**12, 10**9, "ok"), (10**9, 10**6, "warn"), (10**10, 2 * 10**10, "warn"), (10**6, 10**3, "fail")],
)
def test_disk_with_little_space_warns_before_it_fails(free: int, used: int, mark: str) -> None:
    assert check_disk(free, used).mark == mark


def test_format_of_the_same_version_is_ok() -> None:
    assert check_version(2, 2) == Finding("ok", "format", "version 2")
