"""A store over another, of whatever kind, which sees nothing of what users' values reach.

Payloads are encrypted one by one, names of chunks are turned into others; ids, numbers and times stay in clear. What is
above and what is below need not know: plain payloads come in and go out, and the store below keeps JSON like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from os import urandom
from typing import Any

import msgspec

from perdure.cancelling import await_uncancelled
from perdure.errors import (
    DamagedCheckpoint,
    MissingKey,
    PlaintextRefused,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
    UnsupportedId,
)
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
from perdure.store import Rewrite, Store, Subscription
from perdure.stores.encrypted.key import find_key, make_key
from perdure.stores.encrypted.lists import EncryptedLists
from perdure.stores.encrypted.names import Names
from perdure.stores.encrypted.payloads import Encryption, ThreadPayloads
from perdure.stores.encrypted.rekey import Progress, RekeyReport, damages, rekey
from perdure.stores.memory.thread import renamed_info

# ---------------------------------------------------------------- copying


TRIES = 20
"""How often a thread is read that is pruned meanwhile."""


async def copy_thread(store: Store, thread_id: str, to: str) -> None:
    """Under new checkpoint ids, without journal, inbox and pins. Raises ThreadNotFound or ThreadBusy."""
    standing, commits = await _moment(store, thread_id)
    copied = msgspec.structs.replace(
        standing,
        thread_id=to,
        fence=0,
        requests=[msgspec.structs.replace(one, thread_id=to) for one in standing.requests],
        journal=(),
        inbox=(),
        consumed=(),
        pins=(),
    )
    try:
        await store.add_thread(copied, _renamed(commits, to))
    except ThreadExists:
        there = await store.threads(thread_id=to)
        raise ThreadBusy(to, there[0].run_id if there else None) from None


async def _moment(store: Store, thread_id: str) -> tuple[ThreadHeader, Sequence[Commit]]:
    """Where it stood, and the commits up to there."""
    for _ in range(TRIES):
        standing = await store.standing(thread_id)
        if standing is None:
            raise ThreadNotFound(thread_id)
        commits = [one for one in await store.commits(thread_id) if one.number <= standing.number]
        after = await store.standing(thread_id)
        is_kept = after is not None and after.first_seq == standing.first_seq
        if is_kept and standing.head in (None, *(one.number for one in commits if one.info is not None)):
            return standing, commits
    raise ThreadBusy(thread_id)


def _renamed(commits: Sequence[Commit], to: str) -> Iterator[Commit]:
    new = {one.info.checkpoint_id: urandom(12).hex() for one in commits if one.info is not None}
    for commit in commits:
        info = None if commit.info is None else renamed_info(commit.info, to, new)
        yield msgspec.structs.replace(commit, lease=msgspec.structs.replace(commit.lease, thread_id=to), info=info)


logger = get_logger("stores")
THREADS = 1024
"""Whose names are remembered how to make."""


class EncryptedStore(EncryptedLists):
    """Implements `perdure.store.Store` over another one: `EncryptedStore(store, AesGcm(key))`."""

    def __init__(self, store: Store, encryption: Encryption) -> None:
        self.inner = self._store = store
        self.finishes_commits = store.finishes_commits
        self._encryption = encryption
        self._key: bytes | None = None
        """That names are made with. It is read once, and never changes."""
        self._of = lru_cache(maxsize=THREADS)(self._payloads)
        if hasattr(store, "path"):
            self.path: Any = store.path

    # ------------------------------------------------------------ keys

    async def _check(self) -> None:
        if self._key is None:
            self._key = await find_key(self._store, self._encryption)

    async def _make_ready(self) -> None:
        """Before something is written."""
        await self._check()
        if self._key is None:
            self._key = await make_key(self._store, self._encryption)

    def _payloads(self, thread_id: str, key: bytes | None) -> ThreadPayloads:
        names = None if key is None else Names(self._encryption.scrambler(key, thread_id))
        return ThreadPayloads(self._encryption, thread_id, names)

    async def _read(self, thread_id: str) -> ThreadPayloads:
        """For what was just read: whoever wrote it has made the key before."""
        await self._check()
        return self._of(thread_id, self._key)

    async def _written(self, thread_id: str) -> ThreadPayloads:
        if thread_id == RESERVED_THREAD:
            raise UnsupportedId("thread_id", thread_id, "an encrypted store keeps its own key under this id")
        if self._key is None:
            await self._make_ready()
        return self._of(thread_id, self._key)

    # ------------------------------------------------------------ owning and writing

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        payloads = await self._written(thread_id)
        if takeover:
            await self._refuse_without_key(thread_id)
        opened = await self._store.open(thread_id, owner, takeover=takeover)
        try:
            return payloads.unseal_opened(opened)
        except MissingKey:
            await await_uncancelled(self._store.release(opened.lease))
            raise

    async def _refuse_without_key(self, thread_id: str) -> None:
        """Nobody is to lose the thread to one who cannot read it. Raises MissingKey."""
        try:
            await self.standing(thread_id)
            await self.head(thread_id)
        except (DamagedCheckpoint, PlaintextRefused):
            pass  # it can be taken, and is told when it is opened

    async def commit(self, commit: Commit) -> None:
        if self._key is None:
            await await_uncancelled(self._make_ready())  # as `finishes_commits` says
        payloads = await self._written(commit.lease.thread_id)
        await self._store.commit(payloads.seal_commit(commit))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        payloads = await self._written(lease.thread_id)
        await self._store.append_journal(lease, payloads.seal_entry(entry))

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        payloads = await self._written(thread_id)
        item = payloads.seal_item(InboxItem(item_id, kind, body))
        await self._store.post(thread_id, item_id, kind, item.body)

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        await self._check()
        return await self._checkpoint(await self._store.find_checkpoint(checkpoint_id))

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        await self._check()
        return await self._checkpoint(await self._store.head(thread_id))

    async def _checkpoint(self, found: StoredCheckpoint | None) -> StoredCheckpoint | None:
        return None if found is None else (await self._read(found.info.thread_id)).unseal_checkpoint(found)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        await self._check()
        found = await self._store.read_chunks(thread_id, numbers)
        return (await self._read(thread_id)).unseal_chunks(found)

    async def recall(self, thread_id: str) -> Mapping[int, Mapping[str, bytes]]:
        """What the store below has at hand, if it has such a thing (`AcceleratedStore`). It may be wrong in any way."""
        recall = getattr(self._store, "recall", None)
        if recall is None or self._key is None:
            return {}
        return (await self._read(thread_id)).unseal_recalled(await recall(thread_id))

    def remember(self, thread_id: str, number: int, numbers: Iterable[int]) -> None:
        """As `AcceleratedStore` does."""
        remember = getattr(self._store, "remember", None)
        if remember is not None:
            remember(thread_id, number, numbers)

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        await self._check()
        found = await self._store.events_after(thread_id, seq)
        return (await self._read(thread_id)).unseal_events(found)

    async def standing(self, thread_id: str) -> ThreadHeader | None:
        await self._check()
        found = None if thread_id == RESERVED_THREAD else await self._store.standing(thread_id)
        return None if found is None else (await self._read(thread_id)).unseal_standing(found)

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        await self._check()
        found = await self._store.commits(thread_id, after=after, limit=limit)
        return (await self._read(thread_id)).unseal_commits(found)

    # ------------------------------------------------------------ listening

    def publish(self, thread_id: str, body: bytes) -> None:
        try:
            encrypted = self._encryption.encrypt(thread_id, "live", body)
        except Exception as error:  # noqa: BLE001  # of a key provider: what is told may be lost
            logger.debug("a live event of thread %s is lost: %r", thread_id, error)
        else:
            self._store.publish(thread_id, encrypted)

    def has_subscribers(self, thread_id: str) -> bool:
        return self._store.has_subscribers(thread_id)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return _DecryptingSubscribing(self._store.subscribe(thread_id), self._encryption, thread_id)

    # ------------------------------------------------------------ whole threads

    async def copy_thread(self, thread_id: str, to: str) -> None:
        await self._check()
        await self._written(to)
        await copy_thread(self, thread_id, to)

    async def add_thread(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        payloads = await self._written(standing.thread_id)
        await self._store.add_thread(payloads.seal_standing(standing), map(payloads.seal_commit, commits))

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        await self._check()
        if thread_id == RESERVED_THREAD:
            return 0
        return await self._store.rewrite(thread_id, (await self._read(thread_id)).rewriting(change))

    async def rekey(self, *, dry_run: bool = False, progress: Progress | None = None) -> RekeyReport:
        """Put everything under the current key. Threads that are being run go on; what is interrupted is completed by
        calling it again. `dry_run` only counts."""
        await self._check()
        return await rekey(self._store, self._encryption, dry_run=dry_run, progress=progress)

    # ------------------------------------------------------------ as a whole

    async def check(self) -> Sequence[Damage]:
        await self._check()
        return [*await self._store.check(), *await damages(self._store, self._encryption)]


class _DecryptingSubscribing(AbstractAsyncContextManager[Subscription]):
    """No generator: of several within each other, an event loop that ends closes all at once."""

    def __init__(
        self, inner: AbstractAsyncContextManager[Subscription], encryption: Encryption, thread_id: str
    ) -> None:
        self._inner = inner
        self._given = (encryption, thread_id)

    async def __aenter__(self) -> Subscription:
        return _DecryptingSubscription(await self._inner.__aenter__(), *self._given)

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)


class _DecryptingSubscription:
    """What was told by somebody without the key is not heard."""

    def __init__(self, subscription: Subscription, encryption: Encryption, thread_id: str) -> None:
        self._subscription = subscription
        self._encryption = encryption
        self._thread_id = thread_id

    async def next(self, seconds: float) -> bytes | None:
        body = await self._subscription.next(seconds)
        try:
            return None if body is None else self._encryption.decrypt(self._thread_id, "live", body)
        except (KeyError, ValueError):
            return None
