"""Definitions in a workflow store: kept under their names with all their versions, beside the executions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from perdure import storages
from perdure.agent_workflow.definition.config import WorkflowConfig
from perdure.agent_workflow.documents.convert import config_of, tree_of
from perdure.agent_workflow.state import DEFINITION, clock
from perdure.checkpoints.history.retention import FullHistory, LatestOnly, Retention, as_retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import Clock
from perdure.errors import (
    DamagedCheckpoint,
    DamagedDefinition,
    DamagedStore,
    DefinitionNotFound,
    InvalidRun,
    NewerFormat,
    UnreadableValue,
)
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.names import check_identifier
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow

# ---------------------------------------------------------------- stores


class MultiAgentCheckpointRetention(Enum):
    """What is kept of an execution's history, under familiar names."""

    LatestOnly = "LatestOnly"
    FullHistory = "FullHistory"


def retention_of(given: Any) -> Retention:
    """Of a class, an instance, or a member of MultiAgentCheckpointRetention; None: LatestOnly."""
    if given is None:
        return LatestOnly()
    if isinstance(given, MultiAgentCheckpointRetention):
        return LatestOnly() if given is MultiAgentCheckpointRetention.LatestOnly else FullHistory()
    return as_retention(given)


def memory_storage(retention: Any) -> StoreCheckpointStorage:
    return storages.InMemoryCheckpointStorage(retention=retention_of(retention))


def json_storage(root_directory: str | os.PathLike[str], retention: Any) -> StoreCheckpointStorage:
    return storages.FileCheckpointStorage(root_directory, retention=retention_of(retention))


def sqlite_storage(path: str | os.PathLike[str], retention: Any) -> StoreCheckpointStorage:
    return storages.SqliteCheckpointStorage(path, retention=retention_of(retention))


def postgres_storage(dsn: str, retention: Any, **options: Any) -> StoreCheckpointStorage:
    return storages.PostgresCheckpointStorage(dsn, retention=retention_of(retention), **options)


WORKFLOW = "perdure.definitions"
"""The workflow whose threads definitions are."""
PREFIX = "definition:"
"""Of these threads' ids; the name follows."""
Document = dict[str, Any]
_DAMAGE = (DamagedCheckpoint, DamagedStore, NewerFormat, UnreadableValue)


class DefinitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A definition without what it defines."""

    name: str
    version: str = ""
    """As its authors count."""
    number: int = 0
    """How many versions the store had of it, with this one."""
    created_at: datetime | None = None
    """When the first of them was saved."""
    updated_at: datetime | None = None
    """When this one was."""
    description: str | None = None
    problem: str | None = None
    """Why it cannot be read, if so: then only its name is known."""


class StoredDefinition(DefinitionInfo, frozen=True, kw_only=True):
    """A definition as it was saved, whole."""

    config: WorkflowConfig


Infos: TypeAlias = list[DefinitionInfo]


class Keeper(Executor):
    """Puts a version behind those that there are, unless it is the last of them once more."""

    @handler
    async def keep(self, document: dict[str, Any], ctx: WorkflowContext[Any, int]) -> None:
        number = int(ctx.get_state("number", 0))
        if number == 0 or ctx.get_state(str(number))["config"] != document:
            number += 1
            # A key of its own: what is in the store of earlier versions is not written again.
            ctx.set_state(str(number), {"saved_at": clock().now().isoformat(), "config": document})
            ctx.set_state("number", number)
        await ctx.yield_output(number)


class DefinitionStore:
    """The definitions in a workflow store. Each is a thread whose state holds every version, so a definition is written
    whole or not at all, writers wait for each other, and no retention takes a version away."""

    def __init__(self, storage: StoreCheckpointStorage, *, clock: Clock | None = None) -> None:
        if not isinstance(storage, StoreCheckpointStorage):
            raise InvalidRun(
                f"Definitions are kept in one of perdure's storages, such as SqliteCheckpointStorage; got {storage!r}."
            )
        self._storage = storage
        self._workflow: Workflow = WorkflowBuilder(
            name=WORKFLOW, start_executor=Keeper("keeper"), checkpoint_storage=storage, clock=clock
        ).build()

    async def save(self, definition: WorkflowConfig) -> StoredDefinition:
        """Keep it under its name, as the newest version; one that has not changed makes no other. Raises
        DamagedDefinition if what there is under this name cannot be read; then nothing is written."""
        name = definition.name
        check_identifier("name", name)
        document = tree_of(definition)
        known = await self._read(name)
        number = 0 if known is None else int(known["number"])
        if known is None or known[str(number)]["config"] != document:
            number = await self._keep(name, document)
        await self._pin(name)
        return await self.load(name, number)

    async def _keep(self, name: str, document: Document) -> int:
        """What a process that was killed had begun to save comes first, then this."""
        try:
            done = await self._workflow.run(document, thread_id=PREFIX + name, on_busy="enqueue")
        except _DAMAGE as error:
            raise DamagedDefinition(name, _reason(error)) from error
        return int(done.get_outputs()[-1])

    async def _pin(self, name: str) -> None:
        """So that it stays when threads that have not moved for long are pruned."""
        infos = await self._storage.list_checkpoint_infos(thread_id=PREFIX + name)
        if infos and not any(one.is_pinned for one in infos):
            await self._storage.pin(infos[-1])

    async def load(self, name: str, version: str | int | None = None) -> StoredDefinition:
        """The newest, or the version of this number, or the newest that its authors call so. Raises DefinitionNotFound,
        DamagedDefinition, and InvalidDefinition for one that this release does not understand."""
        known = await self._found(name)
        number = _number(name, known, version)
        return StoredDefinition(**_facts(name, known, number), config=_config(name, known, number))

    async def list(self) -> Infos:
        """The newest version of each, by name. One that cannot be read says why; the others are listed."""
        infos = []
        for thread in await self._storage.list_threads(workflow_name=WORKFLOW):
            name = thread.thread_id.removeprefix(PREFIX)
            try:
                known = await self._read(name)
                if known is not None:
                    infos.append(DefinitionInfo(**_facts(name, known, int(known["number"]))))
            except DamagedDefinition as damage:
                infos.append(DefinitionInfo(name=name, problem=damage.reason))
        return sorted(infos, key=lambda one: one.name)

    async def versions(self, name: str) -> Infos:
        """All of one definition, oldest first. Raises DefinitionNotFound, DamagedDefinition."""
        known = await self._found(name)
        return [DefinitionInfo(**_facts(name, known, number)) for number in range(1, int(known["number"]) + 1)]

    async def delete(self, name: str) -> bool:
        """Forget all its versions; False if there was none. Executions of it stay."""
        check_identifier("name", name)
        found = await self._storage.store.threads(workflow_name=WORKFLOW, thread_id=PREFIX + name)
        return bool(found) and await self._storage.delete_thread(PREFIX + name)

    async def _found(self, name: str) -> Mapping[str, Any]:
        known = await self._read(name)
        if known is None:
            threads = await self._storage.list_threads(workflow_name=WORKFLOW)
            others = (one.thread_id.removeprefix(PREFIX) for one in threads)
            raise DefinitionNotFound(name, [one for one in others if one != name])
        return known

    async def _read(self, name: str) -> Mapping[str, Any] | None:
        """The state of its thread: `number`, and each version by its number. None if nothing was saved."""
        check_identifier("name", name)
        try:
            head = await self._workflow.head(PREFIX + name)
        except _DAMAGE as error:
            raise DamagedDefinition(name, _reason(error)) from error
        if head is None or head.workflow_name != WORKFLOW or "number" not in head.state:
            return None
        return head.state


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)).removesuffix(".")


def _number(name: str, known: Mapping[str, Any], version: str | int | None) -> int:
    """Which of the versions is meant. Raises DefinitionNotFound."""
    newest = int(known["number"])
    if version is None:
        return newest
    numbers = range(newest, 0, -1)
    called = {number: _called(known[str(number)]["config"]) for number in numbers}
    for number in numbers:
        if version == (number if isinstance(version, int) else called[number]):
            return number
    there = [f"{number} ({called[number]})" for number in sorted(numbers)]
    raise DefinitionNotFound(name, there, version)


def _called(document: Any) -> str:
    return str(document.get("version", "1.0.0"))


def _facts(name: str, known: Mapping[str, Any], number: int) -> dict[str, Any]:
    kept = known[str(number)]
    return {
        "name": name,
        "version": _called(kept["config"]),
        "number": number,
        "created_at": datetime.fromisoformat(known["1"]["saved_at"]),
        "updated_at": datetime.fromisoformat(kept["saved_at"]),
        "description": kept["config"].get("description"),
    }


def _config(name: str, known: Mapping[str, Any], number: int) -> WorkflowConfig:
    """Raises InvalidDefinition, with the definition as its source."""
    return config_of(known[str(number)]["config"], f"definition {name!r}, version {number}")


async def number_of(storage: StoreCheckpointStorage, execution_id: str, name: str) -> int | None:
    """Of the stored definition that an execution was begun with; None if it was not, or there is none."""
    head = await storage.get_latest(thread_id=execution_id)
    begun = None if head is None else head.state.get(DEFINITION)
    if not isinstance(begun, dict) or begun.get("name") != name:
        return None
    number = begun.get("number")
    return number if isinstance(number, int) else None
