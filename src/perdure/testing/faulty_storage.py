"""Storages with fault points in their path."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit, JournalEntry, Lease, OpenedThread
from perdure.store import Store
from perdure.testing.faults import Faults


class FaultyStore:
    """Any store, with a point at each of its writes. Reading has no point, but ends with a crash."""

    finishes_commits = False  # a point may pause

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        work = partial(self._store.open, thread_id, owner, takeover=takeover)
        return await self._faults.around("open", work, thread_id)

    async def release(self, lease: Lease) -> None:
        await self._faults.around("release", partial(self._store.release, lease), lease)

    async def commit(self, commit: Commit) -> None:
        await self._faults.around("commit", partial(self._store.commit, commit), commit)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self._faults.around("journal", partial(self._store.append_journal, lease, entry), entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self._faults.around("post", partial(self._store.post, thread_id, item_id, kind, body), item_id)

    def __getattr__(self, name: str) -> Any:
        self._faults.check_alive()
        return getattr(self._store, name)


class FaultyStorage(StoreCheckpointStorage):
    """One of perdure's storages, whose store does what the faults say: `FaultyStorage(storage, faults)`.

    What it writes is in the storage that was given, for whoever looks after a crash.
    """

    def __init__(self, storage: StoreCheckpointStorage, faults: Faults) -> None:
        if not isinstance(storage, StoreCheckpointStorage):
            raise TypeError(
                f"FaultyStorage takes a storage of perdure's, got {storage!r}. For one that has only the six methods "
                "use faults.wrap(storage): its saves become commits."
            )
        self.__dict__.update(storage.__dict__)  # the same codec, the same declared types
        self.store = cast(Store, FaultyStore(storage.store, faults))


class FaultySixMethods:
    """Somebody else's storage: saving is its one point, `commit`."""

    def __init__(self, storage: Any, faults: Faults) -> None:
        self._storage = storage
        self._faults = faults

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        saved: str = await self._faults.around("commit", partial(self._storage.save, checkpoint), checkpoint)
        return saved

    async def load(self, checkpoint_id: CheckpointID) -> WorkflowCheckpoint:
        return cast(WorkflowCheckpoint, await self._alive.load(checkpoint_id))

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return cast(list[WorkflowCheckpoint], await self._alive.list_checkpoints(workflow_name=workflow_name))

    async def delete(self, checkpoint_id: CheckpointID) -> bool:
        return bool(await self._alive.delete(checkpoint_id))

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return cast(WorkflowCheckpoint | None, await self._alive.get_latest(workflow_name=workflow_name))

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[CheckpointID]:
        return cast(list[str], await self._alive.list_checkpoint_ids(workflow_name=workflow_name))

    @property
    def _alive(self) -> Any:
        self._faults.check_alive()
        return self._storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)
