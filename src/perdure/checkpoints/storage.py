"""The storages users hold: six methods over any driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Protocol, Self, runtime_checkable

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.delta.assembly import Assembly
from perdure.checkpoints.follow.follow import FollowingMethods
from perdure.checkpoints.follow.log_reader import LogReader
from perdure.checkpoints.history.methods import HistoryMethods, check_limit
from perdure.checkpoints.history.pruning import PruningMethods
from perdure.checkpoints.history.retention import Retention, as_retention
from perdure.checkpoints.migration.migrations import Migrator
from perdure.checkpoints.open_thread import OpenThread, PlainThread, codec_for, own_copy, storage_errors
from perdure.checkpoints.recent import RecentThreads
from perdure.checkpoints.thread import Migrate, StoredThread, new_assembly, read_checkpoint
from perdure.checkpoints.transfer.methods import TransferMethods
from perdure.checkpoints.uncommitted import MESSAGE, posted
from perdure.codec import Codec, DeclaredTypes, declare
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import CheckpointNotFound, CheckpointPinned, DamagedCheckpoint, NoEventLog, StorageFailed
from perdure.events import WorkflowEvent
from perdure.names import checkpoint_id_of, new_item_id, new_thread_id
from perdure.records import CheckpointInfo, PendingRequest, ThreadInfo
from perdure.store import Store

_LISTED_TIMES = 5
"""How often checkpoints are listed before those of a thread that moves faster than it is read are given up."""


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


class StoreCheckpointStorage(HistoryMethods, PruningMethods, TransferMethods, FollowingMethods):
    """A checkpoint storage over a store. All of perdure's storages are this class, so they behave alike.

    `retention` says how much of each thread's history is kept: `FullHistory` (all of it) unless told otherwise.
    """

    def __init__(
        self,
        store: Store,
        *,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] | None = None,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        retention: Retention | type[Retention] | None = None,
    ) -> None:
        self.store = store
        self.retention: Retention = as_retention(retention)
        if serializer is not None and not hasattr(serializer, "for_types"):
            raise TypeError(f"serializer expects a codec, such as PickleSerializer(), got {serializer!r}.")
        for one in (*(allowed_types or ()), *(allowed_checkpoint_types or ())):
            if not isinstance(one, type | str):
                raise TypeError(f"allowed_types expects classes and 'module:Qualname' strings, got {one!r}.")
        self.declared = declare(allowed_types or (), allowed_checkpoint_types or ())
        self.codec: Codec = serializer if serializer is not None else JsonCodec()
        # Without a workflow nothing limits what may be read: what nobody declared comes back as Opaque.
        self._tool_codec: Codec = serializer if serializer is not None else JsonCodec(self.declared, lenient=True)
        self._recent = RecentThreads()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back files and connections. What is used afterwards opens them again."""
        await self.store.close()

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        """Keep a checkpoint made outside of a run, as its thread's newest; one with the same id is replaced.

        Raises ThreadBusy while the thread has an owner.
        """
        saved, cancelled = await await_uncancelled(self._save(checkpoint))  # else a claim could be left behind
        if cancelled is not None:
            raise cancelled
        return saved

    async def _save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        thread_id = checkpoint.thread_id or new_thread_id()
        async with self.access("open a thread"):
            opened = await self.store.open(thread_id, f"save-{new_item_id()}")
        # Nothing of it is remembered: what a user saves is the user's own, and may change.
        thread = StoredThread(
            self.store,
            opened,
            self.declared,
            lambda _: self._tool_codec,
            RecentThreads(),
            retention=self.retention,
        )
        fields = {name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__}
        numbered = WorkflowCheckpoint(**{**fields, "thread_id": thread_id, "number": thread.number + 1})
        try:
            await thread.commit(numbered, (), checkpoint.run_id or "", checkpoint.status)
        finally:
            await thread.release()
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: CheckpointID | CheckpointInfo) -> WorkflowCheckpoint:
        """Raises CheckpointNotFound or DamagedCheckpoint. Types that nobody declared come back as Opaque."""
        return await self._read(checkpoint_id_of(checkpoint_id), self._tool_codec)

    async def _read(
        self,
        checkpoint_id: str,
        codec: Codec,
        tries: int = 2,
        assembly: Assembly | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> WorkflowCheckpoint:
        async with self.access("find a checkpoint"):
            stored = await self.store.find_checkpoint(checkpoint_id)
        if stored is None:
            raise CheckpointNotFound(checkpoint_id)
        try:
            checkpoint, _ = await read_checkpoint(
                self.store, stored.root, stored.info, codec, assembly, migrate=migrate
            )
        except DamagedCheckpoint:
            async with self.access("find a checkpoint"):
                again = await self.store.find_checkpoint(checkpoint_id)
            if again is None:  # it was pruned while it was read
                raise CheckpointNotFound(checkpoint_id) from None
            if again == stored and tries <= 0:
                raise
            # Its thread was pruned while it was read.
            return await self._read(checkpoint_id, codec, tries - 1, migrate=migrate)
        return checkpoint

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | CheckpointInfo | None = None,
    ) -> list[WorkflowCheckpoint]:
        wanted: dict[str, Any] = {"workflow_name": workflow_name, "thread_id": thread_id, "limit": limit}
        found: list[WorkflowCheckpoint] = []
        for _ in range(_LISTED_TIMES):
            infos = await self.list_checkpoint_infos(**wanted, before=before)
            found = await self._read_all(infos)
            if {one.thread_id for one in found} == {one.thread_id for one in infos}:
                break  # else a thread moved on, and retention left nothing of what was listed of it
        return found

    async def _read_all(self, infos: Iterable[CheckpointInfo]) -> list[WorkflowCheckpoint]:
        found = []
        assembly, thread_of_it = None, None  # what checkpoints of one thread share is read once
        for info in infos:
            if info.thread_id != thread_of_it:
                assembly, thread_of_it = new_assembly(self.store, info.thread_id), info.thread_id
            try:
                found.append(await self._read(info.checkpoint_id, self._tool_codec, assembly=assembly))
            except CheckpointNotFound:
                continue  # pruned since it was listed
        return found

    async def list_checkpoint_infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | CheckpointInfo | None = None,
    ) -> list[CheckpointInfo]:
        """Oldest first, without reading a payload. `limit` keeps the newest; `before` pages backwards."""
        check_limit(limit)
        async with self.access("list checkpoints"):
            found = await self.store.infos(
                workflow_name=workflow_name,
                thread_id=thread_id,
                limit=limit,
                before=None if before is None else checkpoint_id_of(before),
            )
        return list(found)

    async def list_threads(
        self,
        *,
        workflow_name: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[ThreadInfo]:
        """Where threads stand, those that moved last at the end. `limit` keeps these; `before` (a thread id) pages.

        `prefix`: only those whose ids begin with this text, without reading the others. `statuses`: only those whose
        status is one of these.
        """
        check_limit(limit)
        if isinstance(statuses, str):
            raise TypeError(f"statuses expects a collection of statuses, such as {{{statuses!r}}}, got {statuses!r}.")
        wanted: dict[str, Any] = {"workflow_name": workflow_name, "prefix": prefix, "statuses": statuses}
        async with self.access("list threads"):
            return list(await self.store.threads(**wanted, limit=limit, before=before))

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> list[PendingRequest]:
        """Who is asked, across threads, those who wait longest first. The question itself is in the thread's head.
        `prefix`: only in threads whose ids begin with this text."""
        check_limit(limit)
        wanted: dict[str, Any] = {"workflow_name": workflow_name, "thread_id": thread_id, "prefix": prefix}
        async with self.access("list requests"):
            return list(await self.store.pending_requests(**wanted, limit=limit))

    async def delete_thread(self, thread_id: str) -> bool:
        """Forget all of a thread; False if there was none. Raises ThreadBusy while it has an owner."""
        async with self.access("delete a thread"):
            return await self.store.delete_thread(thread_id)

    async def list_checkpoint_ids(
        self, *, workflow_name: str | None = None, thread_id: str | None = None
    ) -> list[CheckpointID]:
        infos = await self.list_checkpoint_infos(workflow_name=workflow_name, thread_id=thread_id)
        return [info.checkpoint_id for info in infos]

    async def get_latest(
        self, *, workflow_name: str | None = None, thread_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        while infos := await self.list_checkpoint_infos(workflow_name=workflow_name, thread_id=thread_id, limit=1):
            try:
                return await self.load(infos[0])
            except CheckpointNotFound:
                continue  # pruned since it was listed: another is the latest now
        return None

    async def delete(self, checkpoint_id: CheckpointID | CheckpointInfo) -> bool:
        """Forget one checkpoint, and what no other needs; False if there was none. When the head goes, the one before
        it becomes the head. Raises ThreadBusy for the head of a thread that is being run, and CheckpointPinned."""
        wanted = checkpoint_id_of(checkpoint_id)
        async with self.access("delete a checkpoint"):
            stored = await self.store.find_checkpoint(wanted)
            if stored is None:
                return False
            if await self.store.prune(stored.info.thread_id, [wanted]):
                self._recent.changes += 1
                return True
            if await self.store.find_checkpoint(wanted) is None:  # somebody else was quicker
                return False
        raise CheckpointPinned(wanted)


# ---------------------------------------------------------------- what the engine asks of any storage


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
) -> OpenThread:
    """Claim the thread. Raises ThreadBusy while somebody else holds it."""
    if isinstance(storage, StoreCheckpointStorage):
        async with storage.access("open a thread"):
            opened = await storage.store.open(thread_id, owner, takeover=takeover)
        return StoredThread(
            storage.store,
            opened,
            declared,
            lambda declared: codec_for(storage, declared.union(storage.declared)),
            storage._recent,
            max_lag=max_lag,
            retention=storage.retention,
            migrator=migrator,
        )
    plain = PlainThread(storage, thread_id, workflow_name, codec_for(storage, declared), migrator)
    await plain.find_head()
    return plain


async def post_message(
    storage: Any, thread_id: str, item_id: str, message: Any, declared: DeclaredTypes, mark: str | None = None
) -> None:
    """Put a message into the thread's inbox, durably where the storage has one. Raises UnsavableValue.

    `mark` is the last migration of the workflow that sends it.
    """
    if storage is None:
        return
    codec = codec_for(storage, declared.union(getattr(storage, "declared", DeclaredTypes())))
    tree = codec.encode(message, "message")
    if isinstance(storage, StoreCheckpointStorage):
        async with storage.access("post a message"):
            await storage.store.post(thread_id, item_id, MESSAGE, posted(tree, mark))


async def load_checkpoint(
    storage: Any, checkpoint_id: str, declared: DeclaredTypes, migrator: Migrator | None = None
) -> WorkflowCheckpoint:
    """The checkpoint, decoded for a workflow. Raises CheckpointNotFound or DamagedCheckpoint, and what the migrator
    raises."""
    if isinstance(storage, StoreCheckpointStorage):
        codec = codec_for(storage, declared.union(storage.declared))
        return await storage._read(checkpoint_id, codec, migrate=None if migrator is None else migrator.migrated)
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
    return own_copy(found, codec_for(storage, declared), migrator)


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
    storage: Any, thread_id: str, after: int | None, declared: DeclaredTypes | None
) -> AsyncIterator[WorkflowEvent]:
    """The thread's log after a cursor, without a gap or a repeat; all that is kept of it where that is None. Types that
    nobody declared come back as Opaque: without a workflow (`declared` is None), and where it has changed since. Raises
    CursorExpired."""
    log = log_reader(storage, thread_id, after, declared)
    while events := await log.next():
        for event in events:
            yield event


def log_reader(storage: Any, thread_id: str, after: int | None, declared: DeclaredTypes | None) -> LogReader:
    """Raises NoEventLog."""
    if not isinstance(storage, StoreCheckpointStorage):
        raise NoEventLog(type(storage).__name__)
    codec = storage._tool_codec if declared is None else codec_for(storage, declared.union(storage.declared))
    return LogReader(storage.store, thread_id, after, codec, storage._tool_codec)
