"""The engine's view of any storage: one over a store, or one with only the six methods of `CheckpointStorage`.

A `StoredThread` has everything. A `PlainThread` works over any class with the six methods; such a storage has no
owners, no journal and no event log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint, copy_checkpoint
from perdure.checkpoints.delta.recent import IncrementalEncoder
from perdure.checkpoints.feed import Feed
from perdure.checkpoints.follow import EventLog
from perdure.checkpoints.history.retention import line_to
from perdure.checkpoints.history.time_travel import load_metadata_of_head
from perdure.checkpoints.migration.migrations import MESSAGE, Migrator, Tail, encode_item
from perdure.checkpoints.storage import StoreCheckpointStorage, read_stored
from perdure.checkpoints.thread import OnSaved, StoredThread
from perdure.clock import await_uncancelled
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import CheckpointNotFound, DamagedCheckpoint, NoEventLog, StorageFailed
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo, Lease, OpenedThread


@runtime_checkable
class CheckpointStorage(Protocol):
    """Any class with these six methods works as a storage. One over a store also has fences, a journal and a log."""

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        """Save the checkpoint; it replaces one with the same id."""

    async def load(self, checkpoint_id: CheckpointID) -> WorkflowCheckpoint:
        """Raises CheckpointNotFound."""

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """In the order of their commits, oldest first."""

    async def delete(self, checkpoint_id: CheckpointID) -> bool: ...

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None: ...

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[CheckpointID]: ...


class PlainThread(msgspec.Struct, eq=False):
    """The `StoredThread` of a storage with only the six methods: the same methods, with the same promises."""

    has_journal: ClassVar = False
    tail: ClassVar = Tail(OpenedThread(Lease("", "", 0), 0, None, None, 0), None)
    _storage: CheckpointStorage
    thread_id: str
    _workflow_name: str
    codec: Codec
    _migrator: Migrator | None = None
    number: int = 0
    last_seq: int = 0
    head_id: str | None = None
    _head: WorkflowCheckpoint | None = None
    feed: Feed | None = None
    unchanged: dict[str, IncrementalEncoder] = {}
    """Always empty: the storage keeps values, not trees."""

    async def find_head(self) -> None:
        mine = await list_thread(self._storage, self.thread_id, self._workflow_name)
        self.set_head(max(mine, key=lambda checkpoint: checkpoint.number, default=None))

    def set_head(self, head: WorkflowCheckpoint | None) -> None:
        self._head = head
        if head is not None:
            self.number, self.head_id = head.number, head.checkpoint_id

    async def load_head(self) -> WorkflowCheckpoint | None:
        return self._head and copy_checkpoint(self._head, self.codec, self._migrator)

    async def commit(
        self,
        checkpoint: WorkflowCheckpoint | None,
        events: Sequence[WorkflowEvent],
        run_id: str,
        status: str,
        *,
        unsettled: Sequence[int] = (),
        consumed: Sequence[str] = (),
        on_saved: OnSaved | None = None,
    ) -> CheckpointInfo | None:
        if checkpoint is None:
            return None
        with storage_errors(self._storage, "save"):
            await await_uncancelled(self._storage.save(copy_checkpoint(checkpoint, self.codec)))
        self.number = checkpoint.number
        if on_saved is not None:
            on_saved(checkpoint.info, 0)
        return checkpoint.info

    async def settle(self) -> None:
        """Nothing to wait for: `commit` awaits `save`."""

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        """No journal exists."""

    async def release(self) -> None:
        """No owner exists."""


OpenThread: TypeAlias = StoredThread | PlainThread
"""A thread that this run may commit to until it releases it."""


async def open_thread(
    storage: Any,
    thread_id: str,
    workflow_name: str,
    declared: DeclaredTypes,
    *,
    owner: str,
    takeover: bool,
    max_lag: int,
    migrator: Migrator | None = None,
    graph: bytes = b"",
) -> OpenThread:
    """Claim the thread. Raises ThreadBusy while it has another owner. `graph` is that of `StoredThread`."""
    if isinstance(storage, StoreCheckpointStorage):
        opened = await storage.claim_thread(thread_id, owner, takeover=takeover)
        return StoredThread(
            storage.store,
            opened,
            declared,
            storage.codec_for(declared),
            storage._recent,
            graph=graph,
            max_lag=max_lag,
            retention=storage.retention,
            migrator=migrator,
            feed=Feed(storage, thread_id, opened.last_seq),
        )
    plain = PlainThread(storage, thread_id, workflow_name, codec_for(storage, declared), migrator)
    await plain.find_head()
    return plain


async def post_message(
    storage: Any, thread_id: str, item_id: str, message: Any, declared: DeclaredTypes, mark: str | None = None
) -> None:
    """Post a message to the thread's inbox, durably if the storage has one. Raises UnsavableValue.

    `mark` is the last migration of the sending workflow.
    """
    if storage is None:
        return
    is_stored = isinstance(storage, StoreCheckpointStorage)
    codec = storage.codec_for(declared) if is_stored else codec_for(storage, declared)
    tree = codec.encode(message, "message")
    if is_stored:
        async with storage.access("post a message"):
            await storage.store.post(thread_id, item_id, MESSAGE, encode_item(tree, mark))


async def load_checkpoint(
    storage: Any, checkpoint_id: str, declared: DeclaredTypes, migrator: Migrator | None = None
) -> WorkflowCheckpoint:
    """The checkpoint, decoded for a workflow. Raises CheckpointNotFound, DamagedCheckpoint, or the migrator's error."""
    if isinstance(storage, StoreCheckpointStorage):
        migrate = None if migrator is None else migrator.migrate
        return await read_stored(storage, checkpoint_id, storage.codec_for(declared), migrate=migrate)
    with storage_errors(storage, "load"):
        try:
            checkpoint: Any = await storage.load(checkpoint_id)
        except (KeyError, FileNotFoundError) as error:
            raise CheckpointNotFound(checkpoint_id) from error
    if checkpoint is None:
        raise CheckpointNotFound(checkpoint_id)
    if not isinstance(checkpoint, WorkflowCheckpoint):
        raise wrong_result(storage, "load", checkpoint, "a WorkflowCheckpoint")
    if checkpoint.checkpoint_id != checkpoint_id:
        reason = f"the storage returned checkpoint {checkpoint.checkpoint_id!r} in its place"
        raise DamagedCheckpoint(checkpoint_id, reason)
    return copy_checkpoint(checkpoint, codec_for(storage, declared), migrator)


async def load_thread_metadata(storage: Any, head_id: str | None) -> dict[str, Any] | None:
    """The thread's metadata, such as its name, from its head. None for an unreadable head: a rewind repairs it."""
    if isinstance(storage, StoreCheckpointStorage):  # also reads values of types that the workflow no longer has
        return await load_metadata_of_head(storage.load, head_id)
    return await load_metadata_of_head(partial(load_checkpoint, storage, declared=DeclaredTypes()), head_id)


async def read_lineage(storage: Any, thread_id: str, workflow_name: str) -> list[WorkflowCheckpoint]:
    """The checkpoints that lead to the thread's head, oldest first, without the branches that rewinds left."""
    if isinstance(storage, StoreCheckpointStorage):
        listed = await storage.list_checkpoints(workflow_name=workflow_name, thread_id=thread_id)
    else:
        listed = await list_thread(storage, thread_id, workflow_name)
    head = max(listed, key=lambda checkpoint: checkpoint.number, default=None)
    return [] if head is None else line_to(listed, head)[::-1]


async def read_events(
    storage: Any, thread_id: str, after: int | None, declared: DeclaredTypes | None
) -> AsyncIterator[WorkflowEvent]:
    """The thread's log after a cursor, without a gap or a repeat; from its beginning for None.

    Undeclared types come back as Opaque. Raises NoEventLog or CursorExpired.
    """
    log = EventLog(require_event_log(storage), thread_id, after, declared)
    while events := await log.next():
        for event in events:
            yield event


def require_event_log(storage: Any) -> StoreCheckpointStorage:
    """Raises NoEventLog for a storage with only the six methods."""
    if not isinstance(storage, StoreCheckpointStorage):
        raise NoEventLog(type(storage).__name__)
    return storage


async def list_thread(storage: Any, thread_id: str, workflow_name: str) -> list[WorkflowCheckpoint]:
    """A thread's checkpoints. A storage with only the six methods loads all those of the workflow."""
    with storage_errors(storage, "list_checkpoints"):
        listed = await storage.list_checkpoints(workflow_name=workflow_name)
    if not isinstance(listed, list | tuple):
        raise wrong_result(storage, "list_checkpoints", listed, "a list of WorkflowCheckpoint")
    for checkpoint in listed:
        if not isinstance(checkpoint, WorkflowCheckpoint):
            raise wrong_result(storage, "list_checkpoints", checkpoint, "a WorkflowCheckpoint")
    return [checkpoint for checkpoint in listed if checkpoint.thread_id == thread_id]


def wrong_result(storage: Any, method: str, result: object, expected: str) -> StorageFailed:
    reason = f"it returned {type(result).__name__}, expected {expected}"
    return StorageFailed(type(storage).__name__, method, reason)


def codec_for(storage: Any, declared: DeclaredTypes) -> Codec:
    codec: Codec = getattr(storage, "codec", None) or JsonCodec()
    return codec.for_types(declared)
