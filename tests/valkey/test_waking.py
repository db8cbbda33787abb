"""A run that waits for a thread of another process is woken by Valkey within milliseconds, and without it later."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from tests.databases.valkey import ValkeyServer
from tests.turns import turns
from tests.valkey.acts import hold, talking
from tests.valkey.others import SECONDS, Others
from tests.valkey.places import NEVER, Place

from perdure import Workflow
from perdure.checkpoints import access as busy
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.store import Subscription
from perdure.stores.memory.store import MemoryStore
from perdure.stores.valkey import store as accelerated
from perdure.stores.valkey.store import AcceleratedStore, Valkey


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the polls that make up for lost messages: only a message can then wake a waiter."""
    monkeypatch.setattr(busy, "MAX_POLL_SECONDS", NEVER)
    monkeypatch.setattr(accelerated, "SUBSCRIBED_POLL_SECONDS", NEVER)


def accelerated_store(storage: StoreCheckpointStorage) -> AcceleratedStore:
    assert isinstance(storage.store, AcceleratedStore)
    return storage.store


async def until_subscribed(store: AcceleratedStore, thread_id: str) -> None:
    """Until the server has said that it passes on everything."""
    subscriber = store._valkey.subscriber()
    async with asyncio.timeout(SECONDS), store.subscribe(thread_id) as subscription:
        while not subscriber.is_subscribed(store._channel(thread_id)):
            await subscription.next(0.01)


async def until_it_waits(store: AcceleratedStore, thread_id: str) -> None:
    """Wait until a subscriber has polled the store and waits for a message."""
    async with asyncio.timeout(SECONDS):
        while not any(
            (waiter := subscription._waker._waiter) and not waiter.done() and not subscription._is_changed
            for subscription in store.bus.subscriptions.get(thread_id, ())
        ):
            await turns(1)


async def wait_until_the_run_begins(
    workflow: Workflow, storage: StoreCheckpointStorage, place: Place, others: Others
) -> None:
    """Another process gives the thread up when this one waits for it; then the run begins here."""
    store, begun = accelerated_store(storage), asyncio.Event()
    holder = others.start(hold, place, "t")
    await holder.wait_for("holds")

    async def run() -> None:
        async for event in workflow.run(1, thread_id="t", on_busy="enqueue", stream=True):
            if event.type == "started":
                begun.set()

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        while "t" not in store.bus.subscriptions:  # else its own subscription would be another, and wake it
            await turns(1)
        if place.valkey is not None:
            await until_subscribed(store, "t")
        await until_it_waits(store, "t")
        assert not begun.is_set()
        holder.send("give up")
        await holder.wait_for("gave up")
        await begun.wait()
    holder.send("end")


@pytest.mark.usefixtures("no_polling")
async def test_waiting_run_starts_without_polling_when_another_process_releases(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url).seldom_looked_at()
    async with place.storage() as storage:
        await wait_until_the_run_begins(talking(storage), storage, place, others)


@pytest.mark.parametrize("harm", ["killed", "paused"])
async def test_waiting_run_starts_by_polling_without_valkey(
    harm: str, truth: Place, own_valkey: ValkeyServer, others: Others
) -> None:
    place = truth.beside(own_valkey.url)
    async with place.storage() as storage:
        if harm == "paused":
            await until_subscribed(accelerated_store(storage), "another")
            own_valkey.pause()
        else:
            own_valkey.kill()
        without = replace(place, valkey=None)
        await wait_until_the_run_begins(talking(storage), storage, without, others)


@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("harm", ["killed", "paused"])
@pytest.mark.parametrize("truth", ["sqlite"], indirect=True)
async def test_subscriber_polls_while_valkey_is_down_and_is_woken_when_it_is_up(
    harm: str, truth: Place, own_valkey: ValkeyServer, others: Others
) -> None:
    place = truth.beside(own_valkey.url).seldom_looked_at()
    async with place.storage() as storage:
        store = accelerated_store(storage)
        async with store.subscribe("t") as subscription:
            await until_subscribed(store, "t")
            await subscription.next(SECONDS)
            own_valkey.kill() if harm == "killed" else own_valkey.pause()
            began = time.monotonic()
            assert await subscription.next(SECONDS) is None and time.monotonic() - began < SECONDS / 2
            assert not store._valkey.subscriber().is_subscribed(store._channel("t"))
        own_valkey.start() if harm == "killed" else own_valkey.resume()
        await wait_until_the_run_begins(talking(storage), storage, place, others)


async def next_body(subscription: Subscription) -> bytes:
    async with asyncio.timeout(SECONDS):
        while (body := await subscription.next(SECONDS)) is None:
            pass
    return body


async def test_message_published_in_one_place_arrives_once_and_only_there(valkey_url: str) -> None:
    here, there, elsewhere = (
        AcceleratedStore(MemoryStore(), Valkey(valkey_url), place) for place in ("one", "one", "another")
    )
    try:
        async with (
            here.subscribe("t") as itself,
            there.subscribe("t") as subscription,
            elsewhere.subscribe("t") as of_another_place,
            there.subscribe("u") as of_another_thread,
        ):
            for store, thread_id in ((here, "t"), (there, "t"), (elsewhere, "t"), (there, "u")):
                await until_subscribed(store, thread_id)
            here.publish("t", b'"first"')
            here.publish("t", b'"last"')
            for subscriber in (itself, subscription):
                assert [await next_body(subscriber), await next_body(subscriber)] == [b'"first"', b'"last"']
            for subscriber in (itself, of_another_place, of_another_thread):
                assert [await subscriber.next(0.05) for _ in range(4)] == [None] * 4
    finally:
        for store in (here, there, elsewhere):
            await store.close()
