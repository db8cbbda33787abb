"""The contract of stores: bytes in, bytes out, every write proved by its fence.

A store keeps threads. A thread is a line of numbered commits, each with or without a checkpoint; a journal of what was
recorded since the head; an inbox; and an owner. Each method is one atomic step: it happens wholly or not at all, and
when it returns it is as durable as the store makes anything. A store never looks into the bytes it keeps, and never
calls the engine: all it may count on is that what it is given is JSON, in UTF-8 and without line breaks.

Chunks are named `digest.number`: `number` is the commit that holds the chunk. A chunk lives as long as a checkpoint
needs it: the one that brought it and those after it, until one drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeAlias

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
    ThreadInfo,
    ThreadStanding,
)

Rewrite: TypeAlias = Callable[[str, str, bytes], bytes]
"""What becomes of one payload: its kind (`root`, `chunk`, `events`, `journal`, `inbox`), its name within its thread and
kind (number of the commit, digest, delivery id, item id), and its bytes."""


class Listener(Protocol):
    """Hears of one thread. What it hears is a hint: some of it may be lost, and nothing may depend on it."""

    async def next(self, seconds: float) -> bytes | None:
        """What somebody told; None if the thread may have changed, or after this time."""


class Store(Protocol):
    finishes_commits: bool
    """Whether `commit`, once called, comes to its end and tells how, even if its caller is cancelled meanwhile (which
    the caller's task then knows by `Task.cancelling`). For one that does not, the engine waits in a task of its own."""

    # ------------------------------------------------------------ owning a thread

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        """Claim the thread (made if it is new) and read where it stands: head, journal and inbox, in one round trip.

        The lease's fence is higher than any the thread had before. Raises ThreadBusy, without touching anything,
        while another owner holds the thread; `takeover` takes it all the same. An owner whose process is dead, or
        whose lease has run out where that cannot be seen, does not hold it any more.
        """

    async def renew(self, lease: Lease) -> None:
        """Keep the lease from running out. Raises ThreadConflict if it was taken over."""

    async def release(self, lease: Lease) -> None:
        """Give the thread up. Idempotent; a lease that was taken over is left alone."""

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        """Append the commit: checkpoint, chunks, head, events, requests and consumed inbox items, all or nothing.

        Journal entries go with a checkpoint, but for those of deliveries that it names unsettled; a commit without a
        checkpoint keeps them all. A checkpoint with the id of another takes its place. Raises ThreadConflict if the
        fence is not the thread's newest, the number is not the next, or the parent is gone; then nothing is stored.
        """

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        """Record something of a delivery before its superstep is committed. Raises ThreadConflict like `commit`."""

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        """Put an item into the thread's inbox. Needs no lease; posting one `item_id` again does nothing."""

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        """The checkpoint with this id, whichever thread it belongs to. Raises DamagedCheckpoint."""

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        """All chunks that these commits hold, by number and digest. A commit that is gone is left out."""

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        """Checkpoints in the order of their commits, oldest first, without payload.

        `limit` keeps the newest ones; `before` (a checkpoint id) only those committed earlier: together they page
        backwards through a history. Raises CheckpointNotFound for a `before` that there is not.
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
        """Threads that have a commit, those that moved last at the end. Paged like `infos`, by thread id.

        `prefix`: only those whose ids begin with this text, to the letter; no character of it stands for others. A
        store finds them without reading all threads. `statuses`: only those whose status is one of these.
        """

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        """The packed events of all commits that hold an event newer than `seq`, in order; None: all that are kept.

        Raises CursorExpired if the event after `seq` was forgotten.
        """

    async def last_seq(self, thread_id: str) -> int:
        """The seq of the last event of the thread, be it kept or forgotten; 0 if it has none. Reads no payload."""

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        """Questions that wait for an answer, across threads, those that wait longest first. `prefix` is that of
        `threads`."""

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        """Threads without an owner that have something to do by themselves at this time, the most overdue first."""

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        """All threads of which anything is kept, also those that were only posted to, in the order of their ids.
        `prefix` is that of `threads`."""

    # ------------------------------------------------------------ listening

    def tell(self, thread_id: str, body: bytes) -> None:
        """Pass on what is not kept to those who listen to the thread now. Never waits and never raises: it may be
        lost."""

    def is_heard(self, thread_id: str) -> bool:
        """Whether anybody could be listening: False where what is told would reach nobody, True if it is not known."""

    def listen(self, thread_id: str) -> AbstractAsyncContextManager[Listener]:
        """Hear what is told, and that the thread was committed to, posted to or released, here or elsewhere."""

    # ------------------------------------------------------------ keeping, removing and copying

    async def pin(self, checkpoint_id: str) -> None:
        """Keep the checkpoint, whatever is pruned. Needs no lease; idempotent. Raises CheckpointNotFound."""

    async def unpin(self, checkpoint_id: str) -> None:
        """Let it go like any other. Needs no lease; idempotent. Raises CheckpointNotFound."""

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        """Forget these checkpoints of the thread, and the chunks that no other needs; how many there were.

        The events of their commits stay, but for those of commits before `events_before`. What is pinned stays, and
        what the head, a branch, or anybody else's checkpoint refers to. Raises ThreadBusy if the head is among them
        and the thread has an owner.
        """

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        """Forget all of a thread; False if there was none. Raises ThreadBusy while it has an owner.

        `if_unmoved_since` (a commit number): only if that is its last commit, its inbox is empty and nothing of it is
        pinned; otherwise False, and nothing is changed.
        """

    async def copy_thread(self, thread_id: str, to: str) -> None:
        """Make a thread `to` with copies of all commits of this one, under new checkpoint ids. The copy has no journal,
        no inbox and no owner. Raises ThreadBusy if there is a thread `to` already."""

    async def standing(self, thread_id: str) -> ThreadStanding | None:
        """All of a thread but its commits; None if there is none. Raises DamagedCheckpoint."""

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        """The thread's commits after a number, as they are stored, in order. Their leases say only the thread.

        Raises DamagedCheckpoint.
        """

    async def add_thread(self, standing: ThreadStanding, commits: Iterable[Commit]) -> None:
        """Keep a thread as another store had it, with its numbers and ids, all or nothing. The iterable is read once.

        Raises ThreadExists for a thread id, or a checkpoint id, that there is already.
        """

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        """Put every payload of the thread through `change`; how many came back different. Nothing else is changed.

        Needs no lease: whoever owns the thread goes on. Atomic for each commit, journal entry and inbox item.
        """

    # ------------------------------------------------------------ as a whole

    async def check(self) -> Sequence[Damage]:
        """Whatever the store itself can tell to be damaged, in all that it keeps."""

    async def size(self) -> int:
        """Bytes that it takes now."""

    async def close(self) -> None:
        """Give back files and connections. Idempotent; what is called afterwards opens them again."""
