"""Somebody who waits for a thread of another process is woken by Valkey within milliseconds, and without it later."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from tests.servers.valkey import ValkeyServer
from tests.turns import turns
from tests.valkey.acts import hold, talking
from tests.valkey.others import SECONDS, Others
from tests.valkey.places import NEVER, Place

from holdfast import Workflow
from holdfast.checkpoints import busy
from holdfast.checkpoints.storage import StoreCheckpointStorage
from holdfast.stores import accelerated
from holdfast.stores.accelerated import AcceleratedStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.valkey import Valkey
from holdfast.testing.conformance.acts import own


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is woken was told: looking by itself, as is done now and then in case something was lost, takes ages."""
    monkeypatch.setattr(busy, "LATEST_LOOK_SECONDS", NEVER)
    monkeypatch.setattr(accelerated, "SUBSCRIBED_LOOK_SECONDS", NEVER)


def accelerated_store(storage: StoreCheckpointStorage) -> AcceleratedStore:
    assert isinstance(storage.store, AcceleratedStore)
    return storage.store


async def until_subscribed(store: AcceleratedStore, thread_id: str) -> None:
    """Until the server has said that it passes on everything."""
    hearing = store._valkey._line().hearing
    async with asyncio.timeout(SECONDS), store.listen(thread_id) as listener:
        while not hearing.is_subscribed(store._channel(thread_id)):
            await listener.next(0.01)


async def until_it_waits(store: AcceleratedStore, thread_id: str) -> None:
    """Until whoever listens has looked at the store, and waits to be told of something."""
    async with asyncio.timeout(SECONDS):
        while not any(ear._waiter and not ear._is_changed for ear in store.hall.ears.get(thread_id, ())):
            await turns(1)


async def seconds_until_the_run_begins(
    workflow: Workflow, storage: StoreCheckpointStorage, place: Place, others: Others
) -> float:
    """From when another process gives the thread up, which it does when this one waits for it."""
    store, begun = accelerated_store(storage), list[float]()
    holder = others.start(hold, place, "t")
    await holder.hear_of("holds")

    async def run() -> None:
        async for event in workflow.run(1, thread_id="t", on_busy="enqueue", stream=True):
            if event.type == "started":
                begun.append(time.monotonic())

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        if place.valkey is not None:
            await until_subscribed(store, "t")
        await until_it_waits(store, "t")
        assert not begun
        holder.say("give up")
        (gave_up,) = await holder.hear_of("gave up")
    holder.say("end")
    return begun[0] - float(gave_up)


@pytest.mark.usefixtures("nobody_looks")
async def test_a_run_that_waits_for_another_process_begins_as_soon_as_that_gives_the_thread_up(
    truth: Place, valkey_url: str, others: Others
) -> None:
    place = truth.beside(valkey_url).seldom_looked_at()
    async with place.storage() as storage:
        assert await seconds_until_the_run_begins(talking(storage), storage, place, others) < 1


@pytest.mark.parametrize("harm", ["killed", "paused"])
async def test_without_valkey_it_begins_a_little_later(
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
        assert await seconds_until_the_run_begins(talking(storage), storage, without, others) < 4


@pytest.mark.usefixtures("nobody_looks")
async def test_once_valkey_is_back_it_wakes_again(truth: Place, own_valkey: ValkeyServer, others: Others) -> None:
    place = truth.beside(own_valkey.url).seldom_looked_at()
    async with place.storage() as storage:
        store = accelerated_store(storage)
        await until_subscribed(store, "t")
        async with store.listen("t") as listener:
            own_valkey.kill()
            while not store._valkey._trouble.is_there:
                await listener.next(SECONDS)  # comes back, so that the store is looked at
        own_valkey.start()
        assert await seconds_until_the_run_begins(talking(storage), storage, place, others) < 1


async def test_what_happens_in_one_place_is_heard_there_and_in_no_other(valkey_url: str) -> None:
    here, there, elsewhere = (
        AcceleratedStore(MemoryStore(), Valkey(valkey_url), place) for place in ("one", "one", "another")
    )
    try:
        async with there.listen("t") as listener, elsewhere.listen("t") as other, there.listen("u") as of_u:
            await until_subscribed(elsewhere, "t")
            await until_subscribed(there, "u")
            owner = await own(here)
            while await listener.next(0) is not None or await listener.next(0.05) is not None:
                pass
            await owner.save()
            assert await listener.next(SECONDS) is None
            here.tell("t", b'"token"')
            heard = None
            while heard is None:
                heard = await listener.next(SECONDS)
            assert heard == b'"token"'
            assert [await other.next(0.1) for _ in range(3)] == [await of_u.next(0) for _ in range(3)] == [None] * 3
    finally:
        for store in (here, there, elsewhere):
            await store.close()
