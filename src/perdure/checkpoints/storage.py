"""StoreCheckpointStorage: the checkpoint storage over any store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from perdure.checkpoints.access import abandon_claim, check_limit, is_encrypted, missing_key, storage_errors
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.delta.assembly import Assembly, new_assembly
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.feed import Feeds
from perdure.checkpoints.follow import follow
from perdure.checkpoints.history import pruning, time_travel
from perdure.checkpoints.history.branches import Branches, build_branches
from perdure.checkpoints.history.retention import Retention, as_retention
from perdure.checkpoints.thread import Migrate, read_checkpoint
from perdure.clock import await_uncancelled
from perdure.codec import Codec, DeclaredTypes, declare
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import (
    CheckpointNotFound,
    CheckpointPinned,
    DamagedCheckpoint,
    DamagedStore,
    PerdureError,
    StorageFailed,
    ThreadBusy,
    ThreadNotFound,
)
from perdure.events import WorkflowEvent
from perdure.names import check_identifier, checkpoint_id_of
from perdure.records import CheckpointInfo, Damage, OpenedThread, PendingRequest, ThreadInfo
from perdure.store import Progress, Store

if TYPE_CHECKING:
    from perdure.checkpoints.history.diff import CheckpointDiff
    from perdure.checkpoints.transfer.threads import ExportReport

_MAX_LIST_TRIES = 5
"""How often `list_checkpoints` lists again a thread that is pruned faster than it can be read."""


class StoreCheckpointStorage:
    """A checkpoint storage over a store. All of perdure's storages are this class, so they behave alike.

    `retention` says how much of each thread's history the store keeps: `FullHistory`, all of it, by default.
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
        self.declared = declare(allowed_types or (), allowed_checkpoint_types or ())
        self._declares_types = self.declared != DeclaredTypes()
        self.codec: Codec = serializer if serializer is not None else JsonCodec()
        # Without a workflow any checkpoint is readable: undeclared types come back as Opaque.
        self._tool_codec: Codec = serializer if serializer is not None else JsonCodec(self.declared, lenient=True)
        self._recent = RecentThreads()
        self._feeds = Feeds()
        self._has_checked_key = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close files and connections. A later call opens them again."""
        await self.store.close()

    async def refuse_missing_key(self) -> None:
        """Raises MissingKey for an encrypted store without its key, before the first read or write. One check is
        enough: a store with threads does not become encrypted."""
        if not self._has_checked_key and await is_encrypted(self.store):
            raise missing_key(self.store)
        self._has_checked_key = True

    def codec_for(self, declared: DeclaredTypes) -> Codec:
        """The codec of a workflow that declares these types, beside the storage's own."""
        return self.codec.for_types(declared.union(self.declared) if self._declares_types else declared)

    @asynccontextmanager
    async def access(self, action: str) -> AsyncIterator[None]:
        """For one use of the store. Raises MissingKey, or StorageFailed in place of the driver's errors."""
        await self.refuse_missing_key()
        with storage_errors(self.store, action):
            yield

    async def claim_thread(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        """`Store.open`, in one round trip. Raises MissingKey without its claim, ThreadBusy or StorageFailed."""
        if takeover:  # an owner must not lose its thread to a process without the key
            await self.refuse_missing_key()
        try:  # like `storage_errors`, without a context manager in each run
            opened = await self.store.open(thread_id, owner, takeover=takeover)
        except ThreadBusy:
            await self.refuse_missing_key()
            raise
        except PerdureError:
            raise
        except Exception as error:
            raise StorageFailed(type(self.store).__name__, "open a thread", repr(error)) from error
        if opened.is_encrypted:
            with storage_errors(self.store, "release a thread"):
                await await_uncancelled(abandon_claim(self.store, opened))
            raise missing_key(self.store)
        self._has_checked_key = True
        return opened

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        """Save a checkpoint made outside of a run, as its thread's newest; it replaces one with the same id.

        Raises ThreadBusy while the thread has an owner.
        """
        await time_travel.save(self, checkpoint)
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: CheckpointID | CheckpointInfo) -> WorkflowCheckpoint:
        """Undeclared types come back as Opaque. Raises CheckpointNotFound or DamagedCheckpoint."""
        return await read_stored(self, checkpoint_id_of(checkpoint_id), self._tool_codec)

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | CheckpointInfo | None = None,
    ) -> list[WorkflowCheckpoint]:
        options: dict[str, Any] = {"workflow_name": workflow_name, "thread_id": thread_id, "limit": limit}
        checkpoints: list[WorkflowCheckpoint] = []
        for _ in range(_MAX_LIST_TRIES):
            infos = await self.list_checkpoint_infos(**options, before=before)
            checkpoints = await _read_all(self, infos)
            if {checkpoint.thread_id for checkpoint in checkpoints} == {info.thread_id for info in infos}:
                break  # else retention pruned all listed checkpoints of a thread
        return checkpoints

    async def list_checkpoint_infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | CheckpointInfo | None = None,
    ) -> list[CheckpointInfo]:
        """Oldest first, without reading a payload. `limit` selects the newest; `before` pages backwards."""
        check_limit(limit)
        options: dict[str, Any] = {"workflow_name": workflow_name, "thread_id": thread_id, "limit": limit}
        async with self.access("list checkpoints"):
            return list(await self.store.infos(**options, before=None if before is None else checkpoint_id_of(before)))

    async def list_checkpoint_ids(
        self, *, workflow_name: str | None = None, thread_id: str | None = None
    ) -> list[CheckpointID]:
        infos = await self.list_checkpoint_infos(workflow_name=workflow_name, thread_id=thread_id)
        return [info.checkpoint_id for info in infos]

    async def get_latest(
        self, *, workflow_name: str | None = None, thread_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        while infos := await self.list_checkpoint_infos(workflow_name=workflow_name, thread_id=thread_id, limit=1):
            with suppress(CheckpointNotFound):  # pruned since it was listed: another one is the latest now
                return await self.load(infos[0])
        return None

    async def delete(self, checkpoint_id: CheckpointID | CheckpointInfo) -> bool:
        """Delete one checkpoint, and the chunks that no other needs; False if no such checkpoint exists. In place of a
        head, the checkpoint before it becomes the head. Raises ThreadBusy for the head of a thread with an owner, and
        CheckpointPinned."""
        wanted = checkpoint_id_of(checkpoint_id)
        async with self.access("delete a checkpoint"):
            stored = await self.store.find_checkpoint(wanted)
            if stored is None:
                return False
            if await self.store.prune(stored.info.thread_id, [wanted]):
                self._recent.changes += 1
                return True
            if await self.store.find_checkpoint(wanted) is None:  # another process deleted it first
                return False
        raise CheckpointPinned(wanted)

    async def list_threads(
        self,
        *,
        workflow_name: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[ThreadInfo]:
        """Threads, the one with the latest commit last. `limit` selects the last ones; `before` (a thread id) pages.
        `prefix` selects ids that begin with this text, without reading the others; `statuses` selects by status."""
        check_limit(limit)
        if isinstance(statuses, str):
            raise TypeError(f"statuses expects a collection of statuses, such as {{{statuses!r}}}, got {statuses!r}.")
        options: dict[str, Any] = {"workflow_name": workflow_name, "prefix": prefix, "statuses": statuses}
        async with self.access("list threads"):
            return list(await self.store.threads(**options, limit=limit, before=before))

    async def find_thread(self, thread_id: str) -> ThreadInfo:
        """Number, status, head and owner of the thread. Raises ThreadNotFound."""
        check_identifier("thread_id", thread_id)
        async with self.access("list threads"):
            threads = await self.store.threads(thread_id=thread_id)
        if not threads:
            raise ThreadNotFound(thread_id)
        return threads[0]

    async def delete_thread(self, thread_id: str) -> bool:
        """Delete all of a thread; False if no such thread exists. Raises ThreadBusy while it has an owner."""
        async with self.access("delete a thread"):
            return await self.store.delete_thread(thread_id)

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> list[PendingRequest]:
        """Pending requests across threads, the oldest first. The thread's head has the data of the request.
        `prefix` selects threads whose ids begin with this text."""
        check_limit(limit)
        options: dict[str, Any] = {"workflow_name": workflow_name, "thread_id": thread_id, "prefix": prefix}
        async with self.access("list requests"):
            return list(await self.store.pending_requests(**options, limit=limit))

    async def history(
        self, thread_id: str, *, limit: int | None = None, before: CheckpointID | CheckpointInfo | None = None
    ) -> list[CheckpointInfo]:
        """A thread's checkpoints, newest first, without reading a payload. `before` (a checkpoint) pages.

        Raises ThreadNotFound, or CheckpointNotFound for an unknown `before`.
        """
        check_identifier("thread_id", thread_id)
        infos = await self.list_checkpoint_infos(thread_id=thread_id, limit=limit, before=before)
        if not infos and limit != 0 and before is None:
            raise ThreadNotFound(thread_id)
        return infos[::-1]

    async def branches(self, thread_id: str) -> Branches:
        """A thread's history as a tree, without reading a payload. Raises ThreadNotFound."""
        return build_branches(thread_id, (await self.history(thread_id))[::-1])

    async def diff(self, a: CheckpointID | CheckpointInfo, b: CheckpointID | CheckpointInfo) -> CheckpointDiff:
        """The differences from checkpoint `a` to checkpoint `b`, of any thread. Raises CheckpointNotFound."""
        return (await self.load(a)).diff(await self.load(b))

    async def pin(self, checkpoint_id: CheckpointID | CheckpointInfo) -> None:
        """Protect the checkpoint from retention and `prune`. Idempotent. Raises CheckpointNotFound."""
        async with self.access("pin a checkpoint"):
            await self.store.pin(checkpoint_id_of(checkpoint_id))
        self._recent.changes += 1

    async def unpin(self, checkpoint_id: CheckpointID | CheckpointInfo) -> None:
        """End the protection of `pin`. Idempotent. Raises CheckpointNotFound."""
        async with self.access("unpin a checkpoint"):
            await self.store.unpin(checkpoint_id_of(checkpoint_id))
        self._recent.changes += 1

    # Methods whose body is a function of the storage, in the module of its idea.
    fork = time_travel.fork
    rewind = time_travel.rewind
    checkpoint = time_travel.checkpoint
    prune = pruning.prune

    def follow(
        self,
        thread_id: str,
        *,
        after: int | None = None,
        live: bool = True,
        provisional: bool = False,
        until_idle: bool = False,
    ) -> AsyncIterator[WorkflowEvent]:
        """The events of a thread, whichever process runs it: those of its log after a cursor (None: all), each once and
        in order, then new ones as they are committed. Undeclared types come back as Opaque.

        `live` adds events that are not logged, such as tokens and progress; these have no `seq`, and may be lost.
        `provisional` adds events of the running superstep before its commit, without a `seq`. Neither comes after the
        events of its superstep.

        The iteration does not end by itself, even if no such thread exists. With `until_idle` it ends at the end of the
        log of a thread at rest (no owner; its last run ended, waits for answers, failed or was cancelled), and at once
        if no such thread exists. Raises CursorExpired if retention has deleted the event after the cursor.
        """
        check_identifier("thread_id", thread_id)
        return follow(self, thread_id, None, after, live=live, provisional=provisional, until_idle=until_idle)

    async def last_seq(self, thread_id: str) -> int:
        """The cursor of the last event in the thread's log; 0 for an empty log. Reads no event."""
        check_identifier("thread_id", thread_id)
        async with self.access("read the last event's number"):
            return await self.store.last_seq(thread_id)

    async def export_thread(
        self, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> ExportReport:
        """Write the thread to a file: history, branches, pins, events, journal, inbox and pending requests.

        The file appears once it is complete and synced. For a running thread it holds one moment. Raises
        FileExistsError, ThreadNotFound, DamagedCheckpoint, or ThreadBusy if pruning never pauses.
        """
        from perdure.checkpoints.transfer.threads import export_thread

        await self.refuse_missing_key()
        return await export_thread(self.store, thread_id, path, overwrite=overwrite)

    async def import_thread(self, path: str | os.PathLike[str], *, thread_id: str | None = None) -> ThreadInfo:
        """Add the thread of a file that `export_thread` wrote, from any kind of storage: all of it or nothing.

        `thread_id` gives the thread another id, and its checkpoints new ids. Raises NoThreadFile for a file that is
        damaged or something else, NewerFormat, or ThreadExists.
        """
        from perdure.checkpoints.transfer.threads import import_thread

        await self.refuse_missing_key()
        return await import_thread(self.store, path, thread_id=thread_id)

    async def verify(self, *, thread_id: str | None = None, progress: Progress | None = None) -> list[Damage]:
        """Check all that is stored, or one thread: every digest, every link, every count. Returns the damage.

        Decodes no value. Calls `progress(done, total, thread_id)` after each thread. Raises ThreadNotFound.
        """
        from perdure.checkpoints.transfer.verify import verify

        with suppress(DamagedStore, DamagedCheckpoint, StorageFailed):  # `verify` reports these as damage
            await self.refuse_missing_key()
        return await verify(self.store, thread_id=thread_id, progress=progress)

    async def rekey(self, *, dry_run: bool = False, progress: Progress | None = None) -> Any:
        """Encrypt everything with the current key of `encryption`; returns a `RekeyReport`.

        Running threads continue. Call it again after an interruption. `dry_run` only counts. Raises ValueError for a
        storage without encryption.
        """
        rekey = getattr(self.store, "rekey", None)
        if rekey is None:
            await self.refuse_missing_key()
            raise ValueError("This storage has no encryption, so it has no key to change. Pass encryption=AesGcm(...).")
        return await rekey(dry_run=dry_run, progress=progress)


async def read_stored(
    storage: StoreCheckpointStorage,
    checkpoint_id: str,
    codec: Codec,
    tries: int = 2,
    assembly: Assembly | None = None,
    *,
    migrate: Migrate | None = None,
) -> WorkflowCheckpoint:
    """The checkpoint, decoded by this codec. Raises CheckpointNotFound or DamagedCheckpoint."""
    async with storage.access("find a checkpoint"):
        stored = await storage.store.find_checkpoint(checkpoint_id)
    if stored is None:
        raise CheckpointNotFound(checkpoint_id)
    try:
        checkpoint, _ = await read_checkpoint(storage.store, stored.root, stored.info, codec, assembly, migrate=migrate)
    except DamagedCheckpoint:
        async with storage.access("find a checkpoint"):
            again = await storage.store.find_checkpoint(checkpoint_id)
        if again is None:  # pruned during the read
            raise CheckpointNotFound(checkpoint_id) from None
        if again == stored and tries <= 0:
            raise
        # Its thread was pruned during the read.
        return await read_stored(storage, checkpoint_id, codec, tries - 1, migrate=migrate)
    return checkpoint


async def _read_all(storage: StoreCheckpointStorage, infos: Iterable[CheckpointInfo]) -> list[WorkflowCheckpoint]:
    checkpoints = []
    assembly, assembled_thread = None, None  # reads the chunks that checkpoints of one thread share once
    for info in infos:
        if info.thread_id != assembled_thread:
            assembly, assembled_thread = new_assembly(storage.store, info.thread_id), info.thread_id
        with suppress(CheckpointNotFound):  # pruned since it was listed
            checkpoints.append(await read_stored(storage, info.checkpoint_id, storage._tool_codec, assembly=assembly))
    return checkpoints
