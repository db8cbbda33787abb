"""The contract of stores: bytes in, bytes out, every write proved by its fence.

A store keeps threads. Each method is one atomic step: it happens wholly or not at all. A store never decodes
what it keeps and never calls the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.records import CheckpointInfo, Commit, JournalEntry, Lease, LoggedEvents, OpenedThread, StoredCheckpoint


class Store(Protocol):
    never_waits: bool
    """Whether every method ends without awaiting anything. A commit of one that waits is waited for even if its run
    is cancelled meanwhile."""

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        """Claim the thread (made if it is new) and read where it stands.

        The lease's fence is higher than any the thread had before. Raises ThreadBusy, without touching anything,
        while another owner holds the thread; `takeover` takes it all the same.
        """

    async def release(self, lease: Lease) -> None:
        """Give the thread up. Idempotent; a lease that was taken over is left alone."""

    async def commit(self, commit: Commit) -> None:
        """Append the commit: checkpoint, head, events and consumed inbox items, all or nothing.

        Journal entries go with a checkpoint, but for those of deliveries that it names unsettled; a commit without a
        checkpoint keeps them all. Raises ThreadConflict if the fence is not the thread's newest or the number is not
        the next; then nothing of it is stored.
        """

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        """Record something of a delivery before its superstep is committed. Raises ThreadConflict like `commit`."""

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        """Put an item into the thread's inbox. Needs no lease; posting one `item_id` again does nothing."""

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        """The checkpoint with this id, whichever thread it belongs to."""

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        """The thread's newest checkpoint, without claiming the thread."""

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
        backwards through a history.
        """

    async def put_checkpoint(self, stored: StoredCheckpoint) -> None:
        """Add a checkpoint made outside the engine, as its thread's newest; one with the same id is replaced.

        Raises ThreadBusy while the thread has an owner.
        """

    async def delete_checkpoint(self, checkpoint_id: str) -> bool:
        """Forget one checkpoint. False if there was none."""

    async def events_after(self, thread_id: str, seq: int) -> Sequence[LoggedEvents]:
        """The packed events of all commits that hold an event newer than `seq`, in order."""
