"""Named states in a storage, and the definitions that a workflow store keeps so, with all their versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec

from perdure.agent_workflow.definition import WorkflowConfig
from perdure.agent_workflow.documents.convert import config_of, tree_of
from perdure.agent_workflow.state import DEFINITION
from perdure.checkpoints.access import OwnerWait
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.history.retention import FullHistory, LatestOnly, Retention, as_retention
from perdure.checkpoints.history.time_travel import commit_by_hand, successor
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.clock import Clock, SystemClock, complete
from perdure.errors import (
    DamagedCheckpoint,
    DamagedDefinition,
    DamagedStore,
    DefinitionNotFound,
    InvalidRun,
    NewerFormat,
    StorageFailed,
    ThreadBusy,
    ThreadExists,
    UnreadableValue,
)
from perdure.events import WorkflowRunState
from perdure.names import check_identifier, new_item_id
from perdure.records import CheckpointInfo

T = TypeVar("T")
Change = Callable[[WorkflowCheckpoint | None], Mapping[str, Any] | None]
"""Gets the head of a thread, and returns the state of the next one; None: no change. It must not change the head."""

PATIENCE_SECONDS = 30.0
"""How long a call waits for another writer, whose process may be stopped."""


class StateThreads:
    """States by name, each in a thread of a storage. A change is one commit, and writers wait for each other."""

    def __init__(self, storage: StoreCheckpointStorage, workflow_name: str, prefix: str, user: str) -> None:
        """`prefix` begins the ids of the threads; the name follows. `user` names the caller in errors."""
        if not isinstance(storage, StoreCheckpointStorage):
            raise InvalidRun(
                f"A {user} needs a storage of perdure, such as SqliteCheckpointStorage(path); got {storage!r}."
            )
        self.storage = storage
        self._workflow_name = workflow_name
        self._prefix = prefix
        self._recent = RecentThreads()
        self._locks: WeakValueDictionary[tuple[object, str], asyncio.Lock] = WeakValueDictionary()
        """By event loop and thread: writers of one process need not wait for a release in the store."""

    async def names(self) -> list[str]:
        """In the order of their last changes."""
        threads = await self.storage.list_threads(workflow_name=self._workflow_name, prefix=self._prefix)
        return [thread.thread_id.removeprefix(self._prefix) for thread in threads]

    async def head_info(self, name: str) -> CheckpointInfo | None:
        """The head without its state, which no other head has; None if the name is free."""
        infos = await self.storage.list_checkpoint_infos(thread_id=self._prefix + name, limit=1)
        return infos[0] if infos and infos[0].workflow_name == self._workflow_name else None

    async def read(self, name: str) -> WorkflowCheckpoint | None:
        """The head with its state; None if the name is free. Raises DamagedCheckpoint."""
        head = await self.storage.get_latest(thread_id=self._prefix + name)
        return head if head is not None and head.workflow_name == self._workflow_name else None

    async def change(self, name: str, change: Change) -> CheckpointInfo:
        """Commit the next state. The head is this one if the change raises or the commit fails."""
        thread_id = self._prefix + name

        async def act(thread: StoredThread) -> CheckpointInfo | None:
            head = await thread.load_head()
            if head is not None and head.workflow_name != self._workflow_name:
                raise ThreadExists(thread_id, f"it is a thread of workflow {head.workflow_name!r}")
            state = change(head)
            if state is None:
                return None if head is None else head.info
            number, status = thread.number + 1, WorkflowRunState.IDLE.value
            if head is not None:
                after = successor(head, number=number, status=status, state=dict(state))
            else:
                after = WorkflowCheckpoint(
                    self._workflow_name, "", thread_id=thread_id, number=number, status=status, state=dict(state)
                )
            return await thread.commit(after, (), "", after.status)

        async def commit() -> CheckpointInfo:
            owner = f"state-{new_item_id()}"
            return await complete(commit_by_hand(self.storage, thread_id, act, owner, recent=self._recent))

        async with self._locks.setdefault((asyncio.get_running_loop(), thread_id), asyncio.Lock()):
            return await self._when_free(thread_id, commit)

    async def delete(self, name: str) -> bool:
        """Delete a state with its history; False if the name is free."""
        if await self.head_info(name) is None:
            return False
        thread_id = self._prefix + name
        return await self._when_free(thread_id, lambda: self.storage.delete_thread(thread_id))

    async def _when_free(self, thread_id: str, work: Callable[[], Awaitable[T]]) -> T:
        until = time.monotonic() + PATIENCE_SECONDS
        async with OwnerWait(self.storage, thread_id) as wait:
            while True:
                try:
                    return await work()
                except ThreadBusy as error:
                    if time.monotonic() > until:
                        reason = f"another process has held it for more than {PATIENCE_SECONDS:g} seconds"
                        raise StorageFailed(type(self.storage).__name__, f"change {thread_id!r}", reason) from error
                await wait.until_free()


class MultiAgentCheckpointRetention(Enum):
    """Retention of an execution's history, under familiar names."""

    LatestOnly = "LatestOnly"
    FullHistory = "FullHistory"


def retention_of(retention_mode: Any, retention: Any) -> Retention:
    """From a class, an instance, or a member of MultiAgentCheckpointRetention; None: LatestOnly."""
    if retention_mode is not None and retention is not None:
        raise ValueError("retention_mode and retention are the same option: pass one of them.")
    choice = retention_mode if retention_mode is not None else retention
    if choice in (None, MultiAgentCheckpointRetention.LatestOnly):
        return LatestOnly()
    return FullHistory() if choice is MultiAgentCheckpointRetention.FullHistory else as_retention(choice)


WORKFLOW = "perdure.definitions"
"""The name of the workflow whose threads are definitions."""
PREFIX = "definition:"
"""The prefix of these threads' ids; the definition's name follows."""
_DAMAGE = (DamagedCheckpoint, DamagedStore, NewerFormat, UnreadableValue)


class DefinitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a definition, without its content."""

    name: str
    version: str = ""
    """The version in the definition."""
    number: int = 0
    """The number of this version in the store, from 1."""
    created_at: datetime | None = None
    """When the first version was saved."""
    updated_at: datetime | None = None
    """When this version was saved."""
    description: str | None = None
    problem: str | None = None
    """Why it cannot be read; then only its name is known."""


class StoredDefinition(DefinitionInfo, frozen=True, kw_only=True):
    """A saved definition with its content."""

    config: WorkflowConfig


Infos: TypeAlias = list[DefinitionInfo]


class DefinitionStore:
    """The definitions in a workflow store. Each is a thread whose state holds every version. So a definition is written
    atomically, writers wait for each other, and retention deletes no version."""

    def __init__(self, storage: StoreCheckpointStorage, *, clock: Clock | None = None) -> None:
        self._threads = StateThreads(storage, WORKFLOW, PREFIX, "DefinitionStore")
        self._clock = clock or SystemClock()

    async def save(self, definition: WorkflowConfig) -> StoredDefinition:
        """Save a definition under its name as the newest version; an unchanged one gets no new version. Raises
        DamagedDefinition, without writing, if the stored definition of this name cannot be read."""
        name, document, number = definition.name, tree_of(definition), 0
        check_identifier("name", name)

        def append(head: WorkflowCheckpoint | None) -> Mapping[str, Any] | None:
            nonlocal number
            versions: Mapping[str, Any] = {} if head is None else head.state
            number = int(versions.get("number", 0))
            if number and versions[str(number)]["config"] == document:
                return None
            number += 1
            # A separate key: earlier versions are not written again.
            saved = {"saved_at": self._clock.now().isoformat(), "config": document}
            return {**versions, str(number): saved, "number": number}

        try:
            await self._threads.change(name, append)
        except _DAMAGE as error:
            raise DamagedDefinition(name, _reason(error)) from error
        # A pinned thread survives the pruning of inactive threads.
        infos = await self._threads.storage.list_checkpoint_infos(thread_id=PREFIX + name)
        if infos and not any(info.is_pinned for info in infos):
            await self._threads.storage.pin(infos[-1])
        return await self.load(name, number)

    async def load(self, name: str, version: str | int | None = None) -> StoredDefinition:
        """The newest version, the version of this number, or the newest with this version text. Raises
        DefinitionNotFound, DamagedDefinition, and InvalidDefinition for a definition that this release does not
        support."""
        versions = await self._load(name)
        number = _number(name, versions, version)
        config = config_of(versions[str(number)]["config"], f"definition {name!r}, version {number}")
        return StoredDefinition(**_facts(name, versions, number), config=config)

    async def list(self) -> Infos:
        """The newest version of each definition, by name. An unreadable definition is listed with its problem."""
        infos = []
        for name in await self._threads.names():
            try:
                versions = await self._read(name)
                if versions is not None:
                    infos.append(DefinitionInfo(**_facts(name, versions, int(versions["number"]))))
            except DamagedDefinition as damage:
                infos.append(DefinitionInfo(name=name, problem=damage.reason))
        return sorted(infos, key=lambda info: info.name)

    async def versions(self, name: str) -> Infos:
        """All versions of one definition, oldest first. Raises DefinitionNotFound, DamagedDefinition."""
        versions = await self._load(name)
        return [DefinitionInfo(**_facts(name, versions, number)) for number in range(1, int(versions["number"]) + 1)]

    async def delete(self, name: str) -> bool:
        """Delete all versions; False if none exists. Executions stay."""
        check_identifier("name", name)
        return await self._threads.delete(name)

    async def _load(self, name: str) -> Mapping[str, Any]:
        versions = await self._read(name)
        if versions is None:
            raise DefinitionNotFound(name, [other for other in await self._threads.names() if other != name])
        return versions

    async def _read(self, name: str) -> Mapping[str, Any] | None:
        """The state of its thread: `number`, and each version by its number. None if nothing was saved."""
        check_identifier("name", name)
        try:
            head = await self._threads.read(name)
        except _DAMAGE as error:
            raise DamagedDefinition(name, _reason(error)) from error
        return head.state if head is not None and "number" in head.state else None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)).removesuffix(".")


def _number(name: str, versions: Mapping[str, Any], version: str | int | None) -> int:
    """The number of the requested version. Raises DefinitionNotFound."""
    newest = int(versions["number"])
    if version is None:
        return newest
    numbers = range(newest, 0, -1)
    texts = {number: _version_text(versions[str(number)]["config"]) for number in numbers}
    for number in numbers:
        if version == (number if isinstance(version, int) else texts[number]):
            return number
    raise DefinitionNotFound(name, [f"{number} ({texts[number]})" for number in sorted(numbers)], version)


def _version_text(document: Any) -> str:
    return str(document.get("version", "1.0.0"))


def _facts(name: str, versions: Mapping[str, Any], number: int) -> dict[str, Any]:
    saved = versions[str(number)]
    return {
        "name": name,
        "version": _version_text(saved["config"]),
        "number": number,
        "created_at": datetime.fromisoformat(versions["1"]["saved_at"]),
        "updated_at": datetime.fromisoformat(saved["saved_at"]),
        "description": saved["config"].get("description"),
    }


async def find_stored_number(storage: StoreCheckpointStorage, execution_id: str, name: str) -> int | None:
    """The number of the stored definition that an execution was started with; None if it was not stored."""
    head = await storage.get_latest(thread_id=execution_id)
    match None if head is None else head.state.get(DEFINITION):
        case {"name": str(own), "number": int(number)} if own == name:
            return number
    return None
