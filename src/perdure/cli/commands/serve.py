"""`perdure serve`: the project in this folder over HTTP; `perdure keys`: the API keys of its users."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.cli.errors import Mistake
from perdure.cli.options import json_option
from perdure.cli.tables import format_age, format_time, iso_time, parse_duration, print_json, print_list, print_result
from perdure.cli.values import make_printable
from perdure.errors import did_you_mean
from perdure.server.auth.api_keys import ID_BYTES, KeyFile, StoredKey, make_key, revoke_key
from perdure.server.auth.principal import MAX_USER_ID_CHARACTERS, check_scopes, is_user_id
from perdure.server.config.files import VARIABLES_INSTEAD_OF_A_FILE, find_file, load_config, read_config
from perdure.server.config.schema import InvalidConfig, ServerConfig


@click.command(short_help="Serve a project over HTTP.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), help="The configuration; by default that of this folder."
)
@click.option("--host", help="The address to listen on; 127.0.0.1 unless the configuration says another.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on; 8000 by default.")
@click.option("--quiet", is_flag=True, help="Print only warnings and errors.")
@json_option
def serve(path: Path | None, host: str | None, port: int | None, quiet: bool, as_json: bool) -> None:
    """Serve the project whose perdure.json, perdure.toml or agentflow.json is here, until Ctrl-C.

    The server resumes interrupted threads. The documentation of all routes is at /docs.
    """
    from perdure.server.uvicorn import serve as serve_config

    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    config = load_config(None if path is None else str(path))
    config = msgspec.structs.replace(config, host=host or config.host, port=port or config.port)

    def announce(address: str, listens_on: int) -> None:
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{listens_on}"
        if as_json:
            print_json({"url": url, "agent": config.agent, "workflows": dict(config.workflows)})
        elif not quiet:
            click.echo(f"Serving {make_printable(config.agent or ', '.join(config.workflows))} at {url}")
        sys.stdout.flush()

    try:
        serve_config(config, tell=announce)
    except OSError as error:
        raise Mistake(f"{error} Is another server there? Choose another --port.") from error


HEADERS = ("ID", "USER", "STANDING", "CREATED", "EXPIRES", "ROLES", "SCOPES", "NAME")


config_option = click.option(
    "--config",
    metavar="PATH",
    help="The configuration of the server, or its folder. By default this folder.",
)


@click.group(short_help="Create, list and revoke API keys.")
def keys() -> None:
    """API keys of a server whose `auth.method` is "api_key". Only their hashes are stored.

    A running server applies each change with its next request.
    """


@keys.command("create", short_help="Create a key.")
@click.argument("user")
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="A role of the user; may be repeated.")
@click.option(
    "--scope", "scopes", metavar="SCOPE", multiple=True, help="A scope of the key; may be repeated. By default all."
)
@click.option(
    "--expires", metavar="DURATION", callback=parse_duration, help="When the key expires: 90d, 12h. By default never."
)
@click.option("--name", metavar="NAME", help="A name for the key, shown in the list.")
@config_option
@json_option
def create(
    user: str,
    roles: tuple[str, ...],
    scopes: tuple[str, ...],
    expires: timedelta | None,
    name: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Create a key for USER and print it, once: only its hash is stored."""
    texts = {"USER": [user], "--role": roles, "--name": [] if name is None else [name]}
    for parameter, values in texts.items():
        if not all(map(is_user_id, values)):
            raise click.UsageError(
                f"{parameter} is a text of 1 to {MAX_USER_ID_CHARACTERS} characters, without control characters."
            )
    try:
        check_scopes(scopes, "--scope")
    except InvalidConfig as problem:
        raise click.UsageError(str(problem)) from None
    project = _project(config)
    now = datetime.now(UTC)
    try:
        ends = None if expires is None else now + expires
    except OverflowError:
        raise click.UsageError("--expires: no such date exists.") from None
    created = make_key(user, created=now, roles=roles, scopes=scopes or None, expires=ends, name=name)
    file = _file(project)
    file.change(lambda keys_before: (*keys_before, created.stored))
    notes = _notes(project, roles)
    if as_json:
        print_json({"key": created.key, **_tree(created.stored, now), "notes": notes})
        return
    click.echo(created.key)
    stored_as = f"Key {created.stored.id} of {user}, stored as a hash in {file.path}. It is not shown again."
    for sentence in (stored_as, *notes):
        _print_note(sentence)


@keys.command("list", short_help="List keys.")
@config_option
@json_option
def list_(config: str | None, as_json: bool) -> None:
    """List keys, the oldest first. Only their hashes are stored, so no key is shown."""
    file, now = _file(_project(config)), datetime.now(UTC)
    stored = file.read().keys
    trees, rows = [_tree(key, now) for key in stored], [_row(key, now) for key in stored]
    print_list(trees, HEADERS, rows, as_json=as_json, nothing="No keys exist. `perdure keys create USER` creates one.")
    if file.is_open_to_others() and not as_json:
        _print_note(f"Warning: others than its owner may read {file.path}: chmod 600 {file.path}")


@keys.command("revoke", short_help="Revoke a key.")
@click.argument("key_id", metavar="ID")
@config_option
@json_option
def revoke(key_id: str, config: str | None, as_json: bool) -> None:
    """Revoke the key ID, at once and for ever. To revoke it again changes nothing."""
    file, now = _file(_project(config)), datetime.now(UTC)
    meant = key_id.removeprefix("pd_")[: 2 * ID_BYTES] if key_id.startswith("pd_") else key_id  # the key itself will do
    try:
        file.change(lambda keys_before: revoke_key(keys_before, meant, now))
    except KeyError:
        ids = [key.id for key in file.read().keys]
        raise Mistake(
            f"No key {meant!r} exists in {file.path}{did_you_mean(meant, ids)}. Nothing was changed. "
            "`perdure keys list` lists them."
        ) from None
    [stored] = [key for key in file.read().keys if key.id == meant]
    sentence = f"Key {stored.id} of {stored.user} is revoked, since {format_time(stored.revoked)}."
    print_result(_tree(stored, now), sentence, as_json=as_json)


def _project(config: str | None) -> ServerConfig:
    """The configuration that names the file of keys, or the default configuration. Raises InvalidConfig."""
    environ = dict(os.environ)  # what its `env` file holds is for servers
    folder = Path(config or ".")
    if (
        folder.is_dir()
        and find_file(folder) is None
        and not any(environ.get(name) for name in VARIABLES_INSTEAD_OF_A_FILE)
    ):
        return ServerConfig(folder=str(folder.absolute()))
    return read_config(config, environ=environ).config


def _file(project: ServerConfig) -> KeyFile:
    return KeyFile(Path(project.folder) / project.auth.keys_file)


def _notes(project: ServerConfig, roles: tuple[str, ...]) -> list[str]:
    """Settings that make the key useless."""
    if project.auth.method != "api_key":
        return [f'Note: the server does not ask for keys: auth.method is "{project.auth.method}", not "api_key".']
    if project.authorization.backend != "rbac":
        return []
    keys_before = project.authorization.roles
    return [
        f"Note: authorization.roles has no role {role!r}{did_you_mean(role, keys_before)}, so the role grants nothing."
        for role in roles
        if role not in keys_before
    ]


def _print_note(sentence: str) -> None:
    """To stderr: stdout is for the key."""
    click.echo(make_printable(sentence), err=True)


def _key_status(key: StoredKey, now: datetime) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.expires is not None and key.expires <= now else "active"


def _row(key: StoredKey, now: datetime) -> tuple[str, ...]:
    scopes = "all" if key.scopes is None else " ".join(key.scopes)
    return (
        *(key.id, key.user, _key_status(key, now), format_age(key.created), format_age(key.expires)),
        *(" ".join(key.roles), scopes, key.name or ""),
    )


def _tree(key: StoredKey, now: datetime) -> dict[str, Any]:
    return {
        "id": key.id,
        "user": key.user,
        "standing": _key_status(key, now),
        "name": key.name,
        "roles": list(key.roles),
        "scopes": None if key.scopes is None else list(key.scopes),
        "created": iso_time(key.created),
        "expires": iso_time(key.expires),
        "revoked": iso_time(key.revoked),
    }
