"""A thread in one of perdure's own stores: its checkpoints as chunks, its journal, its inbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from perdure.checkpoints.checkpoint import ChildCheckpoint, WorkflowCheckpoint, utc_now
from perdure.checkpoints.delta.assembly import Assembly
from perdure.checkpoints.delta.chunks import Base, Chunker
from perdure.checkpoints.delta.incremental import Unchanged
from perdure.checkpoints.encoding.checkpoint import decode_body, encode_body, encode_graph
from perdure.checkpoints.encoding.events import event_trees
from perdure.checkpoints.history.retention import MAX_CARRIED_ENTRIES, FullHistory, Retention, RetentionIndex
from perdure.checkpoints.migration.migrations import Migrator, RenamedType
from perdure.checkpoints.open_thread import TAKEN_BACK, OnSaved, storage_errors
from perdure.checkpoints.recent import Recent, RecentThreads
from perdure.checkpoints.uncommitted import AsyncCommits, Tail
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.errors import DamagedCheckpoint, PerdureError, StorageFailed, UnreadableValue
from perdure.events import WorkflowEvent
from perdure.isolation import is_fully_copied
from perdure.observing import CommitWritten, notify_observers, observers
from perdure.records import CheckpointInfo, Commit, JournalEntry, LoggedEvents, OpenedThread, PendingRequest
from perdure.store import Store

_NOTHING: tuple[Sequence[int], int] = ((), 0)


class StoredThread:
    """Implements `OpenThread`. What a checkpoint shares with the one before is not written again."""

    has_journal = True
    has_inbox = True

    def __init__(
        self,
        store: Store,
        opened: OpenedThread,
        declared: DeclaredTypes,
        make_codec: Callable[[DeclaredTypes], Codec],
        recent: RecentThreads,
        *,
        max_lag: int = 1,
        retention: Retention | None = None,
        migrator: Migrator | None = None,
    ) -> None:
        self._base: Recent | None = recent.take(opened, declared)
        """The checkpoint that the next one is compared with, and continues from."""
        self._declared = declared
        self.codec = make_codec(declared) if self._base is None else self._base.codec
        self.finishes_commits = getattr(store, "finishes_commits", False)
        self.number = opened.number
        self.last_seq = opened.last_seq
        self.head_id = None if opened.info is None else opened.info.checkpoint_id
        self.status = opened.status
        """As the thread stood when it was opened."""
        self._store = store
        self._lease = opened.lease
        self._opened = opened
        self._tail = Tail(opened, migrator)
        self._recent = recent
        self._lagging = AsyncCommits(max_lag)
        self._retention = None if isinstance(retention, FullHistory) else retention
        self._kept = None if self._base is None else self._base.kept
        """What is stored, for retention; None until it is read."""
        self._is_first = self._base is None
        self._graph: tuple[object, object, bytes] = (None, None, b"{}")
        self._requests: object = None if self._base is None else self._base.requests
        """Those that the store knows of."""
        self._state = Unchanged(is_fully_copied) if self._base is None else self._base.state
        self.unchanged: dict[str, Unchanged] = {} if self._base is None else self._base.executors

    # ------------------------------------------------------------ what there is

    @property
    def is_stale(self) -> bool:
        return self._tail.is_stale

    def load_journal(self) -> dict[int, list[Tree]]:
        return self._tail.journal()

    def load_inbox(self, renamed: Sequence[RenamedType] = ()) -> dict[str, Any]:
        return self._tail.inbox(self.codec, renamed)

    async def load_head(self) -> WorkflowCheckpoint | None:
        opened = self._opened
        if opened.damage is not None:
            name = "of its head" if opened.info is None else opened.info.checkpoint_id
            raise DamagedCheckpoint(name, opened.damage, opened.lease.thread_id)
        if opened.info is None or opened.root is None:
            return None
        if self._base is not None and self._base.checkpoint is not None:
            return self._base.checkpoint
        checkpoint, chunker = await read_checkpoint(
            self._store, opened.root, opened.info, self.codec, migrate=self._tail.migrate
        )
        self._base = self._standing(opened.info.checkpoint_id, opened.info.number, chunker)
        return checkpoint

    # ------------------------------------------------------------ commits

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
        base = self._base
        if checkpoint is not None and (base is None or base.checkpoint_id != checkpoint.previous_checkpoint_id):
            base = await self._base_of(checkpoint)
        if self._tail.is_rewritten and checkpoint is not None:
            await self._rewrite_journal(unsettled)
        kept, outdated = None, _NOTHING
        if self._retention is not None and checkpoint is not None:
            kept, outdated = await self._outdated(checkpoint.info, self._retention)
        self._base = None  # until it is stored, nothing may rely on its chunks; the next checkpoint would be whole
        commit = self._packed(checkpoint, base, events, run_id, status, unsettled, consumed, outdated)
        if on_saved is None:
            await self._lagging.settled()
            await self._write(commit)
        else:
            await self._lagging.add(partial(self._write, commit, on_saved))
        self.number = commit.number
        if commit.events is not None:
            self.last_seq += commit.events.count
        if checkpoint is not None and base is not None:
            base.checkpoint_id, base.number, base.checkpoint = checkpoint.checkpoint_id, commit.number, checkpoint
            base.root, base.requests = commit.root, self._requests
            self._kept = kept
        self._base = base
        return commit.info

    def _packed(
        self,
        checkpoint: WorkflowCheckpoint | None,
        base: Recent | None,
        events: Sequence[WorkflowEvent],
        run_id: str,
        status: str,
        unsettled: Sequence[int],
        consumed: Sequence[str],
        outdated: tuple[Sequence[int], int],
    ) -> Commit:
        """All of it encoded, before anything else happens to the values. Raises UnsavableValue."""
        number, codec = self.number + 1, self.codec
        tree, graph, info = None, b"{}", None
        if checkpoint is None:
            timestamp = utc_now()
        else:
            info, timestamp = checkpoint.info, checkpoint.timestamp
            tree, graph = encode_body(checkpoint, codec), self._graph_of(checkpoint)
            if checkpoint.state:
                tree["state"] = self._state.encode(checkpoint.state, "state", codec)
        trees = event_trees(events, codec)
        chunker = Chunker() if base is None else base.chunker
        packed = chunker.pack(number, tree, graph)
        logged, refers = None, False
        if trees:
            told = chunker.pack_events(trees)
            refers = told.refers
            of_commit = (number, run_id, timestamp, info)
            logged = LoggedEvents(self.last_seq + 1, len(trees), told.body, refers, told.own, *of_commit)
        return Commit(
            self._lease,
            number,
            info,
            packed.root,
            logged,
            unsettled,
            consumed,
            status,
            run_id,
            timestamp,
            base.number or None if base is not None and (checkpoint is not None or refers) else None,
            packed.chunks,
            packed.dropped,
            None if checkpoint is None else self._requests_of(checkpoint),
            None if checkpoint is None else due_at(checkpoint),
            outdated[0],
            outdated[1],
        )

    async def _outdated(
        self, info: CheckpointInfo, retention: Retention
    ) -> tuple[RetentionIndex, tuple[Sequence[int], int]]:
        """What goes with a checkpoint, and the list as it is then. Should the commit fail, it is read again."""
        kept, self._kept = self._kept, None
        if kept is None or not kept.is_current(info, retention, self._recent.changes):
            await self._lagging.settled()
            changes = self._recent.changes
            with storage_errors(self._store, "list checkpoints"):
                infos = await self._store.infos(thread_id=info.thread_id)
            kept = RetentionIndex(retention, infos, changes)
        return kept, kept.add(info)

    def _graph_of(self, checkpoint: WorkflowCheckpoint) -> bytes:
        signature, renamed, graph = checkpoint.graph_signature, checkpoint.renamed_types, self._graph
        if signature is not graph[0] or renamed is not graph[1]:  # the same in every commit of a run: encoded once
            self._graph = graph = signature, renamed, encode_graph(checkpoint)
        return graph[2]

    def _requests_of(self, checkpoint: WorkflowCheckpoint) -> list[PendingRequest] | None:
        requests = checkpoint.pending_request_info_events
        if requests is self._requests or not (requests or self._requests or (self._opened.number and self._is_first)):
            return None
        self._is_first = False
        self._requests = requests
        asked_at = datetime.fromisoformat(checkpoint.timestamp)
        return [pending_request(checkpoint.thread_id, event, asked_at) for event in requests.values()]

    async def _base_of(self, checkpoint: WorkflowCheckpoint) -> Recent:
        """What a checkpoint continues from that does not follow the one before: a rewind, or the first of a thread."""
        previous = checkpoint.previous_checkpoint_id
        fresh = self._standing(None, 0, Chunker())
        if previous is None:
            return fresh
        with storage_errors(self._store, "find a checkpoint"):
            stored = await self._store.find_checkpoint(previous)
        if stored is None or stored.info.thread_id != checkpoint.thread_id:
            return fresh
        _, base = await read_tree(self._store, stored.root, stored.info)
        return self._standing(previous, stored.info.number, Chunker(base))

    def _standing(self, checkpoint_id: str | None, number: int, chunker: Chunker) -> Recent:
        return Recent(self._declared, self.codec, checkpoint_id, number, chunker, self._state, self.unchanged)

    async def _write(self, commit: Commit, on_saved: OnSaved | None = None) -> None:
        try:  # as `storage_errors` does, without the cost of a context manager in every superstep
            await self._store.commit(commit)
        except PerdureError:
            raise
        except Exception as error:
            raise StorageFailed(type(self._store).__name__, "commit", repr(error)) from error
        if observers:
            notify_observers(CommitWritten(size_of(commit)))
        if on_saved is not None:
            events = commit.events
            on_saved(commit.info, 0 if events is None else events.first_seq + events.count - 1)

    async def settled(self) -> None:
        await self._lagging.settled()

    async def record(self, delivery_id: int, outcome: Tree | None) -> None:
        await self._lagging.settled()  # an entry names the head that it extends
        body = self._tail.recorded(TAKEN_BACK if outcome is None else outcome)
        with storage_errors(self._store, "append to the journal"):
            await self._store.append_journal(self._lease, JournalEntry(self.number, delivery_id, body))

    async def _rewrite_journal(self, unsettled: Sequence[int]) -> None:
        """What stays in the journal must fit the head that was migrated, once that is stored."""
        await self._lagging.settled()
        with storage_errors(self._store, "append to the journal"):
            for delivery_id, body in self._tail.rewritten(unsettled):
                await self._store.append_journal(self._lease, JournalEntry(self.number, delivery_id, body))

    async def release(self) -> None:
        await self._store.release(self._lease)
        if self._base is not None:
            self._base.kept = self._kept if self._kept is not None and len(self._kept) <= MAX_CARRIED_ENTRIES else None
            self._recent.put(self._lease, self.number, self._base)


def size_of(commit: Commit) -> int:
    """Bytes of what is new in it, as encoded."""
    events = 0 if commit.events is None else len(commit.events.body)
    return len(commit.root or b"") + sum(map(len, commit.chunks.values())) + events


# ---------------------------------------------------------------- reading


Migrate = Callable[[Tree, CheckpointInfo, Codec], Tree]
"""Brings a checkpoint's tree to the workflow of today before it is decoded."""


READS_WORTH_REMEMBERING = 3
"""How often a store is asked for a checkpoint, level by level, before it is told to have its chunks at hand."""


def new_assembly(store: Store, thread_id: str, *, recalls: bool = False) -> Assembly:
    """`recalls`: what the store has at hand comes first, if it has such a thing (`AcceleratedStore`)."""

    async def read_chunks(numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        with storage_errors(store, "read chunks"):
            return await store.read_chunks(thread_id, numbers)

    recall = getattr(store, "recall", None) if recalls else None
    return Assembly(read_chunks, None if recall is None else partial(recall, thread_id))


async def whole_tree(
    store: Store, thread_id: str, data: bytes, what: str, assembly: Assembly | None = None
) -> tuple[Tree, Base]:
    """Raises UnreadableValue, whatever the bytes hold. `assembly` has what was read of the thread already."""
    assembly = new_assembly(store, thread_id) if assembly is None else assembly
    try:
        tree, base = await assembly.tree(data, what)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableValue(what, f"its chunks do not fit together ({error!r})") from error
    return tree, base


async def read_tree(
    store: Store, root: bytes, info: CheckpointInfo, assembly: Assembly | None = None
) -> tuple[Tree, Base]:
    """A whole checkpoint, undecoded. Raises DamagedCheckpoint."""
    own = new_assembly(store, info.thread_id, recalls=True) if assembly is None else assembly
    try:
        read = await whole_tree(store, info.thread_id, root, f"checkpoint {info.checkpoint_id!r}", own)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error
    except DamagedCheckpoint as error:  # it shares what another commit holds
        raise DamagedCheckpoint(info.checkpoint_id, error.reason, info.thread_id) from error
    remember = getattr(store, "remember", None)
    if remember is not None and own is not assembly and own.reads >= READS_WORTH_REMEMBERING:
        remember(info.thread_id, info.number, own.numbers)
    return read


async def read_checkpoint(
    store: Store,
    root: bytes,
    info: CheckpointInfo,
    codec: Codec,
    assembly: Assembly | None = None,
    *,
    migrate: Migrate | None = None,
) -> tuple[WorkflowCheckpoint, Chunker]:
    """The checkpoint, and what is needed to write the next. Raises DamagedCheckpoint, and what `migrate` raises."""
    tree, base = await read_tree(store, root, info, assembly)
    try:
        return decode_body(tree if migrate is None else migrate(tree, info, codec), info, codec), Chunker(base)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error


def pending_request(thread_id: str, event: WorkflowEvent, asked_at: datetime) -> PendingRequest:
    terms = event.terms
    return PendingRequest(
        thread_id,
        str(event.request_id),
        str(event.source_executor_id),
        asked_at,
        None if terms is None else terms.deadline,
        None if terms is None else terms.assignee,
    )


def due_at(level: WorkflowCheckpoint | ChildCheckpoint) -> datetime | None:
    """When the first of its sleepers is due, or the first deadline passes; at any level."""
    if not level.suspended and not level.children and not level.pending_request_info_events:
        return None
    asked = level.pending_request_info_events.values()
    times = [
        *(one.due_at for one in level.suspended.values()),
        *(event.terms.deadline for event in asked if event.terms is not None),
        *(child.due_at or due_at(child) for child in level.children.values()),
    ]
    return min((time for time in times if time is not None), default=None)
