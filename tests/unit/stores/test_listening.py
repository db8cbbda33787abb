"""Listening within a process: across event loops and OS threads, bounded, forgotten by forks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.memory.store import MemoryStore
from perdure.stores.notify import (
    MAX_QUEUED_BODIES,
    MAX_QUEUED_BYTES,
    LocalBus,
    LocalSubscription,
    PollInterval,
    bus_for,
)
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import own

SECONDS = 60.0
FOR_EVER = 3600.0
"""Longer than any test: a call that returns was woken."""


async def test_published_messages_come_before_the_change_that_follows_them() -> None:
    store = MemoryStore()
    owner = await own(store)
    async with store.subscribe("t") as subscription:
        store.publish("t", b"1")
        await owner.save()
        store.publish("t", b"2")
        await owner.save()
        assert [await subscription.next(FOR_EVER) for _ in range(3)] == [b"1", b"2", None]
        assert await subscription.next(0) is None


async def test_next_without_waiting_leaves_the_change_for_the_next_waiter() -> None:
    bus = LocalBus()
    async with LocalSubscription(bus, "t", lambda _: inf) as subscription:
        bus.notify("t")
        assert await subscription.next(0) is None
        assert await subscription.next(FOR_EVER) is None


async def test_messages_beyond_the_queue_limit_are_dropped_and_the_change_is_not() -> None:
    store = MemoryStore()
    async with store.subscribe("t") as many, store.subscribe("t") as large:
        for number in range(2 * MAX_QUEUED_BODIES):
            store.publish("t", b"%d" % number)
        assert [await many.next(0) for _ in range(MAX_QUEUED_BODIES)] == [
            b"%d" % number for number in range(MAX_QUEUED_BODIES)
        ]
        assert await many.next(0) is None
        while await large.next(0) is not None:
            pass
        for _ in range(3):
            store.publish("t", b"x" * (MAX_QUEUED_BYTES // 2))
        await store.post("t", "item", "message", b"1")
        assert [len(await large.next(SECONDS) or b"") for _ in range(3)] == [
            MAX_QUEUED_BYTES // 2,
            MAX_QUEUED_BYTES // 2,
            0,
        ]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
def test_event_loop_receives_what_another_os_thread_publishes(kind: str, tmp_path: Path) -> None:
    make: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / "threads.db"),
        "file": lambda: FileStore(tmp_path / "threads"),
    }
    store = make[kind]()
    store.poll_interval = PollInterval(inf, inf)  # type: ignore[attr-defined]  # only published messages arrive
    listens, received = threading.Event(), list[bytes | None]()

    async def listen() -> None:
        async with store.subscribe("t") as subscription:
            listens.set()
            received.extend([await subscription.next(FOR_EVER), await subscription.next(FOR_EVER)])

    async def act() -> None:
        store.publish("t", b'"told"')
        await store.post("t", "item", "message", b"1")
        await store.close()

    other = threading.Thread(target=asyncio.run, args=(listen(),))
    other.start()
    assert listens.wait(SECONDS)
    asyncio.run(act())
    other.join(SECONDS)
    assert received == [b'"told"', None]


async def test_two_objects_over_one_file_notify_each_other_at_once(tmp_path: Path) -> None:
    first, second = (SqliteStore(tmp_path / "threads.db") for _ in range(2))
    assert first.bus is second.bus and first.bus is not SqliteStore(tmp_path / "other.db").bus
    async with first.subscribe("t") as subscription:
        second.publish("t", b'"hello"')
        assert await subscription.next(0) == b'"hello"'
        assert second.has_subscribers("t") and not second.has_subscribers("u")
    assert not second.has_subscribers("t")
    assert bus_for("a place") is not bus_for("another")
    await first.close()
    await second.close()


async def test_store_is_polled_less_often_the_longer_nothing_happens() -> None:
    asked: list[int] = []

    def period(quiet: int) -> float:
        asked.append(quiet)
        return 0.001

    subscription = LocalSubscription(LocalBus(), "t", period)
    for _ in range(3):
        await subscription.next(1)
    await subscription.next(0.0001)  # shorter than it would be: says nothing about how quiet it is
    subscription.notify()
    await subscription.next(1)
    await subscription.next(1)
    assert asked == [0, 1, 2, 3, 0]
    store = SqliteStore("nowhere.db")
    assert [round(store.poll_interval.after(quiet), 3) for quiet in (0, 1, 2, 3, 50)] == [0.02, 0.03, 0.045, 0.05, 0.05]
    assert MemoryStore().poll_interval.after(5) == inf, "nobody else has it"


async def test_subscriber_whose_loop_was_closed_does_not_disturb_publishing() -> None:
    bus, subscriptions = LocalBus(), list[LocalSubscription]()

    async def wait() -> None:
        subscription = LocalSubscription(bus, "t", lambda _: inf)
        subscriptions.append(subscription)
        bus.add("t", subscription)
        await subscription.next(FOR_EVER)

    def run() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        subscriptions[0]._waker._waiter, left = None, loop.create_future()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        subscriptions[0]._waker._waiter = left  # as if it had been killed while it waited
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SECONDS)
    bus.publish("t", b'"too late"')
    bus.remove("t", subscriptions[0])
    assert not bus.subscriptions


async def test_forked_child_has_none_of_its_parents_subscribers() -> None:
    store = MemoryStore()
    async with store.subscribe("t"):
        token, (read, write) = store.bus.token, os.pipe()
        child = os.fork()
        if child == 0:
            report = f"{store.has_subscribers('t')} {store.bus.token == token}".encode()
            store.publish("t", b'"nobody"')
            os.write(write, report)
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)  # noqa: ASYNC222  # it has nothing to do
        assert os.read(read, 100) == b"False False"
        os.close(read)
        assert store.has_subscribers("t")
