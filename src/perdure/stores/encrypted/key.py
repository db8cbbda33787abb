"""The key of chunk names: random, and stored encrypted in the store itself.

It stays the same when encryption keys rotate, so that a chunk keeps its name. It is an item in the inbox of a hidden
thread, whose existence marks a store as encrypted. If several processes post it at once, the first wins, and all of
them read that one back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from perdure.errors import DamagedCheckpoint, DamagedStore, MissingKey, PlaintextRefused
from perdure.names import RESERVED_THREAD
from perdure.records import Commit, InboxItem, ThreadHeader
from perdure.store import Store
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
    """The name of a store in a message."""
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
            reason = (
                f"The store {store!r} was not written with the key that was given as {key_id!r}, or was changed. It"
            )
            raise MissingKey(reason, key_id) from error
    raise DamagedStore(store, "the key of its chunk names is missing")


async def _explain_missing(store: Store, thread_ids: Iterable[str], encryption: Encryption) -> Exception:
    """The error for a store with threads and without the key: it is plain, or damaged."""
    name = describe(store)
    for thread_id in thread_ids:
        if any(encryption.key_id_of(payload) is not None for payload in await _some_payloads(store, thread_id)):
            return DamagedStore(name, "it is encrypted, and the key of its chunk names is missing")
    remedy = "Copy it to a new store that is encrypted: `perdure transfer`, or copy_store(plain, encrypted)."
    return PlaintextRefused(f"The content of {name!r}", remedy)


async def _some_payloads(store: Store, thread_id: str) -> list[bytes]:
    try:
        header = await store.thread_header(thread_id)
        commits = await store.commits(thread_id, limit=1)
    except DamagedCheckpoint:
        return []
    inbox = [] if header is None else [item.body for item in header.inbox]
    return [*inbox, *(body for commit in commits for body in _payloads(commit))]


def _payloads(commit: Commit) -> list[bytes]:
    events = () if commit.events is None else (commit.events.body,)
    return [*(() if commit.root is None else (commit.root,)), *events, *commit.chunks.values()]
