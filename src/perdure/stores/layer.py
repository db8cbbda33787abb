"""Stores around other stores: a layer changes some methods and leaves the others to the store below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from perdure.errors import ThreadBusy, ThreadExists, ThreadNotFound
from perdure.records import Commit, ThreadHeader
from perdure.store import Store, rename_commit, rename_header

MAX_TRIES = 20
"""How often `copy_thread` reads a thread that is pruned meanwhile."""


class StoreLayer:
    """Implements `perdure.store.Store` around `inner`. A subclass defines the methods that it changes."""

    delegated: ClassVar[frozenset[str]] = frozenset({*(name for name in vars(Store) if name[0] != "_"), "path"})
    """The attributes of `inner` that the layer has, too. `path` belongs to stores in files."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in self.delegated:
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


async def copy_thread(store: Store, thread_id: str, to: str) -> None:
    """Copy a thread with `commits` and `add_thread`. The copy has new checkpoint ids, and no journal, inbox or pins.

    Raises ThreadNotFound or ThreadBusy.
    """
    header, commits = await _snapshot(store, thread_id)
    ids: dict[str, str] = {}
    try:
        await store.add_thread(header_of_copy(header, to), (rename_commit(commit, to, ids) for commit in commits))
    except ThreadExists:
        infos = await store.threads(thread_id=to)
        raise ThreadBusy(to, infos[0].run_id if infos else None) from None


async def _snapshot(store: Store, thread_id: str) -> tuple[ThreadHeader, Sequence[Commit]]:
    """A header, and the commits that belong to it."""
    for _ in range(MAX_TRIES):
        header = await store.thread_header(thread_id)
        if header is None:
            raise ThreadNotFound(thread_id)
        commits = [commit for commit in await store.commits(thread_id) if commit.number <= header.number]
        after = await store.thread_header(thread_id)
        is_unpruned = after is not None and after.first_seq == header.first_seq
        if is_unpruned and header.head in (None, *(commit.number for commit in commits if commit.info is not None)):
            return header, commits
    raise ThreadBusy(thread_id)


def header_of_copy(header: ThreadHeader, to: str) -> ThreadHeader:
    nothing: dict[str, Any] = dict.fromkeys(("journal", "inbox", "consumed", "pins"), ())
    return msgspec.structs.replace(rename_header(header, to), fence=0, **nothing)
