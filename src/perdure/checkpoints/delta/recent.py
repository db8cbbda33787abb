"""The next commit of a thread, encoded; and the threads that this process committed to lately: their next run need not
read what this process wrote.

User code gets only copies of the cached values, so it cannot have changed them; the store is read for values that
cannot be copied. Each opening checks that the store has not moved: by the number, the head, and a fence that is the
next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import is_
from typing import Any

import msgspec

from perdure.checkpoints.checkpoint import WorkflowCheckpoint, due_at, utc_now
from perdure.checkpoints.delta.chunks import Chunker
from perdure.checkpoints.encode import encode_body
from perdure.checkpoints.feed import encode_events
from perdure.checkpoints.history.retention import RetentionIndex
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.errors import UnsavableValue
from perdure.events import RequestTerms, WorkflowEvent
from perdure.isolation import has_only_known_copies, is_fully_copied
from perdure.records import ChildCheckpoint, Commit, Lease, LoggedEvents, OpenedThread, PendingRequest

MIN_ITEMS = 16
"""Only lists with more items are worth the bookkeeping."""


@dataclass(slots=True)
class _EncodedList:
    items: list[Any]
    tree: list[Tree]
    checked: int
    """How many of the items are known to be immutable."""


class IncrementalEncoder(msgspec.Struct):
    """Encodes a dict in every commit. Items of its lists that are the same objects as before, and that `is_immutable`
    accepts, keep their trees; everything else is encoded each time, since user code may have changed it."""

    _is_immutable: Callable[[Any], bool]
    _encoded: dict[str, _EncodedList] = {}

    def encode(self, values: Mapping[str, Any], path: str, codec: Codec) -> Tree:
        """Raises UnsavableValue."""
        is_plain = all(type(key) is str and not key.startswith("$") for key in values)  # other keys need tags
        if not is_plain or not any(type(value) is list and len(value) > MIN_ITEMS for value in values.values()):
            self._encoded = {}
            return codec.encode(values, path)
        tree: dict[str, Tree] = {}
        before, self._encoded = self._encoded, {}
        for key, value in values.items():
            item_path = f"{path}[{key!r}]"
            if type(value) is list and len(value) > MIN_ITEMS:
                encoded = self._encode_list(value, before.get(key), item_path, codec)
                tree[key] = encoded.tree
                self._encoded[key] = encoded
            else:
                tree[key] = codec.encode(value, item_path)
        return tree

    def _encode_list(self, value: list[Any], before: _EncodedList | None, path: str, codec: Codec) -> _EncodedList:
        if before is not None and self._continues(before, value):
            same = len(before.items)
            if same == len(value):
                return before  # with the same tree, so that its chunks need no comparison
            try:
                added = codec.encode(value[same:], path)
            except UnsavableValue:
                codec.encode(value, path)  # raises it again, with the item's index in the whole list
                raise
            return _EncodedList(list(value), before.tree + added, before.checked)
        return _EncodedList(list(value), codec.encode(value, path), 0)

    def _continues(self, before: _EncodedList, value: list[Any]) -> bool:
        items = before.items
        if len(items) > len(value) or not all(map(is_, items, value)):
            return False
        while before.checked < len(items):
            if not self._is_immutable(items[before.checked]):
                return False
            before.checked += 1
        return True


MAX_THREADS = 32
MAX_BYTES = 8 * 1024 * 1024
"""The size of the cache, in threads and in bytes of their chunks. These take about ten times as much memory."""


@dataclass
class Recent:
    """The head of a thread, and what makes its next commit cheap."""

    declared: DeclaredTypes
    """The types of the workflow that wrote it: another workflow reads from the store."""
    checkpoint_id: str | None = None
    number: int = 0
    """The commit of that checkpoint; 0 where there is none."""
    chunker: Chunker = field(default_factory=Chunker)
    state: IncrementalEncoder = field(default_factory=lambda: IncrementalEncoder(is_fully_copied))
    executors: dict[str, IncrementalEncoder] = field(default_factory=dict)
    checkpoint: WorkflowCheckpoint | None = None
    """As values; None if another process wrote it, or a value cannot be copied."""
    root: bytes | None = None
    requests: Mapping[str, WorkflowEvent] | None = None
    """The pending requests in the store; None if unknown."""
    retained: RetentionIndex | None = None
    """The stored checkpoints of the thread, if retention limits them."""


def encode_commit(
    draft: Commit,
    checkpoint: WorkflowCheckpoint | None,
    events: Sequence[WorkflowEvent],
    *,
    base: Recent | None,
    graph: bytes,
    last_seq: int,
    codec: Codec,
) -> tuple[Commit, list[Tree]]:
    """The commit, encoded before user code can change a value, and its logged events as trees. Raises UnsavableValue.

    `base`: the checkpoint before, whose chunks it shares. `graph`: its `encode_graph`. `last_seq`: of the event before.
    """
    info, tree, due, requests = None, None, None, None
    if checkpoint is None or base is None:
        timestamp = utc_now()
    else:
        info, timestamp = checkpoint.info, checkpoint.timestamp
        due = due_at(checkpoint)
        tree = encode_body(checkpoint, codec)
        if checkpoint.state:
            tree["state"] = base.state.encode(checkpoint.state, "state", codec)
        requests = _changed_requests(checkpoint, base)
    trees = encode_events(events, codec)
    chunker = Chunker() if base is None else base.chunker
    packed = chunker.pack(draft.number, tree, graph)
    logged = None
    if trees:
        body, refers, own = chunker.pack_events(trees)
        of_commit = (draft.number, draft.run_id, timestamp, info)
        logged = LoggedEvents(last_seq + 1, len(trees), body, refers, own, *of_commit)
    continues = checkpoint is not None or (logged is not None and logged.refers)
    commit = msgspec.structs.replace(
        draft,
        info=info,
        root=packed.root,
        events=logged,
        timestamp=timestamp,
        parent=base.number or None if base is not None and continues else None,
        chunks=packed.chunks,
        dropped=packed.dropped,
        requests=requests,
        due_at=due,
    )
    return commit, trees


def _changed_requests(checkpoint: WorkflowCheckpoint, base: Recent) -> list[PendingRequest] | None:
    """All pending requests; None if the store has the same."""
    pending, stored = checkpoint.pending_request_info_events, base.requests
    if pending is stored or not (pending or stored or stored is None):
        return None
    asked_at = datetime.fromisoformat(checkpoint.timestamp)
    return [pending_request(checkpoint.thread_id, event, asked_at) for event in pending.values()]


def pending_request(thread_id: str, event: WorkflowEvent, asked_at: datetime) -> PendingRequest:
    request_id, executor_id, terms = str(event.request_id), str(event.source_executor_id), event.terms or RequestTerms()
    return PendingRequest(thread_id, request_id, executor_id, asked_at, terms.deadline, terms.assignee)


class RecentThreads(msgspec.Struct):
    """A cache by thread. The run that opens a thread takes its entry out, and puts it back at its end."""

    _threads: dict[str, tuple[Lease, int, Recent]] = {}
    """The oldest first."""
    _bytes: int = 0
    changes: int = 0
    """How often this storage pinned, unpinned or removed a checkpoint: earlier lists are out of date then."""

    def take(self, opened: OpenedThread, declared: DeclaredTypes) -> Recent | None:
        if opened.lease.thread_id not in self._threads:
            return None
        lease, number, recent = self._take_out(opened.lease.thread_id)
        is_current = (
            opened.info is not None
            and recent.declared is declared
            and (opened.number, opened.lease.fence) == (number, lease.fence + 1)
            and opened.info.checkpoint_id == recent.checkpoint_id
            and opened.root == recent.root
        )
        return recent if is_current else None

    def put(self, lease: Lease, number: int, recent: Recent) -> None:
        if lease.thread_id in self._threads:
            self._take_out(lease.thread_id)
        if recent.checkpoint is None or recent.chunker.size > MAX_BYTES:
            return
        if not has_only_known_copies() and not is_fully_copied(_values(recent.checkpoint)):
            recent.checkpoint = None  # a handler may hold a part of it: the next run reads the store
        self._threads[lease.thread_id] = (lease, number, recent)
        self._bytes += recent.chunker.size
        while len(self._threads) > MAX_THREADS or self._bytes > MAX_BYTES:
            self._take_out(next(iter(self._threads)))

    def _take_out(self, thread_id: str) -> tuple[Lease, int, Recent]:
        entry = self._threads.pop(thread_id)
        self._bytes -= entry[2].chunker.size
        return entry


def _values(level: WorkflowCheckpoint | ChildCheckpoint) -> list[object]:
    """All values that handlers get copies of."""
    values: list[object] = [level.state, level.buffers]
    values += [message.data for message in level.deliveries]
    values += [delivery.message.data for delivery in level.suspended.values()]
    values += [event.data for event in level.pending_request_info_events.values()]
    values += [memory.private for memory in level.executors.values()]
    if isinstance(level, WorkflowCheckpoint):
        values += [level.run_kwargs, [event.data for event in level.outputs]]
    return [*values, *(part for child in level.children.values() for part in (child.message.data, _values(child)))]
