"""`holdfast doctor`: is a store well, and what it stands on."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import click
import msgspec

from holdfast.cli.amounts import counted, size
from holdfast.cli.file_findings import files_found, sqlite_found
from holdfast.cli.findings import Finding
from holdfast.cli.places import DEFAULT_SCHEMA, REDIS_VARIABLE, find_store, json_option, named_store, store_option
from holdfast.cli.tables import near, print_folded, print_json, print_table
from holdfast.stores.postgres.urls import is_postgres, shown, split_schema
from holdfast.stores.sqlite import SqliteStore

HEADERS = ("TABLE", "ROWS", "DEAD", "SIZE", "INDEXES", "HOT", "VACUUMED")


@click.command(short_help="Look whether a store is well.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option(
    "--redis-url",
    metavar="URL",
    envvar=REDIS_VARIABLE,
    help=f"The Valkey or Redis beside a PostgreSQL. Otherwise ${REDIS_VARIABLE}.",
)
@json_option
@store_option
@click.pass_context
def doctor(context: click.Context, url: str | None, redis_url: str | None, as_json: bool, store: str | None) -> None:
    """Look whether the store can be used, and at what it stands on: server, schema, rights, clock, locks, disk, sizes.

    STORE_URL says which store, as --store does. Nothing is made or changed, and nothing that is stored is read:
    `holdfast verify` does that. The exit code is 1 if something fails, and 0 with warnings.
    """
    found = asyncio.run(_look(url or store, redis_url))
    is_well = all(one.mark != "fail" for one in found.findings)
    if as_json:
        findings = [asdict(one) for one in found.findings]
        print_json({"store": found.shown, "kind": found.kind, "is_well": is_well, "findings": findings, **found.facts})
    else:
        _print(found)
    if not is_well:
        context.exit(1)


class Found(msgspec.Struct):
    """What is told of a store."""

    shown: str
    kind: str
    findings: list[Finding]
    facts: dict[str, Any]
    tables: tuple[Any, ...] = ()
    """Of a PostgreSQL."""


async def _look(url: str | None, redis_url: str | None) -> Found:
    if url is not None and is_postgres(url):
        named_store(url, "STORE_URL")  # raises UsageError
        found = await _look_at_postgres(url)
    else:
        found = _look_at_files(find_store(url, named="STORE_URL", with_keys=False).store)
    if redis_url is not None:
        await _add_valkey(found, redis_url)
    return found


def _look_at_files(store: Any) -> Found:
    if isinstance(store, SqliteStore):
        from holdfast.stores import sqlite_report

        of_file = sqlite_report.look(store.path)
        return Found(str(store.path), "sqlite", sqlite_found(of_file), {"file": msgspec.to_builtins(of_file)})
    from holdfast.stores import file_report

    of_folder = file_report.look(store.path)
    return Found(str(store.path), "file", files_found(of_folder), {"folder": msgspec.to_builtins(of_folder)})


async def _look_at_postgres(url: str) -> Found:
    from holdfast.cli.postgres_findings import postgres_found
    from holdfast.stores.postgres import report as postgres_report
    from holdfast.stores.postgres.refusals import NotReached

    dsn, schema = split_schema(url)
    try:
        report = await postgres_report.look(dsn, schema or DEFAULT_SCHEMA)
    except NotReached as problem:
        failure = Finding("fail", "connection", problem.reason, problem.remedy)
        return Found(shown(url), "postgresql", [failure], {"server": None})
    found = postgres_found(report, shown(dsn))
    return Found(shown(url), "postgresql", found, msgspec.to_builtins(report), report.tables)


async def _add_valkey(found: Found, url: str) -> None:
    from holdfast.cli.postgres_findings import valkey_found
    from holdfast.stores.valkey import report as valkey_report

    try:
        report = await valkey_report.look(url)
    except ValueError as error:
        raise click.UsageError(f"--redis-url: {error}") from None
    found.findings.append(valkey_found(report))
    found.facts["valkey"] = msgspec.to_builtins(report)


def _print(found: Found) -> None:
    rows = [(one.mark, one.check, f"{one.found}. {one.remedy}" if one.remedy else one.found) for one in found.findings]
    print_table(("MARK", "CHECK", "FOUND"), rows)
    if found.tables:
        click.echo()
        print_table(HEADERS, [_table_row(one) for one in found.tables])
        click.echo()
    marks = [one.mark for one in found.findings]
    told = [
        counted(marks.count(mark), word) for mark, word in (("fail", "failure"), ("warn", "warning")) if mark in marks
    ]
    print_folded(f"{counted(len(marks), 'check')}: {' and '.join(told) or 'all is well'}.")


def _table_row(table: Any) -> tuple[str, ...]:
    parts = f" ({counted(table.partitions, 'partition')})" if table.partitions else ""
    return (
        f"{table.name}{parts}",
        str(table.rows),
        str(table.dead_rows),
        size(table.table_bytes),
        size(table.index_bytes),
        f"{table.hot_updates * 100 // table.updates} %" if table.updates else "",
        near(table.vacuumed_at) or "never",
    )
