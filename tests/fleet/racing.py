"""Processes that do all that may be done to threads, at random and at the same time, and write down what they did."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from tests.fleet.acts import Log
from tests.fleet.harbour import all_at_once

from perdure.errors import StoreUnavailable, ThreadBusy, ThreadConflict
from perdure.records import LoggedEvents
from perdure.store import Store
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import ThreadOwner, own

RUNS = 3
"""That each process has at the same time."""


class Race(TypedDict):
    dsn: str
    schema: str
    folder: str
    seed: int
    processes: int
    threads: int
    turns: int
    """Of each run."""


def live(order: Race, report_ready: Callable[[], object]) -> None:
    report_ready()
    all_at_once(order["processes"], lambda number: asyncio.run(_race(order, number)))


async def _race(order: Race, number: int) -> None:
    store = PostgresStore(order["dsn"], schema=order["schema"], pool_size=RUNS)
    log = Log(Path(order["folder"]) / f"acts-{number}")
    racers = [Racer(store, log, order, number, run) for run in range(RUNS)]
    await asyncio.gather(*(racer.run() for racer in racers))
    await store.close()


class Racer:
    """One run after the other, each on some thread."""

    def __init__(self, store: Store, log: Log, order: Race, process: int, run: int) -> None:
        self._store, self._log = store, log
        self._process = process
        self._name = f"{process}.{run}"
        self._turns, self._threads = order["turns"], order["threads"]
        self._chance = random.Random(f"{order['seed']} {self._name}")

    async def run(self) -> None:
        for turn in range(self._turns):
            thread_id = f"thread {int(self._threads * self._chance.random() ** 3)}"  # some are wanted by many
            name = f"{self._name}.{turn}"
            if self._chance.random() < 0.3:
                await self._post(thread_id, name)
            else:
                await self._move(thread_id, name)

    async def _post(self, thread_id: str, item_id: str) -> None:
        self._log.put("posting", thread_id, item_id)
        for _ in range(self._chance.choice([1, 1, 2])):  # again does nothing
            try:
                await self._store.post(thread_id, item_id, "message", json.dumps(item_id).encode())
            except StoreUnavailable:
                return
        self._log.put("posted", thread_id, item_id)

    async def _move(self, thread_id: str, name: str) -> None:
        asked_at = time.monotonic_ns()
        try:
            owner = await own(self._store, thread_id, owner=name, takeover=self._chance.random() < 0.3)
        except (ThreadBusy, StoreUnavailable):
            return
        fence, waiting = owner.lease.fence, [item.item_id for item in owner.opened.inbox]
        self._log.put("opened", thread_id, name, asked_at=asked_at, fence=fence, inbox=waiting)
        for number in range(self._chance.randint(1, 4)):
            act = f"{name}.{number}"
            self._log.put("begun", thread_id, act, fence=fence)
            try:
                await self._commit(owner, act, waiting)
            except ThreadConflict:
                self._log.put("refused", thread_id, act)
                return
            except StoreUnavailable:
                return
            self._log.put("done", thread_id, act, number=owner.number, consumed=waiting)
            waiting = []
        await owner.release()

    async def _commit(self, owner: ThreadOwner, act: str, consumed: list[str]) -> None:
        if self._chance.random() < 0.3:
            await owner.record(owner.number + 1)
        count = self._chance.randint(1, 3)
        body = json.dumps([["act", act, owner.lease.fence, self._process]]).encode()
        events = LoggedEvents(owner.last_seq + 1, count, body)
        if self._chance.random() < 0.2:
            await owner.note(events=events, brings=[act], consumed=consumed)
        else:
            await owner.save(act, events=events, brings=[act], consumed=consumed)
