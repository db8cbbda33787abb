"""The storages users hold: six methods over any driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol, runtime_checkable

from holdfast.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from holdfast.checkpoints.event_log import unpack
from holdfast.checkpoints.format import encode_checkpoint
from holdfast.checkpoints.keepers import (
    MESSAGE,
    PlainThread,
    StoredThread,
    ThreadKeeper,
    codec_for,
    own_copy,
    read_checkpoint,
    storage_errors,
)
from holdfast.codec import Codec, DeclaredTypes, declare
from holdfast.codecs.json_bytes import to_bytes
from holdfast.codecs.json_codec import JsonCodec
from holdfast.errors import CheckpointNotFound, DamagedCheckpoint, NoEventLog, StorageFailed
from holdfast.events import WorkflowEvent
from holdfast.names import checkpoint_id_of, new_thread_id
from holdfast.records import CheckpointInfo, StoredCheckpoint
from holdfast.store import Store


@runtime_checkable
class CheckpointStorage(Protocol):
    """Any class with these six methods works as a storage. Over a driver it also has fences, a journal and a log."""

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        """Keep the checkpoint; one with the same id is replaced."""
        ...

    async def load(self, checkpoint_id: CheckpointID) -> WorkflowCheckpoint:
        """Raises CheckpointNotFound."""
        ...

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """In the order of their commits, oldest first."""
        ...

    async def delete(self, checkpoint_id: CheckpointID) -> bool: ...

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None: ...

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[CheckpointID]: ...


class StoreCheckpointStorage:
    """A checkpoint storage over a store. All of holdfast's storages are this class, so they behave alike."""

    def __init__(
        self,
        store: Store,
        *,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] = (),
        allowed_checkpoint_types: Iterable[type | str] = (),
    ) -> None:
        self.store = store
        self.declared = declare(allowed_types, allowed_checkpoint_types)
        self.codec: Codec = serializer if serializer is not None else JsonCodec()
        # Without a workflow nothing limits what may be read: what nobody declared comes back as Opaque.
        self._tool_codec: Codec = serializer if serializer is not None else JsonCodec(self.declared, lenient=True)

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        if not checkpoint.thread_id:
            fields = {name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__}
            checkpoint = WorkflowCheckpoint(**{**fields, "thread_id": new_thread_id()})
        root = to_bytes(encode_checkpoint(checkpoint, self._tool_codec))
        await self.store.put_checkpoint(StoredCheckpoint(checkpoint.info, root))
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: CheckpointID | CheckpointInfo) -> WorkflowCheckpoint:
        return await self._read(checkpoint_id_of(checkpoint_id), self._tool_codec)

    async def _read(self, checkpoint_id: str, codec: Codec) -> WorkflowCheckpoint:
        stored = await self.store.find_checkpoint(checkpoint_id)
        if stored is None:
            raise CheckpointNotFound(checkpoint_id)
        return read_checkpoint(stored.root, stored.info, codec)

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | CheckpointInfo | None = None,
    ) -> list[WorkflowCheckpoint]:
        infos = await self.list_checkpoint_infos(
            workflow_name=workflow_name, thread_id=thread_id, limit=limit, before=before
        )
        return [await self.load(info) for info in infos]

    async def list_checkpoint_infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | CheckpointInfo | None = None,
    ) -> list[CheckpointInfo]:
        """Oldest first, without reading a payload. `limit` keeps the newest; `before` pages backwards."""
        found = await self.store.infos(
            workflow_name=workflow_name,
            thread_id=thread_id,
            limit=limit,
            before=None if before is None else checkpoint_id_of(before),
        )
        return list(found)

    async def list_checkpoint_ids(
        self, *, workflow_name: str | None = None, thread_id: str | None = None
    ) -> list[CheckpointID]:
        infos = await self.list_checkpoint_infos(workflow_name=workflow_name, thread_id=thread_id)
        return [info.checkpoint_id for info in infos]

    async def get_latest(
        self, *, workflow_name: str | None = None, thread_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        infos = await self.list_checkpoint_infos(workflow_name=workflow_name, thread_id=thread_id, limit=1)
        return await self.load(infos[0]) if infos else None

    async def delete(self, checkpoint_id: CheckpointID | CheckpointInfo) -> bool:
        return await self.store.delete_checkpoint(checkpoint_id_of(checkpoint_id))


# ---------------------------------------------------------------- what the engine asks of any storage


async def open_thread(
    storage: Any, thread_id: str, workflow_name: str, declared: DeclaredTypes, *, owner: str, takeover: bool
) -> ThreadKeeper:
    """Claim the thread. Raises ThreadBusy while somebody else holds it."""
    if isinstance(storage, StoreCheckpointStorage):
        with storage_errors(storage.store, "open a thread"):
            opened = await storage.store.open(thread_id, owner, takeover=takeover)
        return StoredThread(storage.store, opened, codec_for(storage, declared.union(storage.declared)))
    plain = PlainThread(storage, thread_id, workflow_name, codec_for(storage, declared))
    await plain.find_head()
    return plain


async def post_message(storage: Any, thread_id: str, item_id: str, message: Any, declared: DeclaredTypes) -> None:
    """Put a message into the thread's inbox, durably where the storage has one. Raises UnsavableValue."""
    if storage is None:
        return
    codec = codec_for(storage, declared.union(getattr(storage, "declared", DeclaredTypes())))
    tree = codec.encode(message, "message")
    if isinstance(storage, StoreCheckpointStorage):
        with storage_errors(storage.store, "post a message"):
            await storage.store.post(thread_id, item_id, MESSAGE, to_bytes(tree))


async def load_checkpoint(storage: Any, checkpoint_id: str, declared: DeclaredTypes) -> WorkflowCheckpoint:
    """The checkpoint, decoded for a workflow. Raises CheckpointNotFound or DamagedCheckpoint."""
    if isinstance(storage, StoreCheckpointStorage):
        return await storage._read(checkpoint_id, codec_for(storage, declared.union(storage.declared)))
    with storage_errors(storage, "load"):
        try:
            found: Any = await storage.load(checkpoint_id)
        except (KeyError, FileNotFoundError) as error:
            raise CheckpointNotFound(checkpoint_id) from error
    if found is None:
        raise CheckpointNotFound(checkpoint_id)
    if not isinstance(found, WorkflowCheckpoint):
        reason = f"it gave {type(found).__name__}, expected a WorkflowCheckpoint"
        raise StorageFailed(type(storage).__name__, "load", reason)
    if found.checkpoint_id != checkpoint_id:
        raise DamagedCheckpoint(checkpoint_id, f"the storage gave checkpoint {found.checkpoint_id!r} in its place")
    return own_copy(found, codec_for(storage, declared))


async def read_lineage(storage: Any, thread_id: str, workflow_name: str) -> list[WorkflowCheckpoint]:
    """The checkpoints that lead to the thread's head, oldest first; branches that a rewind left are not among them."""
    ours = {"thread_id": thread_id} if isinstance(storage, StoreCheckpointStorage) else {}
    found = await storage.list_checkpoints(workflow_name=workflow_name, **ours)
    mine = {one.checkpoint_id: one for one in found if one.thread_id == thread_id}
    lineage: list[WorkflowCheckpoint] = []
    at = max(mine.values(), key=lambda one: one.number, default=None)
    while at is not None:
        lineage.append(at)
        at = mine.get(at.previous_checkpoint_id or "")
    return lineage[::-1]


async def read_events(
    storage: Any, thread_id: str, after: int, declared: DeclaredTypes
) -> AsyncIterator[WorkflowEvent]:
    """The thread's log after a cursor, without a gap or a repeat."""
    if not isinstance(storage, StoreCheckpointStorage):
        raise NoEventLog(type(storage).__name__)
    codec = codec_for(storage, declared.union(storage.declared))
    for logged in await storage.store.events_after(thread_id, after):
        for event in unpack(logged, thread_id, codec):
            if event.seq is not None and event.seq > after:
                yield event
