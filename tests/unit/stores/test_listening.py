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
from perdure.stores.notify import UNTAKEN_BODIES, UNTAKEN_BYTES, Ear, Hall, hall_of
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.support.acts import own

SECONDS = 15.0
FOR_EVER = 3600.0
"""Longer than any test: whoever comes back was woken."""


async def test_what_is_told_comes_before_the_change_that_it_led_to() -> None:
    store = MemoryStore()
    owner = await own(store)
    async with store.listen("t") as listener:
        store.tell("t", b"1")
        await owner.save()
        store.tell("t", b"2")
        await owner.save()
        assert [await listener.next(SECONDS) for _ in range(3)] == [b"1", b"2", None]
        assert await listener.next(0) is None


async def test_whoever_does_not_wait_takes_what_was_told_and_leaves_the_change_for_whoever_does() -> None:
    hall = Hall()
    ear = Ear(lambda _: inf)
    hall.enter("t", ear)
    hall.tell("t", None)
    assert await ear.next(0) is None
    assert await ear.next(FOR_EVER) is None


async def test_what_nobody_takes_is_dropped_and_the_change_is_not() -> None:
    store = MemoryStore()
    async with store.listen("t") as many, store.listen("t") as large:
        for number in range(2 * UNTAKEN_BODIES):
            store.tell("t", b"%d" % number)
        assert [await many.next(0) for _ in range(UNTAKEN_BODIES)] == [b"%d" % one for one in range(UNTAKEN_BODIES)]
        assert await many.next(0) is None
        while await large.next(0) is not None:
            pass
        for _ in range(3):
            store.tell("t", b"x" * (UNTAKEN_BYTES // 2))
        await store.post("t", "item", "message", b"1")
        assert [len(await large.next(SECONDS) or b"") for _ in range(3)] == [UNTAKEN_BYTES // 2, UNTAKEN_BYTES // 2, 0]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
def test_an_event_loop_hears_what_happens_in_that_of_another_os_thread(kind: str, tmp_path: Path) -> None:
    make: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / "threads.db"),
        "file": lambda: FileStore(tmp_path / "threads"),
    }
    store = make[kind]()
    store.first_look_seconds = store.last_look_seconds = inf  # type: ignore[attr-defined]  # only what is told is heard
    listens, heard = threading.Event(), list[bytes | None]()

    async def listen() -> None:
        async with store.listen("t") as listener:
            listens.set()
            heard.extend([await listener.next(FOR_EVER), await listener.next(FOR_EVER)])

    async def act() -> None:
        store.tell("t", b'"told"')
        await store.post("t", "item", "message", b"1")
        await store.close()

    other = threading.Thread(target=asyncio.run, args=(listen(),))
    other.start()
    assert listens.wait(SECONDS)
    asyncio.run(act())
    other.join(SECONDS)
    assert heard == [b'"told"', None]


async def test_two_objects_over_one_file_hear_each_other_at_once(tmp_path: Path) -> None:
    one, two = (SqliteStore(tmp_path / "threads.db") for _ in range(2))
    assert one.hall is two.hall and one.hall is not SqliteStore(tmp_path / "other.db").hall
    async with one.listen("t") as listener:
        two.tell("t", b'"hello"')
        assert await listener.next(0) == b'"hello"'
        assert two.is_heard("t") and not two.is_heard("u")
    assert not two.is_heard("t")
    assert hall_of("a place") is not hall_of("another")
    await one.close()
    await two.close()


async def test_the_longer_nothing_is_heard_the_less_often_the_store_is_looked_at() -> None:
    asked: list[int] = []

    def period(quiet: int) -> float:
        asked.append(quiet)
        return 0.001

    ear = Ear(period)
    for _ in range(3):
        await ear.next(1)
    await ear.next(0.0001)  # shorter than it would be: says nothing about how quiet it is
    ear.hear(None)
    await ear.next(1)
    await ear.next(1)
    assert asked == [0, 1, 2, 3, 0]
    store = SqliteStore("nowhere.db")
    assert [round(store._look_seconds(quiet), 3) for quiet in (0, 1, 2, 3, 50)] == [0.02, 0.03, 0.045, 0.05, 0.05]
    assert MemoryStore()._look_seconds(5) == inf, "nobody else has it"


async def test_a_listener_whose_loop_was_closed_disturbs_nobody() -> None:
    hall, ears = Hall(), list[Ear]()

    async def wait() -> None:
        ear = Ear(lambda _: inf)
        ears.append(ear)
        hall.enter("t", ear)
        await ear.next(SECONDS)

    def run() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        ears[0]._waiter, left = None, loop.create_future()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        ears[0]._waiter = left  # as if it had been killed while it waited
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SECONDS)
    hall.tell("t", b'"too late"')
    hall.leave("t", ears[0])
    assert not hall.ears


async def test_a_forked_child_has_none_of_its_parents_listeners() -> None:
    store = MemoryStore()
    async with store.listen("t"):
        token, (read, write) = store.hall.token, os.pipe()
        child = os.fork()
        if child == 0:
            told = f"{store.is_heard('t')} {store.hall.token == token}".encode()
            store.tell("t", b'"nobody"')
            os.write(write, told)
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)  # noqa: ASYNC222  # it has nothing to do
        assert os.read(read, 100) == b"False False"
        os.close(read)
        assert store.is_heard("t")
