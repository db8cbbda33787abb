"""A store that encrypts what it stores in another one.

It encrypts each payload by itself and replaces the names of chunks. Ids, numbers and times stay readable. The caller
and the store below need not know: payloads go in and come out plain, and the store below keeps JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perdure.clock import await_uncancelled
from perdure.errors import DamagedCheckpoint, MissingKey, PlaintextRefused, UnsupportedId
from perdure.log import get_logger
from perdure.names import RESERVED_THREAD
from perdure.records import (
    Commit,
    Damage,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    OpenedThread,
    StoredCheckpoint,
    ThreadHeader,
)
from perdure.store import Progress, Rewrite, Store, Subscription
from perdure.stores.encrypted.keys import RekeyReport, create_key, find_damage, find_key, rekey
from perdure.stores.encrypted.names import Names
from perdure.stores.encrypted.payloads import Encryption, ThreadPayloads
from perdure.stores.layer import StoreLayer, copy_thread

logger = get_logger("stores")

CACHED_THREADS = 1024
"""Threads whose `ThreadPayloads` are cached."""
_CHECKED = frozenset({"infos", "threads", "last_seq", "pending_requests", "due", "pin", "unpin", "prune"})
"""Methods of the store below that need the key, and nothing else of the encryption."""


class EncryptedStore(StoreLayer):
    """Implements `perdure.store.Store` over another one: `EncryptedStore(store, AesGcm(key))`."""

    def __init__(self, store: Store, encryption: Encryption) -> None:
        super().__init__(store)
        self._encryption = encryption
        self._key: bytes | None = None
        """The key of chunk names. It is read once, and never changes."""
        self._payloads = lru_cache(maxsize=CACHED_THREADS)(self._make_payloads)

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)

        async def check_and_call(*args: Any, **options: Any) -> Any:
            await self._check()
            return await method(*args, **options)

        return check_and_call if name in _CHECKED else method

    async def _check(self) -> None:
        """Raises MissingKey or PlaintextRefused, before any payload is read or written."""
        if self._key is None:
            self._key = await find_key(self.inner, self._encryption)

    async def _prepare_write(self) -> None:
        await self._check()
        if self._key is None:
            self._key = await create_key(self.inner, self._encryption)

    def _make_payloads(self, thread_id: str, key: bytes | None) -> ThreadPayloads:
        names = None if key is None else Names(self._encryption.scrambler(key, thread_id))
        return ThreadPayloads(self._encryption, thread_id, names)

    async def _for_reading(self, thread_id: str) -> ThreadPayloads:
        """Call it after the read: the writer of a payload created the key before."""
        await self._check()
        return self._payloads(thread_id, self._key)

    async def _for_writing(self, thread_id: str) -> ThreadPayloads:
        if thread_id == RESERVED_THREAD:
            raise UnsupportedId("thread_id", thread_id, "an encrypted store keeps its own key under this id")
        if self._key is None:
            await self._prepare_write()
        return self._payloads(thread_id, self._key)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        payloads = await self._for_writing(thread_id)
        if takeover:
            try:  # an owner must not lose the thread to a process without its key
                await self.thread_header(thread_id)
                await self.head(thread_id)
            except (DamagedCheckpoint, PlaintextRefused):
                pass  # the thread can be claimed: the result shows the damage
        opened = await self.inner.open(thread_id, owner, takeover=takeover)
        try:
            return payloads.unseal_opened(opened)
        except MissingKey:
            await await_uncancelled(self.inner.release(opened.lease))
            raise

    async def commit(self, commit: Commit) -> None:
        if self._key is None:
            await await_uncancelled(self._prepare_write())  # `commit` completes once it is called
        payloads = await self._for_writing(commit.lease.thread_id)
        await self.inner.commit(payloads.seal_commit(commit))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        payloads = await self._for_writing(lease.thread_id)
        await self.inner.append_journal(lease, payloads.seal_entry(entry))

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        payloads = await self._for_writing(thread_id)
        item = payloads.seal_item(InboxItem(item_id, kind, body))
        await self.inner.post(thread_id, item_id, kind, item.body)

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        await self._check()
        return await self._unseal(await self.inner.find_checkpoint(checkpoint_id))

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        await self._check()
        return await self._unseal(await self.inner.head(thread_id))

    async def _unseal(self, stored: StoredCheckpoint | None) -> StoredCheckpoint | None:
        return None if stored is None else (await self._for_reading(stored.info.thread_id)).unseal_checkpoint(stored)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        await self._check()
        chunks = await self.inner.read_chunks(thread_id, numbers)
        return (await self._for_reading(thread_id)).unseal_chunks(chunks)

    async def recall(self, thread_id: str) -> Mapping[int, Mapping[str, bytes]]:
        """The cached chunks of the store below, if it is an `AcceleratedStore`. They may be wrong in any way."""
        recall = getattr(self.inner, "recall", None)
        if recall is None or self._key is None:
            return {}
        return (await self._for_reading(thread_id)).unseal_recalled(await recall(thread_id))

    def remember(self, thread_id: str, number: int, numbers: Iterable[int]) -> None:
        """As `AcceleratedStore.remember`."""
        remember = getattr(self.inner, "remember", None)
        if remember is not None:
            remember(thread_id, number, numbers)

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        await self._check()
        ids = await self.inner.thread_ids(prefix=prefix, after=after, limit=None if limit is None else limit + 1)
        return [thread_id for thread_id in ids if thread_id != RESERVED_THREAD][:limit]

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        await self._check()
        logged = await self.inner.events_after(thread_id, seq)
        return (await self._for_reading(thread_id)).unseal_events(logged)

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        await self._check()
        header = None if thread_id == RESERVED_THREAD else await self.inner.thread_header(thread_id)
        return None if header is None else (await self._for_reading(thread_id)).unseal_header(header)

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        await self._check()
        commits = await self.inner.commits(thread_id, after=after, limit=limit)
        return (await self._for_reading(thread_id)).unseal_commits(commits)

    def publish(self, thread_id: str, body: bytes) -> None:
        try:
            encrypted = self._encryption.encrypt(thread_id, "live", body)
        except Exception as error:  # noqa: BLE001  # of a key provider: a published body may be lost
            logger.debug("a live event of thread %s is lost: %r", thread_id, error)
        else:
            self.inner.publish(thread_id, encrypted)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return _EncryptedSubscription(self.inner.subscribe(thread_id), self._encryption, thread_id)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        await self._check()
        if thread_id == RESERVED_THREAD:
            return False
        return await self.inner.delete_thread(thread_id, if_unmoved_since=if_unmoved_since)

    copy_thread = copy_thread

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        payloads = await self._for_writing(header.thread_id)
        await self.inner.add_thread(payloads.seal_header(header), map(payloads.seal_commit, commits))

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        await self._check()
        if thread_id == RESERVED_THREAD:
            return 0
        return await self.inner.rewrite(thread_id, (await self._for_reading(thread_id)).encrypted_change(change))

    async def rekey(self, *, dry_run: bool = False, progress: Progress | None = None) -> RekeyReport:
        """Encrypt everything with the current key. Running threads keep running. After an interruption, call it again.
        `dry_run` only counts."""
        await self._check()
        return await rekey(self.inner, self._encryption, dry_run=dry_run, progress=progress)

    async def check(self) -> Sequence[Damage]:
        await self._check()
        return [*await self.inner.check(), *await find_damage(self.inner, self._encryption)]


@dataclass
class _EncryptedSubscription(AbstractAsyncContextManager[Subscription]):
    """Decrypts what it receives, and drops bodies that were published without the key."""

    # Not a generator: an event loop that ends closes nested async generators in the wrong order.
    inner: AbstractAsyncContextManager[Subscription]
    encryption: Encryption
    thread_id: str

    async def __aenter__(self) -> Subscription:
        self._subscription = await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.inner.__aexit__(*error)

    async def next(self, seconds: float) -> bytes | None:
        body = await self._subscription.next(seconds)
        try:
            return None if body is None else self.encryption.decrypt(self.thread_id, "live", body)
        except (KeyError, ValueError):
            return None
