"""Workflows of agents as APP: a document, a definition that a store keeps, or an object of Python."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.mistakes import Mistake, failed
from perdure.cli.places import Place, find_store, given_keys
from perdure.errors import DefinitionNotFound, InvalidDefinition, PerdureError, did_you_mean

if TYPE_CHECKING:
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow
    from perdure.orchestrations.agent_workflow.definitions import DefinitionStore, StoredDefinition
    from perdure.orchestrations.agent_workflow.instance import AgentWorkflowInstance

SUFFIXES = (".json", ".yaml", ".yml")
HOME = "perdure.orchestrations.agent_workflow"


def is_document(app: str) -> bool:
    return app.lower().endswith(SUFFIXES)


def read_document(app: str) -> AgentWorkflow:
    """The builder that a file describes. What it names can be imported from its folder. Raises Mistake if there is no
    such file, and InvalidDefinition, with the file and the place, for what is wrong in it."""
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow

    path = Path(app)
    if not path.is_file():
        files = [str(path.parent / one.name) for one in path.parent.glob("*") if is_document(one.name)]
        raise Mistake(f"There is no file {app!r}{did_you_mean(app, files)}.")
    let_import_from(path.parent.resolve())
    return AgentWorkflow.from_config(path)


def stored_document(app: str, store: str | None, thread_id: str | None = None) -> AgentWorkflow:
    """The builder of a definition in the store, `NAME` or `NAME@VERSION`; of a thread that there is, the version that
    it was begun with. Raises UsageError where there is none."""
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow
    from perdure.orchestrations.agent_workflow.definitions import DefinitionStore, number_of

    name, _, version = app.partition("@")

    async def load() -> AgentWorkflow:
        async with find_store(store) as storage:
            number = None if version or thread_id is None else await number_of(storage, thread_id, name)
            definitions = DefinitionStore(storage)
            if number is not None:
                stored = await definitions.load(name, number)
            else:
                stored = await load_definition(definitions, name, version or None)
            builder = AgentWorkflow.from_config(stored.config).with_workflow_store(storage)
            builder._draft.number = stored.number
            return builder

    let_import_from(Path.cwd())
    try:
        return asyncio.run(load())
    except (Mistake, DefinitionNotFound) as problem:
        why = str(problem).partition(" DefinitionStore(")[0] if isinstance(problem, PerdureError) else problem.message
        raise click.UsageError(
            "APP is a module and a name in it, such as 'app:workflow', a document, such as 'workflow.yaml', or the "
            f"name of a definition in the store; got {app!r}. {why}"
        ) from problem


async def load_definition(definitions: DefinitionStore, name: str, version: str | None) -> StoredDefinition:
    """A number is the store's, unless the authors count so themselves. Raises DefinitionNotFound."""
    try:
        return await definitions.load(name, version)
    except DefinitionNotFound as problem:
        if version is None or not version.isdecimal() or problem.version is None:
            raise
        return await definitions.load(name, int(version))


def agents_of(found: Any) -> AgentWorkflow | None:
    """The builder of a workflow of agents, built or not; None for anything else. Loads nothing for the latter."""
    if not type(found).__module__.startswith(HOME):
        return None
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow
    from perdure.orchestrations.agent_workflow.instance import AgentWorkflowInstance

    if isinstance(found, AgentWorkflowInstance):
        return AgentWorkflow(found._draft)
    return found if isinstance(found, AgentWorkflow) else None


def own_storage(workflow: AgentWorkflow) -> Any:
    """The one that was given in Python, if any."""
    return workflow._draft.store


def built(workflow: AgentWorkflow, storage: Any, place: Place) -> AgentWorkflowInstance:
    """With its executions in this storage. Raises InvalidDefinition, with what was named on the command line, and
    Mistake for whatever else goes wrong while it is built."""
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow

    builder = AgentWorkflow(dataclasses.replace(workflow._draft))  # what the module has stays as it is
    builder.with_checkpointing().with_workflow_store(storage)
    if place.sessions is not None:
        builder.with_json_session_store(place.sessions, encryption=given_keys())
    elif builder._draft.settings.conversation.mode != "none" and builder._draft.session_store is None:
        raise Mistake(f"{place.app}: settings.conversation: its conversations need a place: add --sessions FOLDER.")
    try:
        return builder.build()
    except InvalidDefinition as error:
        raise InvalidDefinition(error.problems, error.source or place.app) from error
    except PerdureError:
        raise
    except Exception as error:
        raise failed(f"Building {place.app!r}", error) from error


def let_import_from(folder: Path) -> None:
    here = os.fspath(folder)
    if here not in sys.path:
        sys.path.insert(0, here)
