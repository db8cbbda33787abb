"""`perdure workflows`: stored definitions of workflows of agents."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from perdure.agent_workflow.documents.convert import config_for, tree_of
from perdure.agent_workflow.documents.text import to_yaml
from perdure.agent_workflow.store import DefinitionInfo, DefinitionStore, StoredDefinition
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.apps import build_instance, load_app, load_definition
from perdure.cli.contents import print_title
from perdure.cli.errors import Mistake
from perdure.cli.options import (
    StoreLocation,
    complete_definitions,
    confirm,
    output_and_store_options,
    sessions_option,
    store_command,
    work_in,
    yes_option,
)
from perdure.cli.tables import (
    format_age,
    format_time,
    iso_time,
    print_facts,
    print_json,
    print_list,
    print_result,
    print_table,
)
from perdure.cli.values import make_printable
from perdure.errors import DefinitionNotFound, InvalidDefinition, MissingExtra
from perdure.workflows.workflow import Workflow

FACTS = ("name", "version", "number", "created_at", "updated_at", "description")


name_argument = click.argument("name", metavar="NAME", shell_complete=complete_definitions)


@click.group(short_help="Store definitions of agent workflows.")
def workflows() -> None:
    """Store definitions of workflows of agents. `perdure run NAME` runs the newest version of one."""


@workflows.command("list", short_help="List definitions.")
@store_command
async def list_(storage: StoreCheckpointStorage, as_json: bool) -> None:
    """List definitions, each with its newest version."""
    infos = await DefinitionStore(storage).list()
    damaged = [info for info in infos if info.problem is not None]
    rows = [
        (info.name, info.version, str(info.number), format_age(info.updated_at), info.description or "")
        for info in infos
        if info.problem is None
    ]
    headers = ("NAME", "VERSION", "NUMBER", "SAVED", "DESCRIPTION")
    print_list([_tree(info) for info in infos], headers, rows, as_json=as_json, nothing="No definitions.")
    if damaged:
        raise Mistake("\n".join(f"Definition {info.name!r} cannot be read: {info.problem}." for info in damaged))


@workflows.command("show", short_help="Show a definition.")
@name_argument
@click.option("--version", metavar="VERSION", help="The version, by its number or its name; by default the newest.")
@store_command
async def show(storage: StoreCheckpointStorage, name: str, version: str | None, as_json: bool) -> None:
    """Show the definition NAME, as a document, and its versions."""
    definitions = DefinitionStore(storage)
    try:
        definition = await load_definition(definitions, name, version)
    except DefinitionNotFound as problem:
        raise _missing(problem) from problem
    versions = await definitions.versions(name)
    if as_json:
        print_json(
            {**_tree(definition), "config": tree_of(definition.config), "versions": [_tree(info) for info in versions]}
        )
        return
    print_facts(
        [
            ("definition", definition.name),
            ("version", f"{definition.version} (number {definition.number} of {len(versions)})"),
            ("created", format_time(definition.created_at)),
            ("saved", format_time(definition.updated_at)),
            ("description", definition.description or ""),
        ]
    )
    if len(versions) > 1:
        print_title("versions")
        print_table(
            ("NUMBER", "VERSION", "SAVED"),
            [(str(info.number), info.version, format_age(info.updated_at)) for info in versions],
        )
    print_title("document")
    click.echo(make_printable(_to_document(definition)))


@workflows.command("save", short_help="Store a definition.")
@click.argument("app")
@sessions_option
@output_and_store_options
def save(app: str, sessions: str | None, as_json: bool, store: str | None) -> None:
    """Store the definition of APP, a document or a workflow of agents in a module, under its name.

    The command checks it first. An unchanged definition makes no new version.
    """
    workflow = load_app(app, store)
    if isinstance(workflow, Workflow):
        raise click.UsageError(f"{app!r} is a workflow, but not one of agents: it has no definition to store.")

    async def keep(storage: StoreCheckpointStorage) -> tuple[StoredDefinition, int]:
        instance = build_instance(workflow, storage, StoreLocation(app, "", store, sessions))
        definitions = DefinitionStore(storage)
        try:
            before = (await definitions.load(instance.name)).number
        except (DefinitionNotFound, InvalidDefinition):
            before = 0
        return await definitions.save(config_for(workflow._draft)), before

    definition, before = work_in(store, keep, may_be_new=True)
    name = definition.name
    is_new = definition.number != before
    done = f"Stored definition {name}:" if is_new else f"Definition {name} has not changed: it is"
    sentence = f"{done} version {definition.version}, number {definition.number}."
    print_result({**_tree(definition), "is_new": is_new}, sentence, as_json=as_json)


@workflows.command("delete", short_help="Delete a definition.")
@name_argument
@yes_option
@output_and_store_options
def delete(name: str, yes: bool, as_json: bool, store: str | None) -> None:
    """Delete the definition NAME with all its versions. Its executions stay."""

    infos = {info.name: info for info in work_in(store, lambda storage: DefinitionStore(storage).list())}
    if name not in infos:
        raise _missing(DefinitionNotFound(name, infos))
    count = infos[name].number
    versions = {0: "which cannot be read", 1: "with its only version"}.get(count, f"with its {count} versions")
    confirm(f"Delete definition {name}, {versions}?", yes=yes)
    is_deleted = work_in(store, lambda storage: DefinitionStore(storage).delete(name))
    deleted = f"Deleted definition {name}. Its executions stay."
    sentence = deleted if is_deleted else f"Definition {name} was deleted already."
    print_result({"name": name, "is_deleted": is_deleted}, sentence, as_json=as_json)


def _missing(problem: DefinitionNotFound) -> Mistake:
    message = str(problem).partition(" DefinitionStore(")[0]
    return Mistake(f"{message} `perdure workflows list` lists them.")


def _tree(info: DefinitionInfo) -> dict[str, Any]:
    values = {name: getattr(info, name) for name in FACTS}
    tree = {name: iso_time(info) if isinstance(info, datetime) else info for name, info in values.items()}
    return tree if info.problem is None else {**tree, "problem": info.problem}


def _to_document(definition: StoredDefinition) -> str:
    """As YAML, or as JSON where the extra `yaml` is missing."""
    tree = tree_of(definition.config)
    try:
        return to_yaml(tree).rstrip()
    except MissingExtra:
        return json.dumps(tree, ensure_ascii=False, indent=2)
