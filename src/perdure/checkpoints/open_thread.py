"""Threads in a storage, as the engine sees them: opened, moved by commits, released.

`StoredThread` (`thread.py`) works over a store and has everything. `PlainThread` works over any class with the six
methods of `CheckpointStorage`; such a storage has no owners, no journal and no event log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint, decode_body, decode_checkpoint
from perdure.checkpoints.delta.recent import IncrementalEncoder
from perdure.checkpoints.encoding.encode import GRAPH_PARTS, encode_checkpoint, tool_codec
from perdure.checkpoints.feed import Feed
from perdure.checkpoints.migration.migrations import Migrator, RenamedType
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import DamagedCheckpoint, StorageFailed, UnreadableValue
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo

TAKEN_BACK = {"taken_back": True}
"""A journal entry that cancels the outcome before it: the journal is append-only."""

OnSaved = Callable[[CheckpointInfo | None, int], None]
"""Called for a stored commit: its checkpoint, and the cursor of its last event."""


class OpenThread(Protocol):
    """An opened thread: this run may commit to it until it releases it."""

    codec: Codec
    number: int
    """The last commit; the next one is this plus one."""
    last_seq: int
    head_id: str | None
    """The checkpoint of its last commit that has one."""
    has_journal: bool
    has_inbox: bool
    unchanged: dict[str, IncrementalEncoder]
    """The encoders of the executors' memories, by executor."""
    feed: Feed | None
    """Publishes the run's events to followers, in any process; None for a storage without followers."""

    @property
    def is_stale(self) -> bool:
        """Whether the journal or the inbox lacks migrations, which `load_head` applies."""

    def load_journal(self) -> dict[int, list[Tree]]:
        """The records since the head, by delivery id, in order. Raises DamagedCheckpoint."""

    def load_inbox(self, renamed: Sequence[RenamedType] = ()) -> dict[str, Any]:
        """Posted messages that no commit has consumed, by item id. Raises DamagedCheckpoint.

        `renamed`: the types that migrations renamed in the head.
        """

    async def load_head(self) -> WorkflowCheckpoint | None:
        """The head; None for a new thread. Raises DamagedCheckpoint, never falls back to an older checkpoint.

        Applies missing migrations, to the journal and the inbox as well. Raises IncompatibleWorkflow or
        MigrationFailed.
        """

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
        """Append one commit; returns the info of its checkpoint. Without one it holds only events and a status.

        A write that has begun completes even if the caller is cancelled meanwhile; `Task.cancelling` shows it.

        With `on_saved` the write may continue after the return; the commit is encoded by then. The store's success
        calls `on_saved`; its failure is raised by the next call.
        """

    async def settle(self) -> None:
        """Wait until the store has all commits, even if cancelled meanwhile. Raises the error of a failed one."""

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        """Append a delivery's outcome or a record of it to the journal; None cancels its outcome."""

    async def release(self) -> None: ...


@runtime_checkable
class CheckpointStorage(Protocol):
    """Any class with these six methods works as a storage. One over a store also has fences, a journal and a log."""

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        """Save the checkpoint; it replaces one with the same id."""
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


class PlainThread:
    """Implements `OpenThread` over a storage that has only the six methods."""

    has_journal = False
    has_inbox = False
    is_stale = False
    feed: Feed | None = None
    unchanged: dict[str, IncrementalEncoder] = {}  # noqa: RUF012  # always empty: the storage keeps values, not trees

    def __init__(
        self,
        storage: CheckpointStorage,
        thread_id: str,
        workflow_name: str,
        codec: Codec,
        migrator: Migrator | None = None,
    ) -> None:
        self.codec = codec
        self._migrator = migrator
        self.number = 0
        self.last_seq = 0
        self.head_id: str | None = None
        self._storage = storage
        self._thread_id = thread_id
        self._workflow_name = workflow_name
        self._head: WorkflowCheckpoint | None = None

    async def find_head(self) -> None:
        mine = await list_thread(self._storage, self._thread_id, self._workflow_name)
        self.set_head(max(mine, key=lambda checkpoint: checkpoint.number, default=None))

    def set_head(self, head: WorkflowCheckpoint | None) -> None:
        self._head = head
        if head is not None:
            self.number, self.head_id = head.number, head.checkpoint_id

    def load_journal(self) -> dict[int, list[Tree]]:
        return {}

    def load_inbox(self, renamed: Sequence[RenamedType] = ()) -> dict[str, Any]:
        return {}

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


def copy_checkpoint(
    checkpoint: WorkflowCheckpoint, codec: Codec, migrator: Migrator | None = None
) -> WorkflowCheckpoint:
    """A copy that shares nothing with the live thread: a storage that keeps the object must not see it change.

    With a migrator the copy is migrated to the workflow of today.
    """
    if migrator is None or checkpoint.migrations == migrator.names:
        return decode_checkpoint(encode_checkpoint(checkpoint, codec), codec)
    whole: dict[str, Tree] = encode_checkpoint(checkpoint, tool_codec())  # the workflow of today may lack its types
    graph = {part: whole.pop(part) for part in GRAPH_PARTS if part in whole}
    info = checkpoint.info
    try:
        return decode_body(migrator.migrate({**whole, "graph": graph}, info, codec), info, codec)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error


def codec_for(storage: Any, declared: DeclaredTypes) -> Codec:
    codec: Codec = getattr(storage, "codec", None) or JsonCodec()
    return codec.for_types(declared)
