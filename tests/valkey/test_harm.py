"""Valkey killed, flushed, paused, slow or full of rubbish in the middle of runs: nothing lost or wrong, only slower."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest
from tests.databases.proxy import Proxy
from tests.databases.valkey import ValkeyServer
from tests.valkey.acts import talk
from tests.valkey.others import SECONDS, Others
from tests.valkey.places import Place
from tests.valkey.rubbish import fill_with_rubbish

from perdure import WorkflowEvent
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.storage import StoreCheckpointStorage

COUNT = 24
"""Supersteps of a run: it is harmed after a third, and helped again after two thirds."""
HARMED_AT, HELPED_AT = 16, 8


class Harm:
    """What is done to the server, and how it is undone."""

    def __init__(self, server: ValkeyServer, proxy: Proxy) -> None:
        self.server = server
        self.proxy = proxy

    def lag(self) -> None:
        self.proxy.delay_seconds = 0.15

    def catch_up(self) -> None:
        self.proxy.delay_seconds = 0

    def start(self) -> None:
        self.server.start()

    def fill(self) -> None:
        fill_with_rubbish(self.server.url)

    def nothing(self) -> None:
        pass


HARMS: dict[str, tuple[Callable[[Harm], None], Callable[[Harm], None]]] = {
    "killed": (lambda harm: harm.server.kill(), Harm.nothing),
    "killed and started again": (lambda harm: harm.server.kill(), Harm.start),
    "flushed": (lambda harm: harm.server.flush(), lambda harm: harm.server.flush()),
    "paused": (lambda harm: harm.server.pause(), Harm.nothing),
    "paused and resumed": (lambda harm: harm.server.pause(), lambda harm: harm.server.resume()),
    "cut off": (lambda harm: harm.proxy.refuse(), lambda harm: harm.proxy.admit()),
    "silent": (lambda harm: harm.proxy.stall(), lambda harm: harm.proxy.flow()),
    "lagging": (Harm.lag, Harm.catch_up),
    "full of rubbish": (Harm.fill, Harm.fill),
}


async def follow_to_the_end(storage: StoreCheckpointStorage, thread_id: str) -> list[WorkflowEvent]:
    followed: list[WorkflowEvent] = []
    async with aclosing(storage.follow(thread_id)) as events:  # type: ignore[type-var]  # it is a generator
        async for event in events:
            followed.append(event)
            if event.seq is not None and event.type == "status" and event.state == "IDLE":
                return followed
    raise AssertionError("it goes on until it is left")


def check_what_was_followed(followed: list[WorkflowEvent], log: list[WorkflowEvent]) -> None:
    assert [event for event in followed if event.seq is not None] == log
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    tokens = [event.data for event in followed if event.type == "data"]
    assert tokens == [token for token in expected_tokens() if token in tokens], "out of order, or twice"
    done = 0
    for event in followed:
        done += event.type == "superstep_completed"
        if event.type == "data":
            assert COUNT - int(event.data.partition(".")[0]) >= done, "after the events of its superstep"


def expected_tokens() -> list[str]:
    return [f"{left}.{number}" for left in range(COUNT, 0, -1) for number in range(3)]


BOTH = ("killed and started again", "paused", "lagging", "full of rubbish")
"""Harms that are tried with PostgreSQL, too; all with SQLite."""


@pytest.mark.parametrize(
    ("truth", "harm"),
    [*(("sqlite", harm) for harm in HARMS), *(("postgres", harm) for harm in BOTH)],
    indirect=["truth"],
)
async def test_runs_end_and_are_followed_without_gap_whatever_harms_valkey(
    harm: str, truth: Place, own_valkey: ValkeyServer, others: Others
) -> None:
    do, undo = HARMS[harm]
    with Proxy(own_valkey.url) as proxy:
        harmed, place = Harm(own_valkey, proxy), truth.beside(proxy.url)
        runs = {name: others.start(talk, place, name, COUNT, (HARMED_AT, HELPED_AT)) for name in ("one", "two")}
        async with place.storage() as storage, asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            following = {name: tasks.create_task(follow_to_the_end(storage, name)) for name in runs}
            for run in runs.values():
                run.send("go on")
            for left, act in ((HARMED_AT, do), (HELPED_AT, undo)):
                for run in runs.values():
                    await run.wait_for("at", left)
                act(harmed)
                for run in runs.values():
                    run.send("go on")
            for run in runs.values():
                assert await run.wait_for("ended") == (["said all"],)
        for name, task in following.items():
            async with truth.storage() as undisturbed:
                log = [event async for event in read_events(undisturbed, name, None, None)]
                head = await undisturbed.get_latest(thread_id=name)
            assert head is not None and head.state["said"] == list(range(COUNT, 0, -1))
            check_what_was_followed(task.result(), log)
