"""A store that is encrypted, used without its key: refused before anything is written beside what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.checkpoints.open_thread import storage_errors
from perdure.errors import MissingKey
from perdure.names import RESERVED_THREAD
from perdure.store import Store


class Access:
    """A storage's way to its store."""

    store: Store
    _has_access = False

    async def refuse_missing_key(self) -> None:
        """Raises MissingKey for a store that is encrypted and used without its key, before anything is read or written.
        Whatever is called first does it."""
        if not self._has_access:
            await refuse_missing_key(self.store)
            self._has_access = True

    @asynccontextmanager
    async def access(self, action: str) -> AsyncIterator[None]:
        """For one use of the store. What it raises comes out as one error of ours."""
        await self.refuse_missing_key()
        with storage_errors(self.store, action):
            yield


async def is_encrypted(store: Store) -> bool:
    """Whether what it gives is encrypted: then one thread is there, which most stores do not have."""
    with storage_errors(store, "look whether it is encrypted"):
        look = getattr(store, "has_thread", None)  # of stores where reading how a thread stands is much more
        return await (store.standing(RESERVED_THREAD) if look is None else look(RESERVED_THREAD)) not in (None, False)


async def refuse_missing_key(store: Store) -> None:
    """Raises MissingKey for an encrypted store that is used as if it were none. Once for each storage is enough: a
    store does not become encrypted while it has threads."""
    if await is_encrypted(store):
        raise MissingKey(f"The store {str(getattr(store, 'path', type(store).__name__))!r}")
