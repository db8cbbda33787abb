"""Threads in a storage, as the engine sees them: opened, moved by commits, released.

`StoredThread` (`stored_thread.py`) is over a store and has everything. `PlainThread` is over any class with the six
methods of `CheckpointStorage`; such a storage knows no owners, no journal and no event log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.incremental import Unchanged
from perdure.checkpoints.encoding.checkpoint import (
    GRAPH_PARTS,
    decode_body,
    decode_checkpoint,
    encode_checkpoint,
    tool_codec,
)
from perdure.checkpoints.migration.migrations import Migrator, RenamedType
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import DamagedCheckpoint, PerdureError, StorageFailed, UnreadableValue
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo

if TYPE_CHECKING:
    from perdure.checkpoints.storage import CheckpointStorage


TAKEN_BACK = {"taken_back": True}
"""Stands in the journal, which is only ever appended to, after an outcome that does not count any more."""

OnSaved = Callable[[CheckpointInfo | None, int], None]
"""Told of a commit that is stored: its checkpoint, and the cursor of its last event."""


class OpenThread(Protocol):
    """An opened thread: this run may move it until it is released."""

    codec: Codec
    number: int
    """The last commit; the next one is this plus one."""
    last_seq: int
    head_id: str | None
    """The checkpoint it stands at, known without reading it."""
    has_journal: bool
    has_inbox: bool
    finishes_commits: bool
    """Whether `commit`, once called, comes to its end whatever happens to its caller."""
    unchanged: dict[str, Unchanged]
    """What executors keep, as it was encoded last, by executor."""

    @property
    def is_stale(self) -> bool:
        """Whether the journal or the inbox are to be migrated, which `load_head` does."""

    def load_journal(self) -> dict[int, list[Tree]]:
        """What was recorded since the head, by delivery id, in order. Raises DamagedCheckpoint."""

    def load_inbox(self, renamed: Sequence[RenamedType] = ()) -> dict[str, Any]:
        """Messages that were posted and are in no commit yet, by item id. Raises DamagedCheckpoint.

        `renamed`: the types that migrations renamed in the checkpoint that the thread stands at.
        """

    async def load_head(self) -> WorkflowCheckpoint | None:
        """The checkpoint it stands at; None for a new thread. Raises DamagedCheckpoint, never falls back.

        Migrations that it has not behind it are applied, to the journal and the inbox as well. Raises
        IncompatibleWorkflow or MigrationFailed where they cannot be.
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
        """Append one commit, and give the info of its checkpoint; without one it holds only events and a status.

        With `on_saved` it may be still on its way to the store when this returns; all of it is encoded by then.
        `on_saved` is called when it is there. Should it fail, the next call raises its error.
        """

    async def settled(self) -> None:
        """Wait until all that is on its way to the store is there. Raises why something is not."""

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        """Put what a delivery came to, or recorded on its way, into the journal; None takes its outcome back."""

    async def release(self) -> None: ...


class PlainThread:
    """A thread in somebody else's storage, of which only the six methods are known."""

    has_journal = False
    has_inbox = False
    finishes_commits = False
    is_stale = False
    unchanged: dict[str, Unchanged] = {}  # noqa: RUF012  # never filled: the storage keeps values, not trees

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
        found = await self._call("list_checkpoints", workflow_name=self._workflow_name)
        if not isinstance(found, list | tuple):
            raise self._wrong("list_checkpoints", found, "a list of WorkflowCheckpoint")
        for one in found:
            if not isinstance(one, WorkflowCheckpoint):
                raise self._wrong("list_checkpoints", one, "a WorkflowCheckpoint")
        mine = [one for one in found if one.thread_id == self._thread_id]
        self.stand_at(max(mine, key=lambda one: one.number, default=None))

    def stand_at(self, head: WorkflowCheckpoint | None) -> None:
        self._head = head
        if head is not None:
            self.number, self.head_id = head.number, head.checkpoint_id

    def load_journal(self) -> dict[int, list[Tree]]:
        return {}

    def load_inbox(self, renamed: Sequence[RenamedType] = ()) -> dict[str, Any]:
        return {}

    async def load_head(self) -> WorkflowCheckpoint | None:
        return self._head and own_copy(self._head, self.codec, self._migrator)

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
        await self._call("save", own_copy(checkpoint, self.codec))
        self.number = checkpoint.number
        if on_saved is not None:
            on_saved(checkpoint.info, 0)
        return checkpoint.info

    async def settled(self) -> None:
        """Nothing is ever on its way: `save` was awaited."""

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        """There is no journal to put it in."""

    async def release(self) -> None:
        """There is no owner to release."""

    def _wrong(self, method: str, given: object, expected: str) -> StorageFailed:
        reason = f"it gave {type(given).__name__}, expected {expected}"
        return StorageFailed(type(self._storage).__name__, method, reason)

    async def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        with storage_errors(self._storage, method):
            return await getattr(self._storage, method)(*args, **kwargs)


@contextmanager
def storage_errors(storage: object, action: str) -> Iterator[None]:
    """What a storage or its driver raises comes out as one error of ours."""
    try:
        yield
    except PerdureError:
        raise
    except Exception as error:
        raise StorageFailed(type(storage).__name__, action, repr(error)) from error


def own_copy(checkpoint: WorkflowCheckpoint, codec: Codec, migrator: Migrator | None = None) -> WorkflowCheckpoint:
    """One that shares nothing with the live thread: a storage that keeps the object itself must not see it change.

    With a migrator: as the workflow of today would have saved it.
    """
    if migrator is None or checkpoint.migrations == migrator.names:
        return decode_checkpoint(encode_checkpoint(checkpoint, codec), codec)
    whole: dict[str, Tree] = encode_checkpoint(checkpoint, tool_codec())  # its types may be gone today
    graph = {part: whole.pop(part) for part in GRAPH_PARTS if part in whole}
    info = checkpoint.info
    try:
        return decode_body(migrator.migrated({**whole, "graph": graph}, info, codec), info, codec)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error


def codec_for(storage: Any, declared: DeclaredTypes) -> Codec:
    codec: Codec = getattr(storage, "codec", None) or JsonCodec()
    return codec.for_types(declared)
