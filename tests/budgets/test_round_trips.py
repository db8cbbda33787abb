"""How often PostgreSQL is asked: for each act of the store, for a turn of a thread, and for a resume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tests.budgets.budgets import Asked, check_asked
from tests.budgets.flows import steps
from tests.databases.proxy import Proxy
from tests.promises.stages import Stage, fan, ledger

from perdure.storages import PostgresCheckpointStorage
from perdure.store import Store
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import ThreadOwner, make_request, own

Act = Callable[[], Awaitable[Any]]


class Counting:
    """What acts ask for, by name."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.asked: dict[str, Asked] = {}

    async def count(self, name: str, act: Act, *, before: Act | None = None, is_cold: bool = False) -> None:
        """How often the server is asked, and with how many statements; they are prepared by doing it twice before, but
        for those of a cold start. What is done `before` each is not counted."""
        for _ in range(1 if is_cold else 3):
            if before is not None:
                await before()
            with self._proxy.counted() as counts:
                await act()
            self.asked[name] = Asked(counts.round_trips, len(counts.statements))


async def test_each_act_of_the_store_takes_the_budgeted_round_trips(proxy: Proxy) -> None:
    store, counting = PostgresStore(proxy.url), Counting(proxy)
    owner = await own(store)
    await counting.count("a commit", lambda: owner.save(events=1, chunks={"aa": b"1"}))
    await counting.count("a commit without a checkpoint", lambda: owner.note(events=1, status="FAILED"))
    await counting.count("a commit that does all it can", lambda: all_in_one(owner))
    await counting.count("a journal entry", lambda: owner.record(1))
    await counting.count("a commit that settles the journal", owner.save, before=lambda: owner.record(2))
    await counting.count("a post", lambda: store.post("t", f"item {owner.number}", "message", b"1"))
    await counting.count("a renewal", lambda: store.renew(owner.lease))
    await counting.count("a release", owner.release)
    await counting.count("an opening", lambda: store.open("t", "run", takeover=True))
    await reading(counting, store)
    await store.close()
    check_asked(counting.asked)


async def all_in_one(owner: ThreadOwner) -> None:
    number = owner.number + 1
    await owner.save(
        events=2,
        chunks={"aa": b"1"},
        dropped=[f"aa.{number - 1}"],
        consumed=["item"],
        unsettled=[7],
        requests=[make_request("t", "question", 1)],
        prunes=[number - 1],
        prunes_events_before=number - 1,
    )


async def reading(counting: Counting, store: Store) -> None:
    await counting.count("a head", lambda: store.head("t"))
    await counting.count("chunks", lambda: store.read_chunks("t", [1, 2]))
    await counting.count("a list of 10", lambda: store.infos(thread_id="t", limit=10))
    await counting.count("the newest 3 of a list", lambda: store.infos(thread_id="t", limit=3))
    await counting.count("threads", lambda: store.threads(limit=10))
    await counting.count("events", lambda: store.events_after("t", None))
    await counting.count("what is asked", store.pending_requests)


async def test_turn_superstep_and_resume_take_the_budgeted_round_trips(proxy: Proxy) -> None:
    counting = Counting(proxy)
    async with PostgresCheckpointStorage(proxy.url) as storage:
        talking, stepping, fanning = ledger(Stage(), storage), steps(storage), fan(Stage(), storage)
        await counting.count("a turn", lambda: talking.run("x", thread_id="t"))
        await counting.count(
            "a turn of a new workflow object", lambda: ledger(Stage(), storage).run("x", thread_id="t")
        )
        await counting.count("a turn of 10 supersteps", lambda: stepping.run(10, thread_id="s"))
        await counting.count("a turn of 20 supersteps", lambda: stepping.run(20, thread_id="s"))
        await counting.count("a turn with three siblings", lambda: fanning.run("x", thread_id="f"))
        await counting.count("a resume", lambda: talking.run(thread_id="t"))
    for name, message in (("a resume over a new connection", None), ("a turn over a new connection", "x")):
        async with PostgresCheckpointStorage(proxy.url) as storage:
            await counting.count(name, partial(ledger(Stage(), storage).run, message, thread_id="t"), is_cold=True)
    check_asked(counting.asked)


async def test_first_use_of_a_database_takes_the_budgeted_round_trips(proxy: Proxy) -> None:
    counting = Counting(proxy)
    async with PostgresCheckpointStorage(proxy.url) as storage:
        await counting.count("tables made", storage.list_threads, is_cold=True)
    check_asked(counting.asked)
