"""Named states in a storage: definitions and conversations are threads in which nothing runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from perdure.cancelling import complete
from perdure.checkpoints.access import OwnerWait
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.history.time_travel import commit_by_hand, make_repeat
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.errors import InvalidRun, StorageFailed, ThreadBusy, ThreadExists, ThreadNotFound
from perdure.events import WorkflowRunState
from perdure.names import new_item_id
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
            after = self._next(head, thread_id, dict(state), thread.number + 1)
            return await thread.commit(after, (), "", after.status)

        async def commit() -> CheckpointInfo:
            owner = f"state-{new_item_id()}"
            return await complete(commit_by_hand(self.storage, thread_id, act, owner, recent=self._recent))

        async with self._lock(thread_id):
            return await self._when_free(thread_id, commit)

    def _next(
        self, head: WorkflowCheckpoint | None, thread_id: str, state: dict[str, Any], number: int
    ) -> WorkflowCheckpoint:
        status = WorkflowRunState.IDLE.value
        if head is not None:
            return msgspec.structs.replace(make_repeat(head, number, status), state=state)
        return WorkflowCheckpoint(
            self._workflow_name, "", thread_id=thread_id, number=number, status=status, state=state
        )

    def _lock(self, thread_id: str) -> asyncio.Lock:
        return self._locks.setdefault((asyncio.get_running_loop(), thread_id), asyncio.Lock())

    async def delete(self, name: str) -> bool:
        """Delete a state with its history; False if the name is free."""
        thread_id = self._prefix + name
        try:
            thread = await self.storage.find_thread(thread_id)
        except ThreadNotFound:
            return False
        if thread.workflow_name != self._workflow_name:
            return False
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
