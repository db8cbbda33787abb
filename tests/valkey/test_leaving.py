"""What is left behind: no task, no thread and no connection, whichever way a store is left, and in how many loops."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
from tests.databases.valkey import ValkeyServer
from tests.turns import turns
from tests.valkey.acts import talking
from tests.valkey.others import SECONDS
from tests.valkey.places import Place

from perdure.stores.memory.store import MemoryStore
from perdure.stores.valkey.store import AcceleratedStore, Valkey
from perdure.testing.conformance.threads import own

SQLITE = pytest.mark.parametrize("truth", ["sqlite"], indirect=True)


def connections(url: str) -> int:
    """Beside the one that asks."""
    with redis.Redis.from_url(url) as client:
        return len(client.client_list()) - 1


async def until_no_connection_is_left(url: str) -> None:
    async with asyncio.timeout(SECONDS):
        while connections(url):
            await turns(10)


@SQLITE
async def test_a_closed_storage_leaves_no_task_no_thread_and_no_connection(truth: Place, valkey_url: str) -> None:
    threads = set(threading.enumerate())
    async with truth.beside(valkey_url).storage() as storage:
        tasks = asyncio.all_tasks()
        await talking(storage).run(3, thread_id="t")
        assert [event.seq async for event in storage.follow("t", until_idle=True)]
        assert connections(valkey_url)
    await until_no_connection_is_left(valkey_url)
    assert asyncio.all_tasks() <= tasks
    for thread in set(threading.enumerate()) - threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


async def test_close_sends_queued_messages_first(valkey_url: str) -> None:
    here, there = (AcceleratedStore(MemoryStore(), Valkey(valkey_url), "place") for _ in range(2))
    async with there.subscribe("t") as subscription:
        while not there._valkey._connections().subscriber.is_subscribed(there._channel("t")):
            await subscription.next(0.01)
        here.publish("t", b'"last words"')
        await here.close()
        message = None
        while message is None:
            message = await subscription.next(SECONDS)
        assert message == b'"last words"'
    await there.close()


async def test_between_two_commits_there_is_no_task(valkey_url: str) -> None:
    store = AcceleratedStore(MemoryStore(), Valkey(valkey_url), "place")
    before = asyncio.all_tasks()
    owner = await own(store)
    for _ in range(3):
        await owner.save()
        async with asyncio.timeout(SECONDS):
            while asyncio.all_tasks() - before:
                await turns(1)
    await owner.release()
    await store.close()
    await store.close()
    await owner.store.open("t", "another")  # what is called afterwards makes new connections
    store.publish("t", b'"again"')
    await store.close()
    await until_no_connection_is_left(valkey_url)


async def test_subscriber_left_by_an_error_or_cancellation_leaves_nothing(valkey_url: str) -> None:
    store = AcceleratedStore(MemoryStore(), Valkey(valkey_url), "place")

    async def listen(fails: bool) -> None:
        async with store.subscribe("t") as subscription:
            await subscription.next(0.01)
            if fails:
                raise ValueError("of the caller")
            await subscription.next(SECONDS)

    with pytest.raises(ValueError, match="of the caller"):
        await listen(fails=True)
    listening = asyncio.create_task(listen(fails=False))
    while not store.has_subscribers("t") or not store.bus.subscriptions:
        await turns(1)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert not store.bus.subscriptions and store._valkey._connections().subscriber._task is None
    await store.close()
    await until_no_connection_is_left(valkey_url)


@SQLITE
def test_storage_serves_several_event_loops_at_once_and_in_turn(truth: Place, valkey_url: str) -> None:
    storage = truth.beside(valkey_url).storage()
    workflow, succeeded = talking(storage), list[object]()

    async def run(thread_id: str) -> None:
        result = await workflow.run(3, thread_id=thread_id)
        succeeded.append(result.get_outputs()[0])
        assert [event async for event in storage.follow(thread_id, until_idle=True)]
        await storage.store._valkey.close()  # type: ignore[attr-defined]  # the connections of this loop

    threads = [threading.Thread(target=lambda name=name: asyncio.run(run(name))) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    asyncio.run(run("c"))
    assert succeeded == ["said all"] * 3
    asyncio.run(storage.close())


PROGRAM = """
import asyncio, sys
from tests.valkey.acts import talking
from tests.valkey.places import Place

async def main():
    storage = Place("sqlite", sys.argv[1], valkey=sys.argv[2]).storage()
    print((await talking(storage).run(5, thread_id="t")).get_outputs())
    async for event in storage.follow("t"):
        if event.type == "output":
            break

asyncio.run(main())
"""


@pytest.mark.parametrize("harm", ["none", "paused", "killed"])
def test_program_that_closes_nothing_ends_at_once_and_prints_no_errors(
    harm: str, tmp_path: Path, own_valkey: ValkeyServer
) -> None:
    if harm == "paused":
        own_valkey.pause()
    if harm == "killed":
        own_valkey.kill()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "threads.db"), own_valkey.url],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert done.stdout == "['said all']\n" and not done.stderr
