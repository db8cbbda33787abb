"""Access to a store: one kind of error for all drivers, the guard of encrypted stores, the wait for an owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any

from perdure.errors import MissingKey, PerdureError, StorageFailed, ThreadBusy
from perdure.names import RESERVED_THREAD
from perdure.records import OpenedThread
from perdure.store import Store, Subscription

MIN_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 1.0
"""How often a waiting caller tries to claim a thread: while its owner commits, and without notifications."""


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"limit expects a number of items, or None for all, got {limit!r}.")


@contextmanager
def storage_errors(storage: object, action: str) -> Iterator[None]:
    """Raises StorageFailed in place of any error of a storage or its driver that is not perdure's own."""
    try:
        yield
    except PerdureError:
        raise
    except Exception as error:
        raise StorageFailed(type(storage).__name__, action, repr(error)) from error


async def is_encrypted(store: Store) -> bool:
    """Whether the store gives encrypted payloads: then it has the reserved thread, which other stores lack."""
    with storage_errors(store, "look whether it is encrypted"):
        return RESERVED_THREAD in await store.thread_ids(prefix=RESERVED_THREAD, limit=1)


def missing_key(store: Store) -> MissingKey:
    return MissingKey(f"The store {str(getattr(store, 'path', type(store).__name__))!r}")


async def abandon_claim(store: Store, opened: OpenedThread) -> None:
    """Release the thread, and delete it if the claim created it."""
    await store.release(opened.lease)
    if not opened.number and not opened.journal and not opened.inbox:
        with suppress(ThreadBusy):  # another owner claimed it meanwhile
            await store.delete_thread(opened.lease.thread_id, if_unmoved_since=0)


class OwnerWait(AsyncExitStack):
    """Waits until a thread with another owner may be free. The first call of `until_free` subscribes and returns at
    once: the owner may have released the thread before. The exit ends the subscription."""

    def __init__(self, storage: Any, thread_id: str) -> None:
        super().__init__()
        self._store: Store | None = getattr(storage, "store", None)
        self._thread_id = thread_id
        self._subscription: Subscription | None = None
        self._polled_at = 0.0

    async def until_free(self) -> None:
        if self._store is None:
            await asyncio.sleep(MIN_POLL_SECONDS)
        elif self._subscription is None:
            self._subscription = await self.enter_async_context(self._store.subscribe(self._thread_id))
        else:
            until = time.monotonic() + MAX_POLL_SECONDS
            while (left := until - time.monotonic()) > 0 and await self._subscription.next(left) is not None:
                pass  # a live event of the owner
            # A caller does not poll after each commit of an owner that commits often.
            await asyncio.sleep(max(0.0, self._polled_at + MIN_POLL_SECONDS - time.monotonic()))
        self._polled_at = time.monotonic()
