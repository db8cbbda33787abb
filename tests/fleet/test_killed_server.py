"""PostgreSQL is killed, restarted and stopped while processes work: nothing that it acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chance import SOAK
from tests.crash.zygote import Zygote
from tests.databases.fixtures import Place
from tests.databases.postgres import PostgresServer
from tests.databases.reaper import family
from tests.fleet.test_racing import check_histories, race

from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Durable, as users have it: with any other a power cut would lose what was acknowledged."""
    with PostgresServer(durable=True) as server:
        yield server


def kill_all(server: PostgresServer, chance: random.Random) -> None:
    server.kill()
    server.start()


def restart(server: PostgresServer, chance: random.Random) -> None:
    server.restart()


def kill_one(server: PostgresServer, chance: random.Random) -> None:
    """The server then ends all connections and recovers, as after a crash of its own."""
    os.kill(chance.choice(family(server.pid)[1:]).pid, signal.SIGKILL)


@pytest.mark.parametrize("round_", range(10 if SOAK else 1))
async def test_server_killed_repeatedly_loses_no_acknowledged_commit(
    harbour: Zygote, server: PostgresServer, tmp_path: Path, seed: int, round_: int
) -> None:
    chance = random.Random(seed)
    place = Place(server.new_database(), "perdure")
    order = race(place, tmp_path, seed, processes=3, threads=8, turns=30)
    racing = asyncio.create_task(asyncio.to_thread(harbour.life, "tests.fleet.racing:live", order))
    harms = [kill_all, *(chance.choice([kill_all, restart, kill_one]) for _ in range(2))]
    for number, harm in enumerate(harms):
        while acknowledged(tmp_path) < 50 * number + chance.randint(20, 50):
            assert not racing.done(), "They ended before the server was harmed."
            await asyncio.sleep(0.005)
        await asyncio.to_thread(harm, server, chance)
    await racing
    print([harm.__name__ for harm in harms])
    await check_histories(place, tmp_path, fewest=60)


def acknowledged(folder: Path) -> int:
    return sum(file.read_bytes().count(b'"done"') for file in folder.glob("acts-*"))


async def test_server_restart_between_two_calls_goes_unnoticed(server: PostgresServer) -> None:
    store = PostgresStore(server.new_database())
    owner = await own(store)
    await owner.save(events=1)
    server.restart()
    await owner.save(events=1)
    server.kill()
    server.start()
    await store.post("t", "item", "message", b"1")
    server.restart()
    opened = await own(store, owner="another", takeover=True)
    assert (opened.number, len(opened.opened.inbox)) == (2, 1)
    await store.close()


async def test_calls_wait_for_a_server_that_comes_back(server: PostgresServer) -> None:
    store = PostgresStore(server.new_database())
    owner = await own(store)
    await owner.save(events=1)
    server.stop()
    saving = [asyncio.create_task(owner.save(events=1)), asyncio.create_task(store.post("t", "item", "message", b"1"))]
    assert not (await asyncio.wait(saving, timeout=0.7))[0]
    await asyncio.to_thread(server.start)
    await asyncio.gather(*saving)
    assert (await store.threads())[0].number == 2
    await store.close()


async def test_commit_ends_after_a_paused_server_resumes(server: PostgresServer) -> None:
    store = PostgresStore(server.new_database())
    owner = await own(store)
    await owner.save(events=1)
    server.pause()
    saving = asyncio.create_task(owner.save(events=1))
    assert not (await asyncio.wait([saving], timeout=0.3))[0]
    server.resume()
    assert (await saving).number == 2
    await store.close()
