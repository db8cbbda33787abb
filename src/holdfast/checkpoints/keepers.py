"""Threads in a storage, as the engine sees them: opened, moved by commits, released.

`StoredThread` is over a driver and has everything. `PlainThread` is over any class with the six methods of
`CheckpointStorage`; such a storage knows no owners, no journal and no event log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.checkpoints.checkpoint import WorkflowCheckpoint, utc_now
from holdfast.checkpoints.event_log import pack
from holdfast.checkpoints.format import decode_checkpoint, encode_checkpoint
from holdfast.codec import Codec, DeclaredTypes, Tree
from holdfast.codecs.json_bytes import from_bytes, to_bytes
from holdfast.codecs.json_codec import JsonCodec
from holdfast.errors import DamagedCheckpoint, HoldfastError, StorageFailed, UnreadableValue
from holdfast.events import WorkflowEvent
from holdfast.records import CheckpointInfo, Commit, JournalEntry, OpenedThread
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.checkpoints.storage import CheckpointStorage


TAKEN_BACK = {"taken_back": True}
"""Stands in the journal, which is only ever appended to, after an outcome that does not count any more."""


MESSAGE = "message"
"""Kind of an inbox item that holds a message for the start executor."""


class ThreadKeeper(Protocol):
    """An opened thread: this run may move it until it is released."""

    codec: Codec
    number: int
    """The last commit; the next one is this plus one."""
    last_seq: int
    head_id: str | None
    """The checkpoint it stands at, known without reading it."""
    has_journal: bool
    has_inbox: bool
    never_waits: bool
    """Whether its methods end without awaiting anything, so that no cancellation can come in between."""

    def load_journal(self) -> dict[int, list[Tree]]:
        """What was recorded since the head, by delivery id, in order. Raises DamagedCheckpoint."""

    def load_inbox(self) -> dict[str, Any]:
        """Messages that were posted and are in no commit yet, by item id. Raises DamagedCheckpoint."""

    async def load_head(self) -> WorkflowCheckpoint | None:
        """The checkpoint it stands at; None for a new thread. Raises DamagedCheckpoint, never falls back."""

    async def commit(
        self,
        checkpoint: WorkflowCheckpoint | None,
        events: Sequence[WorkflowEvent],
        run_id: str,
        status: str,
        *,
        unsettled: Sequence[int] = (),
        consumed: Sequence[str] = (),
    ) -> CheckpointInfo | None:
        """Append one commit, and give the info of its checkpoint; without one it holds only events and a status."""

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        """Put what a delivery came to, or recorded on its way, into the journal; None takes its outcome back."""

    async def release(self) -> None: ...


def read_checkpoint(root: bytes, info: CheckpointInfo, codec: Codec) -> WorkflowCheckpoint:
    try:
        checkpoint = decode_checkpoint(from_bytes(root, f"checkpoint {info.checkpoint_id!r}"), codec)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error)) from error
    if (checkpoint.checkpoint_id, checkpoint.thread_id) != (info.checkpoint_id, info.thread_id):
        reason = f"its body is that of checkpoint {checkpoint.checkpoint_id!r} of thread {checkpoint.thread_id!r}"
        raise DamagedCheckpoint(info.checkpoint_id, reason)
    return checkpoint


class StoredThread:
    """A thread in one of holdfast's own stores."""

    has_journal = True
    has_inbox = True

    def __init__(self, store: Store, opened: OpenedThread, codec: Codec) -> None:
        self.codec = codec
        self.never_waits = store.never_waits
        self.number = opened.number
        self.last_seq = opened.last_seq
        self.head_id = None if opened.info is None else opened.info.checkpoint_id
        self._store = store
        self._lease = opened.lease
        self._opened = opened
        self._signature: dict[str, Any] | None = None
        self._signature_bytes = msgspec.Raw(b"{}")

    def load_journal(self) -> dict[int, list[Tree]]:
        found: dict[int, list[Tree]] = {}
        try:
            for entry in self._opened.journal:
                found.setdefault(entry.delivery_id, []).append(from_bytes(entry.body, "its journal"))
        except UnreadableValue as error:
            raise DamagedCheckpoint(str(self.head_id), str(error)) from error
        return found

    def load_inbox(self) -> dict[str, Any]:
        try:
            return {
                item.item_id: self.codec.decode(from_bytes(item.body, "its inbox"), "message")
                for item in self._opened.inbox
                if item.kind == MESSAGE
            }
        except UnreadableValue as error:
            raise DamagedCheckpoint(str(self.head_id), str(error)) from error

    async def load_head(self) -> WorkflowCheckpoint | None:
        opened = self._opened
        if opened.info is None or opened.root is None:
            return None
        return read_checkpoint(opened.root, opened.info, self.codec)

    async def commit(
        self,
        checkpoint: WorkflowCheckpoint | None,
        events: Sequence[WorkflowEvent],
        run_id: str,
        status: str,
        *,
        unsettled: Sequence[int] = (),
        consumed: Sequence[str] = (),
    ) -> CheckpointInfo | None:
        timestamp = checkpoint.timestamp if checkpoint is not None else utc_now()
        info = None if checkpoint is None else checkpoint.info
        root = None if checkpoint is None else to_bytes(self._tree_of(checkpoint))
        logged = pack(events, self.last_seq + 1, run_id, timestamp, info, self.codec)
        number = self.number + 1
        commit = Commit(self._lease, number, info, root, logged, unsettled, consumed, status)
        try:  # as `storage_errors` does, without the cost of a context manager in every superstep
            await self._store.commit(commit)
        except HoldfastError:
            raise
        except Exception as error:
            raise StorageFailed(type(self._store).__name__, "commit", repr(error)) from error
        self.number = number
        if logged is not None:
            self.last_seq += logged.count
        return info

    def _tree_of(self, checkpoint: WorkflowCheckpoint) -> Tree:
        tree = encode_checkpoint(checkpoint, self.codec)
        signature = checkpoint.graph_signature
        if signature is not self._signature:  # the same in every commit of a run: encoded once
            self._signature, self._signature_bytes = signature, msgspec.Raw(to_bytes(signature))
        tree["graph_signature"] = self._signature_bytes
        return tree

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        body = to_bytes(TAKEN_BACK if outcome is None else outcome)
        with storage_errors(self._store, "append to the journal"):
            await self._store.append_journal(self._lease, JournalEntry(self.number, delivery_id, body))

    async def release(self) -> None:
        await self._store.release(self._lease)


class PlainThread:
    """A thread in somebody else's storage, of which only the six methods are known."""

    has_journal = False
    has_inbox = False
    never_waits = False

    def __init__(self, storage: CheckpointStorage, thread_id: str, workflow_name: str, codec: Codec) -> None:
        self.codec = codec
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
        self._head = max(mine, key=lambda one: one.number, default=None)
        if self._head is not None:
            self.number, self.head_id = self._head.number, self._head.checkpoint_id

    def load_journal(self) -> dict[int, list[Tree]]:
        return {}

    def load_inbox(self) -> dict[str, Any]:
        return {}

    async def load_head(self) -> WorkflowCheckpoint | None:
        return self._head and own_copy(self._head, self.codec)

    async def commit(
        self,
        checkpoint: WorkflowCheckpoint | None,
        events: Sequence[WorkflowEvent],
        run_id: str,
        status: str,
        *,
        unsettled: Sequence[int] = (),
        consumed: Sequence[str] = (),
    ) -> CheckpointInfo | None:
        if checkpoint is None:
            return None
        await self._call("save", own_copy(checkpoint, self.codec))
        self.number = checkpoint.number
        return checkpoint.info

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
    except HoldfastError:
        raise
    except Exception as error:
        raise StorageFailed(type(storage).__name__, action, repr(error)) from error


def own_copy(checkpoint: WorkflowCheckpoint, codec: Codec) -> WorkflowCheckpoint:
    """One that shares nothing with the live thread: a storage that keeps the object itself must not see it change."""
    return decode_checkpoint(encode_checkpoint(checkpoint, codec), codec)


def codec_for(storage: Any, declared: DeclaredTypes) -> Codec:
    codec: Codec = getattr(storage, "codec", None) or JsonCodec()
    return codec.for_types(declared)
