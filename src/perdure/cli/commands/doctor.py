"""`perdure doctor`: checks of a store, or of a project, and of what they depend on."""

from __future__ import annotations

import asyncio
import os
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.checks import Finding, check_files, check_postgres, check_sqlite, check_valkey, fail, ok, warn
from perdure.cli.options import REDIS_VARIABLE, find_store, open_named_store, output_and_store_options
from perdure.cli.tables import format_age, print_folded, print_json, print_table
from perdure.errors import PerdureError
from perdure.errors.wording import format_count, format_size
from perdure.server.config.files import find_file, read_config
from perdure.server.config.schema import InvalidConfig, ServerConfig
from perdure.stores.file import health as file_health
from perdure.stores.postgres.urls import Unreachable, is_postgres, redacted_url
from perdure.stores.sqlite import health as sqlite_health
from perdure.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:  # it loads agents, which a store does not need
    from perdure.server.registry import Project

PACKAGES = ("litestar", "uvicorn")
"""The packages that a server needs."""
ENVIRONMENT = click.core.ParameterSource.ENVIRONMENT
HEADERS = ("TABLE", "ROWS", "DEAD", "SIZE", "INDEXES", "HOT", "VACUUMED")


@click.command(short_help="Check a store or a project.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option("--config", metavar="PATH", help="The configuration of a project, or its folder.")
@click.option(
    "--redis-url",
    metavar="URL",
    envvar=REDIS_VARIABLE,
    help=f"The Valkey or Redis beside a PostgreSQL. Otherwise ${REDIS_VARIABLE}.",
)
@output_and_store_options
@click.pass_context
def doctor(
    context: click.Context, url: str | None, config: str | None, redis_url: str | None, as_json: bool, store: str | None
) -> None:
    """Check whether the store works: server, schema, rights, clock, locks, disk, sizes.

    STORE_URL names the store, as --store does. With --config, or without a store in a folder with a perdure.json, the
    command also checks the project: its configuration, the objects that it names, access, its storage.

    The command creates and changes nothing, and reads no stored payload: `perdure verify` does. The exit code is 1 if
    a check fails, and 0 with warnings.
    """
    if config is not None and (url or store) and context.get_parameter_source("store") != ENVIRONMENT:
        raise click.UsageError("--config names a project, which names its own store. Leave the store out.")
    if config is not None or (not (url or store) and find_file(Path.cwd()) is not None):
        result = examine_project(config, redis_url)
    else:
        result = asyncio.run(examine_store(url or store, redis_url))
    is_well = all(item.mark != "fail" for item in result.findings)
    if as_json:
        findings = [
            {"mark": item.mark, "check": item.check, "found": item.text, "remedy": item.remedy}
            for item in result.findings
        ]
        print_json(
            {"store": result.place, "kind": result.kind, "is_well": is_well, "findings": findings, **result.facts}
        )
    else:
        _print(result)
    if not is_well:
        context.exit(1)


class Examination(msgspec.Struct):
    """The findings about a store or a project."""

    place: str
    kind: str
    findings: list[Finding]
    facts: dict[str, Any]
    tables: tuple[Any, ...] = ()
    """Of a PostgreSQL."""


async def examine_store(url: str | None, redis_url: str | None) -> Examination:
    if url is not None and is_postgres(url):  # reachable or not
        result = await _examine(open_named_store(url, "STORE_URL").store)
        result.place = redacted_url(url)
    else:
        result = await _examine(find_store(url, named="STORE_URL", with_keys=False).store)
    if redis_url is not None:
        await _add_valkey(result, redis_url)
    return result


async def _examine(store: Any) -> Examination:
    while getattr(store, "inner", None) is not None:  # encryption, and Valkey, are layers over a store
        store = store.inner
    database: Any = getattr(store, "db", None)  # of a PostgreSQL
    if hasattr(database, "dsn"):
        return await _examine_postgres(database.dsn, database.schema)
    return _examine_files(store)


def _examine_files(store: Any) -> Examination:
    """Those of a project need not be there yet."""
    path = getattr(store, "path", None)
    if path is None:
        lost = "in memory: lost when the server stops, and not shared with a second server"
        finding = warn("storage", lost, "Name a file or a PostgreSQL as `checkpointer`")
        return Examination("memory:", "memory", [finding], {})
    if not Path(path).exists():
        finding = ok("storage", f"{path} does not exist yet: the first run creates it")
        if not os.access(Path(path).parent, os.W_OK):
            text, remedy = f"{path} does not exist and cannot be created", "Let this user write its folder"
            finding = fail("storage", text, remedy)
        return Examination(str(path), "none", [finding], {})
    if isinstance(store, SqliteStore):
        file = sqlite_health.look(path)
        return Examination(str(path), "sqlite", list(check_sqlite(file)), {"file": msgspec.to_builtins(file)})
    folder = file_health.look(path)
    return Examination(str(path), "file", list(check_files(folder)), {"folder": msgspec.to_builtins(folder)})


async def _examine_postgres(dsn: str, schema: str) -> Examination:
    from perdure.stores.postgres.health import inspect_database

    place = redacted_url(dsn)
    try:
        report = await inspect_database(dsn, schema)
    except Unreachable as problem:
        failure = fail("connection", problem.reason, problem.remedy)
        return Examination(place, "postgresql", [failure], {"server": None})
    findings = list(check_postgres(report, place))
    return Examination(place, "postgresql", findings, msgspec.to_builtins(report), report.tables)


async def _add_valkey(result: Examination, url: str) -> None:
    from perdure.stores.valkey.store import inspect_server

    try:
        report = await inspect_server(url)
    except ValueError as error:
        raise click.UsageError(f"--redis-url: {error}") from None
    result.findings.append(check_valkey(report))
    result.facts["valkey"] = msgspec.to_builtins(report)


def examine_project(path: str | None, redis_url: str | None) -> Examination:
    """Not within an event loop: it imports users' modules. A configuration that cannot be read ends the check."""
    result = Examination(str(Path(path or ".").absolute()), "project", [], {"storage": None})
    storage = None
    try:
        config, file, warnings = read_config(path)
    except InvalidConfig as error:
        result.findings += [fail("configuration", str(item).rstrip(".")) for item in error.problems]
    else:
        result.place = config.folder
        result.findings.append(ok("configuration", "the environment alone" if file is None else str(file)))
        result.findings += [warn("configuration", item.rstrip(".")) for item in warnings]
        storage = _check_project(config, result.findings)
        redis_url = redis_url or config.redis
    asyncio.run(_add_storage(result, storage, redis_url))
    return result


def _check_project(config: ServerConfig, findings: list[Finding]) -> Any:
    """Add the findings about all but the storage. Returns the storage, to be examined like any other."""
    from perdure.server.factory import make_storage
    from perdure.server.registry import Project, Registry

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        findings.append(
            fail("packages", f"{' and '.join(missing)} cannot be imported", "pip install 'perdure[server]'")
        )
    else:
        findings.append(ok("packages", "those of the server are installed"))
    project = Project(config.folder)
    storage = None
    try:
        registry = Registry.of(config, project)
        for item in registry.values():
            default = ", the default" if item is registry.default else ""
            findings.append(ok("workflow", f"{item.name}: {item.path}{default}"))
        storage = make_storage(config, project, registry)
    except (PerdureError, ValueError) as error:
        findings.append(fail("project", str(error).rstrip(".")))
    findings += [_check_auth(config, project, storage), _check_port(config)]
    return storage


def _check_auth(config: ServerConfig, project: Project, storage: Any) -> Finding:
    from perdure.server.factory import check_exposure, make_authenticator, make_authorizer

    try:
        make_authenticator(config, project.import_object, os.environ)
        make_authorizer(config, project.import_object)
        check_exposure(config, storage)
    except (PerdureError, ValueError) as error:
        return fail("auth", str(error).rstrip("."))
    method = config.auth.method
    if method == "none":
        return ok("auth", f"none: only this machine reaches {config.host}")
    if method == "api_key" and not (Path(config.folder) / config.auth.keys_file).is_file():
        return warn("auth", "api_key, and no key exists yet", "`perdure keys create USER` creates one")
    return ok("auth", method)


def _check_port(config: ServerConfig) -> Finding:
    from perdure.server.factory import is_loopback

    if config.port == 0:
        return ok("port", "any free port")
    place = f"{config.host}, port {config.port}"
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does: a port in TIME_WAIT can be used
        try:
            probe.bind((config.host.strip("[]"), config.port))
        except OSError as error:
            remedy = "Unless the server itself uses it, choose another: PERDURE_PORT, or `port`"
            return warn("port", f"{place}: {(error.strerror or str(error)).lower()}", remedy)
    reach = "this machine alone reaches it" if is_loopback(config.host) else "other machines reach it"
    return ok("port", f"{place} is free; {reach}")


async def _add_storage(result: Examination, storage: Any, redis_url: str | None) -> None:
    if storage is not None:
        own = await _examine(storage.store)
        result.findings.extend(own.findings)
        result.tables = own.tables
        result.facts["storage"] = {"store": own.place, "kind": own.kind, **own.facts}
    if redis_url is not None:
        await _add_valkey(result, redis_url)


def _print(result: Examination) -> None:
    findings = result.findings
    rows = [(item.mark, item.check, f"{item.text}. {item.remedy}" if item.remedy else item.text) for item in findings]
    print_table(("MARK", "CHECK", "FOUND"), rows)
    if result.tables:
        click.echo()
        print_table(HEADERS, [_table_row(item) for item in result.tables])
        click.echo()
    marks = [item.mark for item in findings]
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
