"""Turns of the event loop: counted by tests that need an exact moment, and taken by a store that really awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import await_uncancelled
from perdure.records import Commit, JournalEntry, Lease, OpenedThread
from perdure.stores.memory.store import MemoryStore


async def turns(number: int) -> None:
    """Let everything else run, so many times."""
    for _ in range(number):
        await asyncio.sleep(0)


async def one_turn(moment: str) -> None:
    await asyncio.sleep(0)


class AwaitingStore(MemoryStore):
    """A store whose calls take their time, as those of a database do, before and after they take effect.

    `pause` is awaited with the moment, such as "before commit" or "after open"; it may wait, or raise.
    """

    def __init__(self, pause: Callable[[str], Awaitable[None]] = one_turn) -> None:
        super().__init__()
        self.pause = pause

    async def _paused(self, name: str, work: Awaitable[Any]) -> Any:
        try:
            await self.pause(f"before {name}")
        except BaseException:
            work.close()  # type: ignore[attr-defined]  # a coroutine that is not to be awaited
            raise
        result = await work
        await self.pause(f"after {name}")
        return result

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened: OpenedThread = await self._paused("open", super().open(thread_id, owner, takeover=takeover))
        return opened

    async def release(self, lease: Lease) -> None:
        await self._paused("release", super().release(lease))

    async def commit(self, commit: Commit) -> None:
        await await_uncancelled(self._paused("commit", super().commit(commit)))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self._paused("append_journal", super().append_journal(lease, entry))

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self._paused("post", super().post(thread_id, item_id, kind, body))


def awaiting_storage() -> StoreCheckpointStorage:
    return StoreCheckpointStorage(AwaitingStore())
