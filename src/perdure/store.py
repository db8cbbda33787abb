"""The contract of stores: bytes in, bytes out, every write proved by its fence.

A store keeps threads. A thread has numbered commits, each with or without a checkpoint; a journal of what was recorded
since the head; an inbox; and an owner. Each method is one atomic step: it happens completely or not at all. When it
returns, its effect is as durable as the store makes anything.

A store never looks into the bytes it keeps, and never calls the engine. It may rely on one property of payloads: they
are JSON, in UTF-8, without line breaks.

Chunks are named `digest.number`: `number` is the commit that holds the chunk. A store keeps a chunk while a checkpoint
needs it: the checkpoint that added it and its successors, until one drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from os import urandom
from typing import Protocol, TypeAlias

import msgspec

from perdure.records import (
    CheckpointInfo,
    Commit,
    Damage,
    JournalEntry,
    Lease,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)

Rewrite: TypeAlias = Callable[[str, str, bytes], bytes]
"""Returns the new bytes of one payload, from its kind (`root`, `chunk`, `events`, `journal`, `inbox`), its name within
its thread and kind (number of the commit, digest, delivery id, item id), and its bytes."""


Progress: TypeAlias = Callable[[int, int, str], None]
"""Called after each thread: how many are done, how many exist, and its id."""


class Subscription(Protocol):
    """Receives the notifications of one thread. A notification is a hint: it may be lost, so correctness must not
    depend on it."""

    async def next(self, seconds: float) -> bytes | None:
        """The next published body; None if the thread may have changed, or after this time."""


class Store(Protocol):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        """Claim the thread, created if it is new, and load its head, journal and inbox, in one round trip. The result
        shows whether the store is encrypted: whether it has a thread `perdure.names.RESERVED_THREAD`.

        The lease's fence is higher than any the thread had before. Raises ThreadBusy, without changing anything,
        while another owner holds the thread; `takeover` claims it all the same. An owner whose process is dead no
        longer holds the thread, nor does one whose lease has expired where its process cannot be checked.
        """

    async def renew(self, lease: Lease) -> None:
        """Extend the lease. Raises ThreadConflict if it was taken over."""

    async def release(self, lease: Lease) -> None:
        """Release the thread. Idempotent; has no effect for a lease that was taken over."""

    async def commit(self, commit: Commit) -> None:
        """Append the commit: checkpoint, chunks, head, events, requests and consumed inbox items, all or nothing.

        A checkpoint removes the journal entries of all deliveries except those that it names unsettled; a commit
        without a checkpoint keeps them all. A checkpoint with the id of another replaces it. Raises ThreadConflict if
        the fence is not the thread's newest, the number is not the next, or the parent is gone; then nothing is stored.

        Once called, it completes and returns or raises even if its caller is cancelled meanwhile. The caller detects
        the cancellation with `Task.cancelling`.
        """

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        """Record an entry of a delivery before its superstep is committed. Raises ThreadConflict like `commit`."""

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        """Put an item into the thread's inbox. Needs no lease; posting one `item_id` again has no effect."""

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        """The checkpoint with this id, whichever thread it belongs to. Raises DamagedCheckpoint."""

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        """All chunks that these commits hold, by number and digest. Omits commits that no longer exist."""

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        """Checkpoints in the order of their commits, oldest first, without payload.

        `limit` selects the newest ones; `before` (a checkpoint id) only those committed earlier: together they page
        backwards through a history. Raises CheckpointNotFound if no checkpoint has the id `before`.
        """

    async def threads(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[ThreadInfo]:
        """Threads that have a commit, in the order of their last commits. Paged like `infos`, by thread id.

        `prefix`: only those whose ids begin with exactly this text; it has no wildcards. A store finds them without
        reading all threads. `statuses`: only those whose status is one of these.
        """

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        """The packed events of all commits that hold an event newer than `seq`, in order; None: all that are kept.

        Raises CursorExpired if the event after `seq` was pruned.
        """

    async def last_seq(self, thread_id: str) -> int:
        """The seq of the last event of the thread, kept or pruned; 0 if it has none. Reads no payload."""

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        """Requests that wait for an answer, across threads, the oldest first. `prefix` is that of `threads`."""

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        """Threads without an owner that are due at this time, the most overdue first."""

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        """All threads of which anything is kept, also those that only have an inbox, in the order of their ids.
        `prefix` is that of `threads`."""

    def publish(self, thread_id: str, body: bytes) -> None:
        """Deliver a body, which is not stored, to the current subscribers of the thread. Never waits and never raises:
        the body may be lost."""

    def has_subscribers(self, thread_id: str) -> bool:
        """Whether the thread may have subscribers: False if `publish` would reach none, True if that is unknown."""

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        """Receive what is published, and notice commits, posts and releases of the thread, in this process and
        others."""

    async def pin(self, checkpoint_id: str) -> None:
        """Protect the checkpoint from pruning. Needs no lease; idempotent. Raises CheckpointNotFound."""

    async def unpin(self, checkpoint_id: str) -> None:
        """Remove that protection. Needs no lease; idempotent. Raises CheckpointNotFound."""

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        """Delete these checkpoints of the thread, and the chunks that no other needs; returns how many existed.

        The events of their commits stay, except those of commits before `events_before`. Pinned checkpoints stay, and
        so do the chunks that the head, a branch or any other checkpoint refers to. Raises ThreadBusy if the head is
        among them and the thread has an owner.
        """

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        """Delete a thread; False if none exists. Raises ThreadBusy while it has an owner.

        `if_unmoved_since` (a commit number): only if that is its last commit, its inbox is empty and no checkpoint of
        it is pinned; otherwise False, without any change.
        """

    async def copy_thread(self, thread_id: str, to: str) -> None:
        """Create a thread `to` with copies of all commits of this one, under new checkpoint ids. The copy has no
        journal, no inbox and no owner. Raises ThreadBusy if a thread `to` exists already."""

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        """All of a thread except its commits; None if no such thread exists. Raises DamagedCheckpoint."""

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        """The thread's commits after a number, as they are stored, in order. Their leases name only the thread.

        Raises DamagedCheckpoint.
        """

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        """Add a thread as another store had it, with its numbers and ids, all or nothing. Reads the iterable once.

        Raises ThreadExists if the thread id, or a checkpoint id, exists already.
        """

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        """Replace every payload of the thread by what `change` returns; returns how many differ. Changes nothing else.

        Needs no lease: the owner of the thread keeps running. Atomic for each commit, journal entry and inbox item.
        """

    async def check(self) -> Sequence[Damage]:
        """All damage that the store can detect by itself."""

    async def size(self) -> int:
        """Bytes that the store occupies now."""

    async def close(self) -> None:
        """Close files and connections. Idempotent; a later call opens them again."""


# ---------------------------------------------------------------- a thread under another id


def rename_header(header: ThreadHeader, to: str) -> ThreadHeader:
    requests = [msgspec.structs.replace(request, thread_id=to) for request in header.requests]
    return msgspec.structs.replace(header, thread_id=to, requests=requests)


def rename_commit(commit: Commit, to: str, ids: MutableMapping[str, str]) -> Commit:
    """The commit as one of thread `to`. Its checkpoint gets the id that `ids` has for it, or a new one, which `ids`
    receives."""
    info = commit.info
    if info is not None:
        previous = info.previous_checkpoint_id
        info = msgspec.structs.replace(
            info,
            checkpoint_id=ids.setdefault(info.checkpoint_id, urandom(12).hex()),
            thread_id=to,
            previous_checkpoint_id=None if previous is None else ids.get(previous, previous),
            is_pinned=False,
        )
    return msgspec.structs.replace(commit, lease=Lease(to, "", 0), info=info)
