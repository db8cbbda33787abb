"""Waiting for a thread with another owner: a release wakes the waiter, which polls rarely until then."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.turns import turns

from perdure import InMemoryCheckpointStorage
from perdure.checkpoints import access as busy
from perdure.checkpoints.access import MIN_POLL_SECONDS, OwnerWait
from perdure.testing.conformance.threads import own

SECONDS = 60.0


@pytest.fixture(autouse=True)
def _disable_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "MAX_POLL_SECONDS", 3600.0)


async def test_first_check_after_subscribing_is_immediate_and_a_release_wakes() -> None:
    storage = InMemoryCheckpointStorage()
    owner = await own(storage.store)
    async with OwnerWait(storage, "t") as waiting, asyncio.timeout(SECONDS):
        assert not storage.store.has_subscribers("t"), "no subscription exists before the first wait"
        await waiting.until_free()
        assert storage.store.has_subscribers("t")
        woken = asyncio.create_task(waiting.until_free())
        await turns(20)
        assert not woken.done()
        storage.store.publish("t", b'"what its owner does"')
        await turns(20)
        assert not woken.done()
        await owner.release()
        await woken
    assert not storage.store.has_subscribers("t")


async def test_frequent_commits_of_the_owner_do_not_cause_frequent_checks() -> None:
    storage = InMemoryCheckpointStorage()
    owner = await own(storage.store)
    looks = 0

    async def wait() -> None:
        nonlocal looks
        async with OwnerWait(storage, "t") as waiting:
            while True:
                await waiting.until_free()
                looks += 1

    task = asyncio.create_task(wait())
    began, seconds = time.monotonic(), 0.0
    while seconds < 10 * MIN_POLL_SECONDS or looks < 3 or owner.number <= 100:
        await owner.note()
        await turns(2)
        seconds = time.monotonic() - began
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert looks <= 2 + seconds / MIN_POLL_SECONDS


async def test_storage_without_owners_is_polled() -> None:
    async with OwnerWait(object(), "t") as waiting, asyncio.timeout(SECONDS):
        await waiting.until_free()
        await waiting.until_free()
