"""`perdure doctor`: is a store well, or a project that is to be served, and what it stands on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.cli.doctor.findings import Finding, files_found, sqlite_found
from perdure.cli.options import (
    DEFAULT_SCHEMA,
    REDIS_VARIABLE,
    find_store,
    json_option,
    open_named_store,
    store_option,
)
from perdure.cli.output.tables import format_age, format_count, format_size, print_folded, print_json, print_table
from perdure.stores.postgres.urls import is_postgres, redacted_url, split_schema
from perdure.stores.sqlite.store import SqliteStore

ENVIRONMENT = click.core.ParameterSource.ENVIRONMENT
HEADERS = ("TABLE", "ROWS", "DEAD", "SIZE", "INDEXES", "HOT", "VACUUMED")


@click.command(short_help="Check a store or a project.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option("--config", metavar="PATH", help="A project: its configuration, or the folder that it is in.")
@click.option(
    "--redis-url",
    metavar="URL",
    envvar=REDIS_VARIABLE,
    help=f"The Valkey or Redis beside a PostgreSQL. Otherwise ${REDIS_VARIABLE}.",
)
@json_option
@store_option
@click.pass_context
def doctor(
    context: click.Context, url: str | None, config: str | None, redis_url: str | None, as_json: bool, store: str | None
) -> None:
    """Look whether the store can be used, and at what it stands on: server, schema, rights, clock, locks, disk, sizes.

    STORE_URL says which store, as --store does. With --config, or without any of these in a folder with a
    perdure.json, the project is looked at too: its configuration, what that names, who may come in, its storage.

    Nothing is made or changed, and nothing that is stored is read: `perdure verify` does that. The exit code is 1 if
    something fails, and 0 with warnings.
    """
    if config is not None and (url or store) and context.get_parameter_source("store") != ENVIRONMENT:
        raise click.UsageError("--config names a project, which has a store of its own. Leave the store out.")
    if config is not None or (not (url or store) and _is_project()):
        result = _look_at_project(config, redis_url)
    else:
        result = asyncio.run(_look(url or store, redis_url))
    is_well = all(item.mark != "fail" for item in result.findings)
    if as_json:
        findings = [_finding_tree(item) for item in result.findings]
        print_json(
            {"store": result.shown, "kind": result.kind, "is_well": is_well, "findings": findings, **result.facts}
        )
    else:
        _print(result)
    if not is_well:
        context.exit(1)


class StoreFindings(msgspec.Struct):
    """Findings about a store."""

    shown: str
    kind: str
    findings: list[Finding]
    facts: dict[str, Any]
    tables: tuple[Any, ...] = ()
    """Of a PostgreSQL."""


def _is_project() -> bool:
    from perdure.server.config.files import find_file

    return find_file(Path.cwd()) is not None


def _look_at_project(path: str | None, redis_url: str | None) -> StoreFindings:
    from perdure.cli.doctor.project import project_found

    judged = project_found(path)  # not within an event loop: it imports users' modules
    where = str(Path(path or ".").absolute()) if judged.config is None else judged.config.folder
    result = StoreFindings(where, "project", judged.findings, {"storage": None})
    redis_url = redis_url or (None if judged.config is None else judged.config.redis)
    asyncio.run(_add_storage(result, judged.storage, redis_url))
    return result


async def _add_storage(result: StoreFindings, storage: Any, redis_url: str | None) -> None:
    if storage is not None:
        store = storage.store
        while getattr(store, "inner", None) is not None:  # encryption, and Valkey, are layers over a store
            store = store.inner
        database: Any = getattr(store, "db", None)  # of a PostgreSQL
        has_server = hasattr(database, "dsn")
        of_store = await _look_at_schema(database.dsn, database.schema) if has_server else _look_at_own(store)
        result.findings.extend(of_store.findings)
        result.tables = of_store.tables
        result.facts["storage"] = {"store": of_store.shown, "kind": of_store.kind, **of_store.facts}
    if redis_url is not None:
        await _add_valkey(result, redis_url)


def _look_at_own(store: Any) -> StoreFindings:
    """The store of a project: it need not be there yet."""
    path = getattr(store, "path", None)
    if path is None:
        lost = "in memory: gone when the server stops, and of no use to a second one"
        remedy = "Name a file or a PostgreSQL as `checkpointer`"
        return StoreFindings("memory:", "memory", [Finding("warn", "storage", lost, remedy)], {})
    return (
        _look_at_files(store)
        if Path(path).exists()
        else StoreFindings(str(path), "none", [_to_be_made(Path(path))], {})
    )


def _to_be_made(path: Path) -> Finding:
    if os.access(path.parent, os.W_OK):
        return Finding("ok", "storage", f"{path} is not there yet: the first run makes it")
    return Finding("fail", "storage", f"{path} is not there, and cannot be made", "Give this user the right")


async def _look(url: str | None, redis_url: str | None) -> StoreFindings:
    if url is not None and is_postgres(url):
        open_named_store(url, "STORE_URL")  # raises UsageError
        result = await _look_at_postgres(url)
    else:
        result = _look_at_files(find_store(url, named="STORE_URL", with_keys=False).store)
    if redis_url is not None:
        await _add_valkey(result, redis_url)
    return result


def _look_at_files(store: Any) -> StoreFindings:
    if isinstance(store, SqliteStore):
        from perdure.stores.sqlite import health as sqlite_report

        of_file = sqlite_report.look(store.path)
        return StoreFindings(str(store.path), "sqlite", sqlite_found(of_file), {"file": msgspec.to_builtins(of_file)})
    from perdure.stores.file import health as file_report

    of_folder = file_report.look(store.path)
    return StoreFindings(str(store.path), "file", files_found(of_folder), {"folder": msgspec.to_builtins(of_folder)})


async def _look_at_postgres(url: str) -> StoreFindings:
    dsn, schema = split_schema(url)
    return await _look_at_schema(dsn, schema or DEFAULT_SCHEMA, redacted_url(url))


async def _look_at_schema(dsn: str, schema: str, named: str | None = None) -> StoreFindings:
    from perdure.cli.doctor.postgres import postgres_found
    from perdure.stores.postgres import health as postgres_report
    from perdure.stores.postgres.urls import Unreachable

    named = named or redacted_url(dsn)
    try:
        report = await postgres_report.inspect_database(dsn, schema)
    except Unreachable as problem:
        failure = Finding("fail", "connection", problem.reason, problem.remedy)
        return StoreFindings(named, "postgresql", [failure], {"server": None})
    result = postgres_found(report, redacted_url(dsn))
    return StoreFindings(named, "postgresql", result, msgspec.to_builtins(report), report.tables)


async def _add_valkey(result: StoreFindings, url: str) -> None:
    from perdure.cli.doctor.postgres import valkey_found
    from perdure.stores.valkey import health as valkey_report

    try:
        report = await valkey_report.inspect_server(url)
    except ValueError as error:
        raise click.UsageError(f"--redis-url: {error}") from None
    result.findings.append(valkey_found(report))
    result.facts["valkey"] = msgspec.to_builtins(report)


def _finding_tree(item: Finding) -> dict[str, str]:
    return {"mark": item.mark, "check": item.check, "found": item.text, "remedy": item.remedy}


def _print(result: StoreFindings) -> None:
    rows = [
        (item.mark, item.check, f"{item.text}. {item.remedy}" if item.remedy else item.text) for item in result.findings
    ]
    print_table(("MARK", "CHECK", "FOUND"), rows)
    if result.tables:
        click.echo()
        print_table(HEADERS, [_table_row(item) for item in result.tables])
        click.echo()
    marks = [item.mark for item in result.findings]
    problems = [
        format_count(marks.count(mark), word)
        for mark, word in (("fail", "failure"), ("warn", "warning"))
        if mark in marks
    ]
    print_folded(f"{format_count(len(marks), 'check')}: {' and '.join(problems) or 'all is well'}.")


def _table_row(table: Any) -> tuple[str, ...]:
    parts = f" ({format_count(table.partitions, 'partition')})" if table.partitions else ""
    return (
        f"{table.name}{parts}",
        str(table.rows),
        str(table.dead_rows),
        format_size(table.table_bytes),
        format_size(table.index_bytes),
        f"{table.hot_updates * 100 // table.updates} %" if table.updates else "",
        format_age(table.vacuumed_at) or "never",
    )
