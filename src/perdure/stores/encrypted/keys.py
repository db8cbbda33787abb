"""The keys of an encrypted store: the key of chunk names, and changing the keys of payloads.

The key of chunk names is random, and stored encrypted in the store itself. It stays the same when encryption keys
rotate, so that a chunk keeps its name. It is an item in the inbox of a hidden thread, whose existence marks a store as
encrypted. If several processes post it at once, the first wins, and all of them read that one back.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure.errors import (
    DamagedCheckpoint,
    DamagedStore,
    MissingKey,
    PlaintextRefused,
    WorkflowCheckpointException,
)
from perdure.names import RESERVED_THREAD
from perdure.records import Damage, InboxItem, ThreadHeader
from perdure.store import Progress, Store
from perdure.stores.encrypted.payloads import Encryption, ThreadPayloads

ITEM, KIND = "digest-key", "key"
KEY_BYTES = 32


async def find_key(store: Store, encryption: Encryption) -> bytes | None:
    """None for a store without threads. Raises MissingKey, PlaintextRefused or DamagedStore."""
    header = await store.thread_header(RESERVED_THREAD)
    if header is None:
        others = [thread_id for thread_id in await store.thread_ids(limit=3) if thread_id != RESERVED_THREAD]
        header = await store.thread_header(RESERVED_THREAD)  # another process may have created it meanwhile
        if header is None and not others:
            return None
        if header is None:
            raise await _explain_missing(store, others, encryption)
    return _read_key(header, encryption, describe(store))


async def create_key(store: Store, encryption: Encryption) -> bytes:
    """For a store without threads. Raises like `find_key`."""
    sealed = ThreadPayloads(encryption, RESERVED_THREAD).seal_item(InboxItem(ITEM, KIND, os.urandom(KEY_BYTES)))
    await store.post(RESERVED_THREAD, sealed.item_id, sealed.kind, sealed.body)
    key = await find_key(store, encryption)
    if key is None:
        raise DamagedStore(describe(store), "the key of its chunk names was posted, and is missing")
    return key


def describe(store: Store) -> str:
    of_server = getattr(getattr(store, "db", None), "name", type(store).__name__)
    return str(getattr(store, "path", of_server))


def _read_key(header: ThreadHeader, encryption: Encryption, store: str) -> bytes:
    for item in header.inbox:
        if item.item_id != ITEM:
            continue
        try:
            return ThreadPayloads(encryption, RESERVED_THREAD).unseal_item(item).body
        except MissingKey as error:
            raise MissingKey(f"The store {store!r}", error.key_id) from error
        except DamagedCheckpoint as error:  # most likely a mixed-up key
            key_id = encryption.key_id_of(item.body)
            reason = f"was not written with the key that was given as {key_id!r}, or was changed"
            raise MissingKey(f"The store {store!r} {reason}. It", key_id) from error
    raise DamagedStore(store, "the key of its chunk names is missing")


async def _explain_missing(store: Store, thread_ids: Iterable[str], encryption: Encryption) -> Exception:
    """The error for a store with threads and without the key: it is plain, or damaged."""
    name = describe(store)
    for thread_id in thread_ids:
        try:
            header, commits = await store.thread_header(thread_id), await store.commits(thread_id, limit=1)
        except DamagedCheckpoint:
            continue
        payloads = [] if header is None else [item.body for item in header.inbox]
        for commit in commits:
            events = b"" if commit.events is None else commit.events.body
            payloads += [commit.root or b"", events, *commit.chunks.values()]
        if any(encryption.key_id_of(payload) is not None for payload in payloads):
            return DamagedStore(name, "it is encrypted, and the key of its chunk names is missing")
    remedy = "Copy it to a new store that is encrypted: `perdure transfer`, or copy_store(plain, encrypted)."
    return PlaintextRefused(f"The content of {name!r}", remedy)


class NotRekeyed(msgspec.Struct, frozen=True):
    """A thread with a payload that `rekey` could not change, and the reason."""

    thread_id: str
    reason: str


class RekeyReport(msgspec.Struct, frozen=True):
    """The report of `rekey`: payloads counted and changed."""

    current_key_id: str
    threads: int
    """How many were examined."""
    payloads: Mapping[str, int]
    """How many were under each key before."""
    rewritten: int
    """How many are now encrypted with the current key; 0 in a dry run."""
    failed: Sequence[NotRekeyed] = ()
    """Payloads that stay under another key, because they cannot be decrypted."""

    @property
    def is_complete(self) -> bool:
        """Whether no other key is needed."""
        others = sum(count for key_id, count in self.payloads.items() if key_id != self.current_key_id)
        return not self.failed and others == self.rewritten


async def rekey(
    store: Store, encryption: Encryption, *, dry_run: bool = False, progress: Progress | None = None
) -> RekeyReport:
    """Running threads keep running. A second call continues an interrupted one."""
    current = encryption.current_key_id
    payloads: Counter[str] = Counter()
    failed: list[NotRekeyed] = []
    rewritten = 0
    thread_ids = [thread_id for thread_id in await store.thread_ids() if thread_id != RESERVED_THREAD]
    for done, thread_id in enumerate([RESERVED_THREAD, *thread_ids]):
        rekeying = _ThreadRekeying(encryption, thread_id, current, is_dry=dry_run)
        try:
            rewritten += await store.rewrite(thread_id, rekeying.change)
        except (DamagedCheckpoint, DamagedStore) as error:
            rewritten += rekeying.changed
            failed.append(NotRekeyed(thread_id, error.reason))
        payloads += rekeying.payloads
        failed += [NotRekeyed(thread_id, reason) for reason in rekeying.problems]
        if progress is not None and done:
            progress(done, len(thread_ids), thread_id)
    return RekeyReport(current, len(thread_ids), dict(payloads), rewritten, failed)


class _ThreadScan:
    """Decrypts the payloads of a thread, and collects the problems."""

    def __init__(self, encryption: Encryption, thread_id: str) -> None:
        self._encryption = encryption
        self._thread = ThreadPayloads(encryption, thread_id)
        self.problems: list[str] = []

    def unseal(self, kind: str, name: str, payload: bytes) -> bytes | None:
        try:
            return self._thread.unseal(kind, name, payload)
        except WorkflowCheckpointException as error:
            self.problems.append(error.reason if isinstance(error, DamagedCheckpoint) else str(error))
            return None

    def check(self, kind: str, name: str, payload: bytes) -> bytes:
        self.unseal(kind, name, payload)
        return payload


class _ThreadRekeying(_ThreadScan):
    def __init__(self, encryption: Encryption, thread_id: str, current: str, *, is_dry: bool) -> None:
        super().__init__(encryption, thread_id)
        self._current = current
        self._is_dry = is_dry
        self.payloads: Counter[str] = Counter()
        self.changed = 0

    def change(self, kind: str, name: str, payload: bytes) -> bytes:
        key_id = self._encryption.key_id_of(payload)
        if key_id is not None:
            self.payloads[key_id] += 1
        if key_id == self._current or (self._is_dry and key_id is not None):
            return payload
        data = self.unseal(kind, name, payload)
        if data is None:
            return payload
        self.changed += 1
        return self._thread.seal(kind, name, data)


async def find_damage(store: Store, encryption: Encryption) -> list[Damage]:
    """All payloads that cannot be decrypted."""
    damage: list[Damage] = []
    for thread_id in await store.thread_ids():
        scan = _ThreadScan(encryption, thread_id)
        try:
            await store.rewrite(thread_id, scan.check)
        except (DamagedCheckpoint, DamagedStore):
            pass  # the store reports that itself
        damage += [Damage(reason, thread_id) for reason in scan.problems]
    return damage
