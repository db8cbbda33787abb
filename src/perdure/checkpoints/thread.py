"""A thread in one of perdure's own stores: its checkpoints as chunks, its journal, its inbox."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import WorkflowCheckpoint, decode_body
from perdure.checkpoints.delta.assembly import Assembly, read_checkpoint_tree
from perdure.checkpoints.delta.chunks import Chunker
from perdure.checkpoints.delta.recent import IncrementalEncoder, Recent, RecentThreads, encode_commit
from perdure.checkpoints.encode import encode_graph
from perdure.checkpoints.feed import Feed
from perdure.checkpoints.history.retention import MAX_CARRIED_ENTRIES, FullHistory, Retention, RetentionIndex
from perdure.checkpoints.migration.migrations import Migrator, Tail
from perdure.clock import await_uncancelled
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.errors import DamagedCheckpoint, PerdureError, StorageFailed, UnreadableValue
from perdure.events import WorkflowEvent
from perdure.isolation import is_fully_copied
from perdure.names import digest_of
from perdure.observing import CommitWritten, notify_observers, observers
from perdure.records import CheckpointInfo, Commit, JournalEntry, OpenedThread
from perdure.store import Store

TAKEN_BACK = {"taken_back": True}
"""A journal entry that cancels the outcome before it: the journal is append-only."""

OnSaved = Callable[[CheckpointInfo | None, int], None]
"""Called for a stored commit: its checkpoint, and the cursor of its last event."""


class StoredThread:
    """A thread in one of perdure's own stores, opened: this run may commit to it until it releases it.

    A commit writes only what its checkpoint does not share with its parent.
    """

    has_journal = True
    """And an inbox."""

    def __init__(
        self,
        store: Store,
        opened: OpenedThread,
        declared: DeclaredTypes,
        codec: Codec,
        recent: RecentThreads,
        *,
        graph: bytes = b"",
        max_lag: int = 1,
        retention: Retention | None = None,
        migrator: Migrator | None = None,
        feed: Feed | None = None,
    ) -> None:
        """`graph`: the signature of the workflow, encoded. A head that refers to the same need not read it.
        `feed` publishes the events of commits that the store has."""
        self.feed = feed
        base = recent.take(opened, declared)
        if base is None and opened.info is None:
            base = Recent(declared, requests=None if opened.number else {})
        self._base: Recent | None = base
        """The head: the next checkpoint continues from it, and shares its chunks."""
        self._declared = declared
        self.codec = codec
        self.number = opened.number
        """The last commit; the next one is this plus one."""
        self.last_seq = opened.last_seq
        self.head_id = None if opened.info is None else opened.info.checkpoint_id
        """The checkpoint of its last commit that has one."""
        self.status = opened.status
        """The thread's status at the opening."""
        self._store = store
        self.thread_id = opened.lease.thread_id
        self._lease = opened.lease
        self._opened = opened
        self.tail = Tail(opened, migrator)
        """The journal and the inbox. `load_head` applies migrations that they lack."""
        self._recent = recent
        self._commits = AsyncCommits(max_lag)
        """Commits that the engine does not wait for."""
        self._retention = None if isinstance(retention, FullHistory) else retention
        self._retained = None if base is None else base.retained
        """The stored checkpoints, for retention; None until they are listed."""
        self._graph = graph
        self._state = IncrementalEncoder(is_fully_copied) if base is None else base.state
        self.unchanged: dict[str, IncrementalEncoder] = {} if base is None else base.executors
        """The encoders of the executors' memories, by executor."""

    async def load_head(self) -> WorkflowCheckpoint | None:
        """The head; None for a new thread. Raises DamagedCheckpoint, never falls back to an older checkpoint.

        Applies missing migrations, to the journal and the inbox as well. Raises IncompatibleWorkflow or
        MigrationFailed.
        """
        opened = self._opened
        if opened.damage is not None:
            name = "of its head" if opened.info is None else opened.info.checkpoint_id
            raise DamagedCheckpoint(name, opened.damage, opened.lease.thread_id)
        if opened.info is None or opened.root is None:
            return None
        if self._base is not None and self._base.checkpoint is not None:
            return self._base.checkpoint
        known = {digest_of(self._graph): self._graph} if self._graph else None
        checkpoint, chunker = await read_checkpoint(
            self._store, opened.root, opened.info, self.codec, migrate=self.tail.migrate, known=known
        )
        self._base = self._recent_at(opened.info.checkpoint_id, opened.info.number, chunker)
        return checkpoint

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
        base, graph, retained = self._base, b"{}", None
        draft = Commit(
            self._lease, self.number + 1, unsettled=unsettled, consumed=consumed, status=status, run_id=run_id
        )
        if checkpoint is not None:
            if base is None or base.checkpoint_id != checkpoint.previous_checkpoint_id:
                base = await self._base_of(checkpoint)
            if self.tail.must_rewrite:
                await self._append_journal(self.tail.rewrite(unsettled))
            if self._retention is not None:
                retained = await self._list_retained(checkpoint.info, self._retention)
                prunes, events_before = retained.add(checkpoint.info)
                draft = msgspec.structs.replace(draft, prunes=prunes, prunes_events_before=events_before)
            graph = self._graph if self._graph and not checkpoint.renamed_types else encode_graph(checkpoint)
        self._base = None  # until the store has them, no commit may rely on its chunks
        commit, trees = encode_commit(
            draft, checkpoint, events, base=base, graph=graph, last_seq=self.last_seq, codec=self.codec
        )
        if on_saved is not None:
            await await_uncancelled(self._commits.add(partial(self._write, commit, trees, on_saved)))
        else:
            if self._commits.queue:
                await self._commits.settle()
            await self._write(commit, trees)
        self.number = commit.number
        if commit.events is not None:
            self.last_seq += commit.events.count
        if checkpoint is not None and base is not None:
            base.checkpoint_id, base.number, base.checkpoint = checkpoint.checkpoint_id, commit.number, checkpoint
            base.root, base.requests = commit.root, checkpoint.pending_request_info_events
            self._retained = retained
        self._base = base
        return commit.info

    async def _list_retained(self, info: CheckpointInfo, retention: Retention) -> RetentionIndex:
        """The stored checkpoints before this one. After a failed commit the list is read again."""
        retained, self._retained = self._retained, None
        if retained is None or not retained.is_current(info, retention, self._recent.changes):
            await self._commits.settle()
            changes = self._recent.changes
            with storage_errors(self._store, "list checkpoints"):
                infos = await self._store.infos(thread_id=info.thread_id)
            retained = RetentionIndex(retention, infos, changes)
        return retained

    async def _base_of(self, checkpoint: WorkflowCheckpoint) -> Recent:
        """The base of a checkpoint that does not follow the one before: a rewind, or the first of a thread."""
        previous = checkpoint.previous_checkpoint_id
        fresh = self._recent_at(None, 0, Chunker())
        if previous is None:
            return fresh
        with storage_errors(self._store, "find a checkpoint"):
            stored = await self._store.find_checkpoint(previous)
        if stored is None or stored.info.thread_id != checkpoint.thread_id:
            return fresh
        _, base = await read_checkpoint_tree(self._store, stored.root, stored.info)
        return self._recent_at(previous, stored.info.number, Chunker(base))

    def _recent_at(self, checkpoint_id: str | None, number: int, chunker: Chunker) -> Recent:
        return Recent(self._declared, checkpoint_id, number, chunker, self._state, self.unchanged)

    async def _write(self, commit: Commit, trees: list[Tree], on_saved: OnSaved | None = None) -> None:
        try:  # like `storage_errors`, without a context manager in every superstep
            await self._store.commit(commit)
        except PerdureError:
            raise
        except Exception as error:
            raise StorageFailed(type(self._store).__name__, "commit", repr(error)) from error
        if observers:
            notify_observers(CommitWritten(size_of(commit)))
        if self.feed is not None and commit.events is not None:
            self.feed.publish_commit(trees, commit.events)
        if on_saved is not None:
            events = commit.events
            on_saved(commit.info, 0 if events is None else events.first_seq + events.count - 1)

    async def settle(self) -> None:
        """Wait until the store has all commits, even if cancelled meanwhile. Raises the error of a failed one."""
        if self._commits.queue:
            await await_uncancelled(self._commits.settle())

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        """Append a delivery's outcome or a record of it to the journal; None cancels its outcome."""
        await self._append_journal([(delivery_id, self.tail.encode_entry(TAKEN_BACK if outcome is None else outcome))])

    async def _append_journal(self, entries: Iterable[tuple[int, bytes]]) -> None:
        if self._commits.queue:
            await self._commits.settle()  # an entry names its head
        with storage_errors(self._store, "append to the journal"):
            for delivery_id, body in entries:
                await self._store.append_journal(self._lease, JournalEntry(self.number, delivery_id, body))

    async def release(self) -> None:
        try:
            await self._store.release(self._lease)
        finally:
            if self.feed is not None:
                self.feed.close()
        if self._base is not None:
            retained = self._retained
            self._base.retained = retained if retained is not None and len(retained) <= MAX_CARRIED_ENTRIES else None
            self._recent.put(self._lease, self.number, self._base)


def size_of(commit: Commit) -> int:
    """Bytes of the new chunks, the root and the events, as encoded."""
    events = 0 if commit.events is None else len(commit.events.body)
    return len(commit.root or b"") + sum(map(len, commit.chunks.values())) + events


Migrate = Callable[[Tree, CheckpointInfo, Codec], Tree]
"""Migrates a checkpoint's tree to the workflow of today, before it is decoded."""


async def read_checkpoint(
    store: Store,
    root: bytes,
    info: CheckpointInfo,
    codec: Codec,
    assembly: Assembly | None = None,
    *,
    migrate: Migrate | None = None,
    known: Mapping[str, bytes] | None = None,
) -> tuple[WorkflowCheckpoint, Chunker]:
    """The checkpoint, and the chunker of the next one. Raises DamagedCheckpoint, and the errors of `migrate`."""
    tree, base = await read_checkpoint_tree(store, root, info, assembly, known)
    try:
        return decode_body(tree if migrate is None else migrate(tree, info, codec), info, codec), Chunker(base)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error


class AsyncCommits:
    """A queue of writes. Each starts after the end of the one before; none starts after a failed one."""

    def __init__(self, max_lag: int) -> None:
        self._max_lag = max_lag
        self.queue: deque[asyncio.Task[None]] = deque()
        self._failure: BaseException | None = None

    async def add(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Queue a write; waits while the queue is full. Raises the error of an earlier write."""
        self._remove_ended()
        while len(self.queue) >= self._max_lag:
            await asyncio.wait([self.queue[0]])
            self._remove_ended()
        if self._failure is not None:
            raise self._failure
        before = self.queue[-1] if self.queue else None
        self.queue.append(asyncio.get_running_loop().create_task(self._write(before, write)))

    async def settle(self) -> None:
        """Wait for all writes. Raises the error of the failed one, once."""
        while self.queue:
            await asyncio.wait([self.queue[-1]])
            self._remove_ended()

    def _remove_ended(self) -> None:
        while self.queue and self.queue[0].done():
            self.queue.popleft().result()

    async def _write(self, before: asyncio.Task[None] | None, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if self._failure is None:
                await write()
        except BaseException as error:
            self._failure = error
            raise
