"""`perdure workflows`: definitions of workflows of agents that a store keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

import click

from perdure.agent_workflow.documents.convert import config_for, tree_of
from perdure.agent_workflow.store import DefinitionInfo, DefinitionStore, StoredDefinition
from perdure.cli.options.app import built, load_app, load_definition
from perdure.cli.options.confirm import confirm, yes_option
from perdure.cli.options.store import (
    StoreLocation,
    complete_definitions,
    existing_store,
    find_store,
    json_option,
    sessions_option,
    store_option,
)
from perdure.cli.output.checkpoint import print_facts, print_title
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import exact, moment, near, print_json, print_table
from perdure.cli.output.values import printable
from perdure.errors import DefinitionNotFound, InvalidDefinition, MissingExtra
from perdure.workflows.workflow import Workflow

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Found = TypeVar("Found")
FACTS = ("name", "version", "number", "created_at", "updated_at", "description")


def name_argument(command: Decorated) -> Decorated:
    return click.argument("name", metavar="NAME", shell_complete=complete_definitions)(command)


@click.group(short_help="Keep definitions of workflows of agents.")
def workflows() -> None:
    """Definitions of workflows of agents that a store keeps: `perdure run NAME` runs the newest version of one."""


@workflows.command("list", short_help="List definitions.")
@json_option
@store_option
def list_(as_json: bool, store: str | None) -> None:
    """List definitions, each with its newest version."""

    async def read() -> list[DefinitionInfo]:
        async with existing_store(store) as storage:
            return await DefinitionStore(storage).list()

    found = asyncio.run(read())
    damaged = [one for one in found if one.problem is not None]
    if as_json:
        print_json([_tree(one) for one in found])
    elif not found:
        click.echo("There are no definitions.")
    else:
        readable = [one for one in found if one.problem is None]
        rows = [
            (one.name, one.version, str(one.number), near(one.updated_at), one.description or "") for one in readable
        ]
        print_table(("NAME", "VERSION", "NUMBER", "SAVED", "DESCRIPTION"), rows)
    if damaged:
        raise Mistake("\n".join(f"Definition {one.name!r} cannot be read: {one.problem}." for one in damaged))


@workflows.command("show", short_help="Show a definition.")
@name_argument
@click.option(
    "--version", metavar="VERSION", help="Which one, by its number or its authors' name; otherwise the newest."
)
@json_option
@store_option
def show(name: str, version: str | None, as_json: bool, store: str | None) -> None:
    """Show the definition NAME, as a document, and its versions."""

    async def read() -> tuple[StoredDefinition, list[DefinitionInfo]]:
        async with existing_store(store) as storage:
            definitions = DefinitionStore(storage)
            return await load_definition(definitions, name, version), await definitions.versions(name)

    found, versions = _read(read())
    if as_json:
        print_json({**_tree(found), "config": tree_of(found.config), "versions": [_tree(one) for one in versions]})
        return
    print_facts(
        {
            "definition": found.name,
            "version": f"{found.version} (number {found.number} of {len(versions)})",
            "created": moment(found.created_at),
            "saved": moment(found.updated_at),
            "description": found.description or "",
        }
    )
    if len(versions) > 1:
        print_title("versions")
        print_table(
            ("NUMBER", "VERSION", "SAVED"), [(str(one.number), one.version, near(one.updated_at)) for one in versions]
        )
    print_title("document")
    click.echo(printable(_written(found)))


@workflows.command("save", short_help="Keep a definition.")
@click.argument("app")
@sessions_option
@json_option
@store_option
def save(app: str, sessions: str | None, as_json: bool, store: str | None) -> None:
    """Keep the definition of APP, a document or a workflow of agents in a module, under the name that it has.

    It is checked first. One that has not changed since it was saved makes no new version.
    """
    workflow = load_app(app, store)
    if isinstance(workflow, Workflow):
        raise click.UsageError(f"{app!r} is a workflow, but not one of agents: it has no definition to keep.")

    async def keep() -> tuple[StoredDefinition, int]:
        async with find_store(store, may_be_new=True) as storage:
            instance = built(workflow, storage, StoreLocation(app, "", store, sessions))
            definitions = DefinitionStore(storage)
            try:
                before = (await definitions.load(instance.name)).number
            except (DefinitionNotFound, InvalidDefinition):
                before = 0
            return await definitions.save(config_for(workflow._draft)), before

    found, before = asyncio.run(keep())
    if as_json:
        print_json({**_tree(found), "is_new": found.number != before})
    elif found.number == before:
        click.echo(f"Definition {found.name} has not changed: it is version {found.version}, number {found.number}.")
    else:
        click.echo(f"Definition {found.name} is kept: version {found.version}, number {found.number}.")


@workflows.command("delete", short_help="Delete a definition.")
@name_argument
@yes_option
@json_option
@store_option
def delete(name: str, yes: bool, as_json: bool, store: str | None) -> None:
    """Delete the definition NAME with all its versions. Its executions stay."""

    async def look() -> int:
        async with existing_store(store) as storage:
            definitions = DefinitionStore(storage)
            infos = {one.name: one for one in await definitions.list()}
            if name not in infos:
                raise DefinitionNotFound(name, infos)
            return infos[name].number

    async def remove() -> bool:
        async with existing_store(store) as storage:
            return await DefinitionStore(storage).delete(name)

    count = _read(look())
    versions = {0: "which cannot be read", 1: "with its only version"}.get(count, f"with its {count} versions")
    confirm(f"Definition {name} is deleted, {versions}. Is that meant?", yes=yes)
    is_deleted = asyncio.run(remove())
    if as_json:
        print_json({"name": name, "is_deleted": is_deleted})
    else:
        click.echo(
            f"Definition {name} is gone. Its executions stay." if is_deleted else f"There was no {name} any more."
        )


# ---------------------------------------------------------------- what they have in common


def _read(reading: Coroutine[Any, Any, Found]) -> Found:
    """Raises Mistake where there is no such definition."""
    try:
        return asyncio.run(reading)
    except DefinitionNotFound as problem:
        said = str(problem).partition(" DefinitionStore(")[0]
        raise Mistake(f"{said} `perdure workflows list` lists them.") from problem


def _tree(info: DefinitionInfo) -> dict[str, Any]:
    values = {name: getattr(info, name) for name in FACTS}
    tree = {name: exact(one) if isinstance(one, datetime) else one for name, one in values.items()}
    return tree if info.problem is None else {**tree, "problem": info.problem}


def _written(found: StoredDefinition) -> str:
    """As YAML, or as JSON where nothing can write that."""
    from perdure.agent_workflow.documents.yaml_subset import to_yaml

    tree = tree_of(found.config)
    try:
        return to_yaml(tree).rstrip()
    except MissingExtra:
        return json.dumps(tree, ensure_ascii=False, indent=2)
