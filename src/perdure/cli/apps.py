"""Workflows as APP: a document, a stored definition, or an object of Python."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import click

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.store import DefinitionStore, StoredDefinition, find_stored_number
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.errors import Mistake
from perdure.cli.options import StoreLocation, load_keys, work_in
from perdure.errors import DefinitionNotFound, InvalidDefinition, PerdureError, did_you_mean
from perdure.server.config.reading import DOCUMENTS
from perdure.server.config.schema import NotServable
from perdure.server.registry import Project, build_workflow, describe_failure, find_source
from perdure.workflows.workflow import Workflow


def is_document(app: str) -> bool:
    return app.lower().endswith(DOCUMENTS)


def read_document(app: str) -> AgentWorkflow:
    """The builder that a file describes. Modules that it names are imported from its folder. Raises Mistake for a
    missing file, and InvalidDefinition, with file and place, for an error in it."""
    path = Path(app)
    if not path.is_file():
        files = [str(path.parent / entry.name) for entry in path.parent.glob("*") if is_document(entry.name)]
        raise Mistake(f"No file {app!r} exists{did_you_mean(app, files)}.")
    Project(path.parent).put_first()
    return AgentWorkflow.from_config(path)


def load_stored_document(app: str, store: str | None, thread_id: str | None = None) -> AgentWorkflow:
    """The builder of a definition in the store, `NAME` or `NAME@VERSION`; of an existing thread, the version that it
    began with. Raises UsageError for an unknown name."""
    name, _, version = app.partition("@")

    async def load(storage: StoreCheckpointStorage) -> AgentWorkflow:
        number = None if version or thread_id is None else await find_stored_number(storage, thread_id, name)
        definitions = DefinitionStore(storage)
        if number is not None:
            stored = await definitions.load(name, number)
        else:
            stored = await load_definition(definitions, name, version or None)
        builder = AgentWorkflow.from_config(stored.config).with_workflow_store(storage)
        builder._draft.number = stored.number
        return builder

    Project().put_first()
    try:
        return work_in(store, load)
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


def build_instance(workflow: AgentWorkflow, storage: Any, place: StoreLocation) -> AgentWorkflowInstance:
    """With its executions in this storage. Raises InvalidDefinition, with the name on the command line, and
    NotServable for any other error while it is built."""
    builder = AgentWorkflow(dataclasses.replace(workflow._draft))  # what the module has stays as it is
    builder.with_checkpointing().with_workflow_store(storage)
    if place.sessions is not None:
        builder.with_json_session_store(place.sessions, encryption=load_keys())
    elif builder._draft.settings.conversation.mode != "none" and builder._draft.session_store is None:
        raise Mistake(f"{place.app}: settings.conversation: its conversations need a place: add --sessions FOLDER.")
    try:
        return builder.build()
    except InvalidDefinition as error:
        raise InvalidDefinition(error.problems, error.source or place.app) from error
    except PerdureError:
        raise
    except Exception as error:
        raise NotServable(place.app, f"cannot be built: {describe_failure(error, Project())}") from error


def load_app(app: str, store: str | None = None, thread_id: str | None = None) -> Workflow | AgentWorkflow:
    """The workflow of an object that a server could serve; for a workflow of agents its builder. Of a stored definition
    it is the version that the thread began with.

    The current folder can be imported from, and a document's own. Raises UsageError for another form of name, and
    NotImportable, NotServable, Mistake or InvalidDefinition for what it names.
    """
    if is_document(app):
        return read_document(app)
    module_name, colon, attribute = app.partition(":")
    if app and not colon:
        return load_stored_document(app, store, thread_id)
    if not module_name or not attribute:
        raise click.UsageError(f"APP is a module and a name in it, such as 'app:workflow'; got {app!r}.")
    if os.sep in module_name or module_name.endswith(".py"):
        name = module_name.removesuffix(".py").strip(os.sep).replace(os.sep, ".")
        raise click.UsageError(f"APP names a module, not a file: try {name + ':' + attribute!r} instead of {app!r}.")
    project = Project()
    source, _, build = find_source(app, project)
    if isinstance(source, AgentWorkflowInstance):
        return AgentWorkflow(source._draft)
    return source if isinstance(source, AgentWorkflow) else build_workflow(app, build, project)
