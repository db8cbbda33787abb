"""What the engine needs of any storage: one over a store, or one with only the six methods of `CheckpointStorage`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.feed import Feed
from perdure.checkpoints.follow import open_event_log
from perdure.checkpoints.history.time_travel import load_metadata_of_head
from perdure.checkpoints.migration.migrations import MESSAGE, Migrator, encode_item
from perdure.checkpoints.open_thread import (
    OpenThread,
    PlainThread,
    codec_for,
    copy_checkpoint,
    list_thread,
    wrong_result,
)
from perdure.checkpoints.storage import StoreCheckpointStorage, read_stored
from perdure.checkpoints.thread import StoredThread
from perdure.codec import DeclaredTypes
from perdure.errors import CheckpointNotFound, DamagedCheckpoint, NoEventLog
from perdure.events import WorkflowEvent


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
    load: Callable[[str], Awaitable[WorkflowCheckpoint]]
    if isinstance(storage, StoreCheckpointStorage):
        load = storage.load  # also reads values of types that the workflow no longer has
    else:

        def load(checkpoint_id: str) -> Awaitable[WorkflowCheckpoint]:
            return load_checkpoint(storage, checkpoint_id, DeclaredTypes())

    return await load_metadata_of_head(load, head_id)


async def read_lineage(storage: Any, thread_id: str, workflow_name: str) -> list[WorkflowCheckpoint]:
    """The checkpoints that lead to the thread's head, oldest first, without the branches that rewinds left."""
    if isinstance(storage, StoreCheckpointStorage):
        listed = await storage.list_checkpoints(workflow_name=workflow_name, thread_id=thread_id)
    else:
        listed = await list_thread(storage, thread_id, workflow_name)
    by_id = {checkpoint.checkpoint_id: checkpoint for checkpoint in listed}
    lineage: list[WorkflowCheckpoint] = []
    current = max(by_id.values(), key=lambda checkpoint: checkpoint.number, default=None)
    while current is not None:
        lineage.append(current)
        current = by_id.get(current.previous_checkpoint_id or "")
    return lineage[::-1]


async def read_events(
    storage: Any, thread_id: str, after: int | None, declared: DeclaredTypes | None
) -> AsyncIterator[WorkflowEvent]:
    """The thread's log after a cursor, without a gap or a repeat; from its beginning for None.

    Undeclared types come back as Opaque. Raises NoEventLog or CursorExpired.
    """
    log = open_event_log(require_event_log(storage), thread_id, after, declared)
    while events := await log.next():
        for event in events:
            yield event


def require_event_log(storage: Any) -> StoreCheckpointStorage:
    """Raises NoEventLog for a storage with only the six methods."""
    if not isinstance(storage, StoreCheckpointStorage):
        raise NoEventLog(type(storage).__name__)
    return storage
