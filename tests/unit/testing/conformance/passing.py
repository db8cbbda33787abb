"""A store that hands everything on to another: what broken ones are made of, each by changing one thing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

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
from perdure.store import Rewrite, Store, Subscription
from perdure.stores.memory.store import MemoryStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.clause import Clause


class Passing:
    """Broken in no way. The class is a factory: it is called with a folder."""

    def __init__(self, folder: Path) -> None:
        self.inner: Store = MemoryStore()

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        return await self.inner.open(thread_id, owner, takeover=takeover)

    async def renew(self, lease: Lease) -> None:
        await self.inner.renew(lease)

    async def release(self, lease: Lease) -> None:
        await self.inner.release(lease)

    async def commit(self, commit: Commit) -> None:
        await self.inner.commit(commit)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self.inner.append_journal(lease, entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self.inner.post(thread_id, item_id, kind, body)

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return await self.inner.find_checkpoint(checkpoint_id)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        return await self.inner.head(thread_id)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        return await self.inner.read_chunks(thread_id, numbers)

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        return await self.inner.infos(workflow_name=workflow_name, thread_id=thread_id, limit=limit, before=before)

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
        return await self.inner.threads(
            workflow_name=workflow_name,
            thread_id=thread_id,
            prefix=prefix,
            statuses=statuses,
            limit=limit,
            before=before,
        )

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return await self.inner.events_after(thread_id, seq)

    async def last_seq(self, thread_id: str) -> int:
        return await self.inner.last_seq(thread_id)

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        return await self.inner.pending_requests(
            workflow_name=workflow_name, thread_id=thread_id, prefix=prefix, limit=limit
        )

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return await self.inner.due(now, limit)

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        return await self.inner.thread_ids(prefix=prefix, after=after, limit=limit)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.inner.publish(thread_id, body)

    def has_subscribers(self, thread_id: str) -> bool:
        return self.inner.has_subscribers(thread_id)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.inner.subscribe(thread_id)

    async def pin(self, checkpoint_id: str) -> None:
        await self.inner.pin(checkpoint_id)

    async def unpin(self, checkpoint_id: str) -> None:
        await self.inner.unpin(checkpoint_id)

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        return await self.inner.prune(thread_id, checkpoint_ids, events_before=events_before)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        return await self.inner.delete_thread(thread_id, if_unmoved_since=if_unmoved_since)

    async def copy_thread(self, thread_id: str, to: str) -> None:
        await self.inner.copy_thread(thread_id, to)

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        return await self.inner.thread_header(thread_id)

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return await self.inner.commits(thread_id, after=after, limit=limit)

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await self.inner.add_thread(header, commits)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        return await self.inner.rewrite(thread_id, change)

    async def check(self) -> Sequence[Damage]:
        return await self.inner.check()

    async def size(self) -> int:
        return await self.inner.size()

    async def close(self) -> None:
        await self.inner.close()


class OnDisk(Passing):
    """The same over a store that several objects and processes can share."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.inner = SqliteStore(folder / "threads.db", synchronous="OFF")


# ---------------------------------------------------------------- which clause is broken by whom

BROKEN: dict[str, list[type[Passing]]] = {}
"""The stores that do not keep a clause, each in its own way. Filled by the modules that hold them."""

B = TypeVar("B", bound=type[Passing])


def breaks(*clauses: Clause) -> Callable[[B], B]:
    def enter(broken: B) -> B:
        for clause in clauses:
            BROKEN.setdefault(clause.name, []).append(broken)
        return broken

    return enter
