"""Threads that were moved lately: the next run need not read what this process wrote a moment ago.

What is remembered is handed to user code only as copies, so it cannot have changed; values that cannot be copied are
read from the store. Whether the store still stands there is proved at every opening: by the number, the head, and a
fence that is the next one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from perdure.checkpoints.checkpoint import ChildCheckpoint, WorkflowCheckpoint
from perdure.checkpoints.delta.chunks import Chunker
from perdure.checkpoints.delta.incremental import Unchanged
from perdure.checkpoints.history.retention import RetentionIndex
from perdure.codec import Codec, DeclaredTypes
from perdure.isolation import has_only_known_copies, is_fully_copied
from perdure.records import Lease, OpenedThread

KEPT_THREADS = 32
KEPT_BYTES = 8 * 1024 * 1024
"""How much is remembered, in threads and in the bytes of their chunks. In memory that is about ten times as much."""


@dataclass
class Recent:
    """Where a thread stands, with what makes the next commit cheap."""

    declared: DeclaredTypes
    """Of the workflow that wrote it: another one reads what is stored."""
    codec: Codec
    checkpoint_id: str | None
    number: int
    """The commit of that checkpoint; 0 where there is none."""
    chunker: Chunker
    state: Unchanged
    executors: dict[str, Unchanged] = field(default_factory=dict)
    checkpoint: WorkflowCheckpoint | None = None
    """As values; None if it was not written by this process, or has values that cannot be copied."""
    root: bytes | None = None
    requests: object = None
    """Those that the store knows to be pending."""
    kept: RetentionIndex | None = None
    """What is stored of the thread, where retention limits that."""


class RecentThreads:
    """The last few, by thread. Each is taken out by the run that opens its thread, and put back when that ends."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, tuple[Lease, int, Recent]] = OrderedDict()
        self._bytes = 0
        self.changes = 0
        """How often something was pinned, unpinned or removed here: lists that were read before are out of date."""

    def take(self, opened: OpenedThread, declared: DeclaredTypes) -> Recent | None:
        found = self._take_out(opened.lease.thread_id)
        if found is None:
            return None
        lease, number, recent = found
        is_current = (
            opened.info is not None
            and recent.declared is declared
            and (opened.number, opened.lease.fence) == (number, lease.fence + 1)
            and opened.info.checkpoint_id == recent.checkpoint_id
            and opened.root == recent.root
        )
        return recent if is_current else None

    def put(self, lease: Lease, number: int, recent: Recent) -> None:
        self._take_out(lease.thread_id)
        if recent.checkpoint is None or recent.chunker.size > KEPT_BYTES:
            return
        if not has_only_known_copies() and not is_fully_copied(_values(recent.checkpoint)):
            recent.checkpoint = None  # a handler may hold a part of it: the next run reads what is stored
        self._threads[lease.thread_id] = (lease, number, recent)
        self._bytes += recent.chunker.size
        while len(self._threads) > KEPT_THREADS or self._bytes > KEPT_BYTES:
            self._take_out(next(iter(self._threads)))

    def _take_out(self, thread_id: str) -> tuple[Lease, int, Recent] | None:
        found = self._threads.pop(thread_id, None)
        if found is not None:
            self._bytes -= found[2].chunker.size
        return found


def _values(level: WorkflowCheckpoint | ChildCheckpoint) -> list[object]:
    """All that handlers are given copies of."""
    found: list[object] = [level.state, level.buffers]
    found += [message.data for message in level.deliveries]
    found += [one.message.data for one in level.suspended.values()]
    found += [event.data for event in level.pending_request_info_events.values()]
    found += [memory.private for memory in level.executors.values()]
    if isinstance(level, WorkflowCheckpoint):
        found += [level.run_kwargs, [event.data for event in level.outputs]]
    return [*found, *(part for child in level.children.values() for part in (child.message.data, _values(child)))]
