"""The key that names of chunks are made with: random, kept in the store itself, encrypted with a key that was given.

It stays the same when other keys come, so that a chunk keeps its name. It is an item in the inbox of a thread that
nobody sees, and by which an encrypted store is known: of many who post it at once one is the first, and all read that
one back.
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
    """None for a store that has no threads yet. Raises MissingKey, PlaintextRefused or DamagedStore."""
    standing = await store.standing(RESERVED_THREAD)
    if standing is None:
        others = [one for one in await store.thread_ids(limit=3) if one != RESERVED_THREAD]
        standing = await store.standing(RESERVED_THREAD)  # it may have come to be meanwhile
        if standing is None and not others:
            return None
        if standing is None:
            raise await _refusal(store, others, encryption)
    return _key_in(standing, encryption, place_of(store))


async def make_key(store: Store, encryption: Encryption) -> bytes:
    """For a store without threads. Raises like `find_key`."""
    made = InboxItem(ITEM, KIND, os.urandom(KEY_BYTES))
    sealed = ThreadPayloads(encryption, RESERVED_THREAD).seal_item(made)
    await store.post(RESERVED_THREAD, sealed.item_id, sealed.kind, sealed.body)
    found = await find_key(store, encryption)
    if found is None:
        raise DamagedStore(place_of(store), "the key that names of chunks are made with was posted, and is not there")
    return found


def place_of(store: Store) -> str:
    """How a store is called in a message."""
    of_server = getattr(getattr(store, "db", None), "name", type(store).__name__)
    return str(getattr(store, "path", of_server))


def _key_in(standing: ThreadHeader, encryption: Encryption, place: str) -> bytes:
    for item in standing.inbox:
        if item.item_id != ITEM:
            continue
        try:
            return ThreadPayloads(encryption, RESERVED_THREAD).unseal_item(item).body
        except MissingKey as error:
            raise MissingKey(f"The store {place!r}", error.key_id) from error
        except DamagedCheckpoint as error:  # most likely a key was mixed up
            key_id = encryption.key_id_of(item.body)
            told = f"The store {place!r} was not written with the key that was given as {key_id!r}, or was changed. It"
            raise MissingKey(told, key_id) from error
    raise DamagedStore(place, "the key that names of chunks are made with is gone from it")


async def _refusal(store: Store, thread_ids: Iterable[str], encryption: Encryption) -> Exception:
    """Why a store with threads and without the key is not used: it is plain, or damaged."""
    place = place_of(store)
    for thread_id in thread_ids:
        if any(encryption.key_id_of(one) is not None for one in await _some_payloads(store, thread_id)):
            reason = "it is encrypted, and the key that names of chunks are made with is gone from it"
            return DamagedStore(place, reason)
    remedy = "Copy it to a new store that is encrypted: `perdure transfer`, or copy_store(plain, encrypted)."
    return PlaintextRefused(f"What is in {place!r}", remedy)


async def _some_payloads(store: Store, thread_id: str) -> list[bytes]:
    try:
        standing = await store.standing(thread_id)
        commits = await store.commits(thread_id, limit=1)
    except DamagedCheckpoint:
        return []
    waiting = [] if standing is None else [item.body for item in standing.inbox]
    return [*waiting, *(body for commit in commits for body in _payloads_of(commit))]


def _payloads_of(commit: Commit) -> list[bytes]:
    events = () if commit.events is None else (commit.events.body,)
    return [*(() if commit.root is None else (commit.root,)), *events, *commit.chunks.values()]
