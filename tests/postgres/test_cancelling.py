"""Tasks that are cancelled, loops that end and stores that are closed while PostgreSQL does something for them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.conftest import SOAK
from tests.databases.fixtures import Place
from tests.databases.proxy import Instant, Proxy
from tests.postgres.forcing import Forced

from perdure.errors import CheckpointNotFound, StoreUnavailable, ThreadBusy, ThreadConflict, ThreadNotFound
from perdure.records import JournalEntry, Lease
from perdure.stores.postgres.database import Batcher
from perdure.stores.postgres.pool import Pool
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own, save_thread


@pytest.fixture
async def forced(postgres_place: Place) -> AsyncIterator[Forced]:
    async with Forced(*postgres_place) as schema:
        yield schema


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


# ---------------------------------------------------------------- turns


async def test_batch_is_written_although_the_task_that_began_it_is_cancelled() -> None:
    is_free, written = asyncio.Event(), []

    async def write(batch: Sequence[int]) -> Sequence[int]:
        written.append(list(batch))
        await is_free.wait()
        return [10 * number for number in batch]

    batcher = Batcher(write)
    tasks = [asyncio.create_task(batcher.add(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    await cancelled(tasks[0])
    await cancelled(tasks[1])  # its item waits, and is written all the same
    is_free.set()
    async with asyncio.timeout(60):
        assert await tasks[2] == 30
        assert await batcher.add(4) == 40
    assert written == [[1], [2, 3], [4]]


async def test_enough_items_or_a_long_wait_begin_a_batch_beside() -> None:
    is_free, written = asyncio.Event(), []

    async def write(batch: Sequence[int]) -> Sequence[int]:
        written.append(list(batch))
        await is_free.wait()
        return batch

    batcher = Batcher(write, max_items=3, max_seconds=0.001)
    tasks = [asyncio.create_task(batcher.add(number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert written == [[1], [2, 3, 4]]
    async with asyncio.timeout(60):
        while len(written) < 3:  # noqa: ASYNC110  # no event reports this
            await asyncio.sleep(0.001)
    assert written[2:] == [[5]]
    is_free.set()
    assert await asyncio.gather(*tasks) == [1, 2, 3, 4, 5]


async def test_error_of_a_batch_is_raised_to_each_caller_and_the_next_is_written() -> None:
    async def write(batch: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        if 2 in batch:
            raise ValueError(f"failed: {batch}")
        return batch

    batcher = Batcher(write)
    outcomes = await asyncio.gather(*map(batcher.add, (1, 2, 3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["1", "failed: [2, 3]", "failed: [2, 3]"]
    assert await batcher.add(4) == 4


async def test_connection_of_a_cancelled_task_passes_to_the_next_task(forced: Forced) -> None:
    pool = Pool(forced.dsn, 1, 5.0, 5.0)
    connection = await pool.take()
    first, second = asyncio.create_task(pool.take()), asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    pool.give_back(connection)
    first.cancel()  # it has been given the connection, and does not know yet
    assert await second is connection
    pool.give_back(connection)
    await cancelled(first)
    await pool.close()


async def test_waiting_task_cancelled_before_a_connection_is_free_is_skipped(forced: Forced) -> None:
    pool = Pool(forced.dsn, 1, 5.0, 5.0)
    connection = await pool.take()
    waiting = asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    waiting.cancel()
    pool.give_back(connection)  # before the cancelled task runs
    await cancelled(waiting)
    waiting = asyncio.create_task(pool.take())
    assert await waiting is connection
    other = asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    other.cancel()
    await cancelled(other)
    pool.give_back(connection)
    assert await pool.take() is connection
    pool.give_back(connection)
    await pool.close()


async def test_frequent_caller_does_not_keep_a_connection_from_others(forced: Forced) -> None:
    store = forced.store(pool_size=1, acquire_seconds=5.0)
    await store.threads()
    is_over = asyncio.Event()

    async def insist() -> None:
        while not is_over.is_set():
            await store.head("none")

    insisting = asyncio.create_task(insist())
    for _ in range(5):
        await asyncio.sleep(0)
        await store.threads()
    is_over.set()
    await insisting


# ---------------------------------------------------------------- statements


async def until_sent(proxy: Proxy, statement: str) -> None:
    async with asyncio.timeout(60):
        while not any(statement in sent for sent in proxy.counts.statements):  # noqa: ASYNC110  # no event reports this
            await asyncio.sleep(0.001)


async def test_transaction_cancelled_at_its_start_takes_in_no_later_statement(forced: Forced) -> None:
    with Proxy(forced.dsn) as proxy:
        store = forced.store(proxy.url, pool_size=1)
        owner = await own(store, "t")
        await owner.save()
        proxy.delay_seconds = 0.1
        with proxy.counted():
            deleting = asyncio.create_task(store.delete_thread("none"))
            await until_sent(proxy, "BEGIN")
            await cancelled(deleting)
        await owner.save()
        proxy.delay_seconds = 0.0
        await owner.save()
        assert [info.number for info in await forced.store().infos(thread_id="t")] == [1, 2, 3]
        await store.close()


async def test_cancelled_statement_ends_at_the_server(forced: Forced) -> None:
    store = forced.store()
    await own(store, "t")
    async with forced.locked("{s}.threads"):
        posting = asyncio.create_task(store.post("t", "item", "k", b"1"))
        await forced.until_waiting(1)
        await cancelled(posting)
        await forced.until_waiting(0)
    standing = await store.thread_header("t")
    assert standing is None or standing.inbox == []


async def test_cancelled_commit_is_made_once_and_its_caller_sees_both_cancels(forced: Forced) -> None:
    store = forced.store()
    owner = await own(store, "t")
    ended = []

    async def save() -> None:
        await owner.save(events=1)
        task = asyncio.current_task()
        ended.append(task is not None and task.cancelling())

    async with forced.locked("{s}.threads"):
        saving = asyncio.create_task(save())
        await forced.until_waiting(1)
        for _ in range(2):  # the first reaches the statement itself, the second the check of its outcome
            saving.cancel()
            await asyncio.sleep(0)
            await forced.until_waiting(1)
    await saving
    assert ended == [2]
    assert [info.number for info in await store.infos(thread_id="t")] == [1]


async def test_timed_out_statement_does_not_run_beside_the_next(forced: Forced) -> None:
    store = forced.store(statement_seconds=0.2, pool_size=1)
    owner = await own(store, "t")
    at_once = []
    async with forced.locked("{s}.threads"):
        saving = asyncio.create_task(owner.save())
        await forced.until_waiting(1)
        for _ in range(12):  # in which it is sent several times
            await asyncio.sleep(0.1)
            at_once.append(await forced.waiting())
    await saving
    assert max(at_once) <= 2  # one that is being cancelled, and the next
    assert [info.number for info in await store.infos(thread_id="t")] == [1]


# ---------------------------------------------------------------- claims


async def test_claim_cancelled_before_its_reply_is_released_soon(forced: Forced) -> None:
    with Proxy(forced.dsn) as proxy:
        store, other = forced.store(proxy.url), forced.store()
        await save_thread(store, "opened", 1)
        released = await own(store, "released")
        proxy.delay_seconds = 0.1
        with proxy.counted():
            opening = asyncio.create_task(store.open("opened", "run"))
            await until_sent(proxy, "INSERT INTO")
            await cancelled(opening)
        proxy.cut(Instant.BEFORE, "owner = NULL")
        proxy.delay_seconds = 0.0
        releasing = asyncio.create_task(released.release())
        while not proxy.cuts:  # noqa: ASYNC110  # no event reports this
            await asyncio.sleep(0.001)
        await cancelled(releasing)
        await opened_by(other, "opened")
        await opened_by(other, "released")
        await store.close()


async def opened_by(store: PostgresStore, thread_id: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ThreadBusy):
                await store.open(thread_id, "next")
                return
            await asyncio.sleep(0.05)


OTHER_PROCESS = """
import asyncio, sys
from perdure.errors import ThreadBusy
from perdure.stores.postgres.store import PostgresStore

async def main(dsn, schema):
    store = PostgresStore(dsn, schema=schema)
    await store.release((await store.open("other", "run")).lease)
    print("began", flush=True)
    sys.stdin.readline()
    try:
        await store.open("t", "run")
        print("opened")
    except ThreadBusy:
        print("busy")
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_process_that_was_idle_for_long_owns_what_it_opens(forced: Forced) -> None:
    store = forced.store()
    await save_thread(store, "t", 1)
    await store.close()  # which ends the heartbeat, as a few idle seconds do
    await forced.execute("UPDATE {s}.processes SET leased_until = clock_timestamp() - interval '1 day'")
    arguments = (OTHER_PROCESS, forced.dsn, forced.schema)
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", *arguments, stdin=PIPE, stdout=PIPE)
    assert other.stdout is not None
    assert await other.stdout.readline() == b"began\n"  # a process that starts deletes processes that are long gone
    await store.open("t", "run")
    output, _ = await other.communicate(b"\n")
    assert output == b"busy\n"


# ---------------------------------------------------------------- ends


async def test_a_store_that_is_closed_while_it_is_in_use_leaves_no_connection(forced: Forced) -> None:
    store = forced.store()
    owner = await own(store, "t")
    async with forced.locked("{s}.threads"):
        saving = asyncio.create_task(owner.save())
        await forced.until_waiting(1)
        await store.close()
    await saving
    await forced.until_connections(0)
    assert [info.number for info in await store.infos(thread_id="t")] == [1]


async def test_event_loops_that_end_without_closing_leave_no_connection(forced: Forced) -> None:
    store = forced.store()

    def use() -> None:
        for number in range(3):
            asyncio.run(save_thread(store, f"t{number}", 1))

    await asyncio.to_thread(use)
    await forced.until_connections(0)
    assert len(await store.threads()) == 3


# ---------------------------------------------------------------- at any instant


class Cancelling:
    """Acts that are cancelled at random instants, over connections that are slow or cut."""

    def __init__(self, store: PostgresStore, lease: Lease) -> None:
        self.seed = random.randrange(10**9)
        print(f"seed {self.seed}")
        self.random = random.Random(self.seed)
        self._store = store
        self._lease = lease

    def act(self) -> Coroutine[Any, Any, object]:
        store, name, some = self._store, f"x{self.random.randrange(4)}", self.random.randrange(10**6)
        acts: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: store.post("t", f"item-{some}", "k", b"1"),
            lambda: store.open(name, f"run-{some}", takeover=some % 2 == 0),
            lambda: store.release(Lease(name, f"run-{some}", 1)),
            lambda: store.prune(name, [f"{name}-1"], events_before=some % 3),
            lambda: store.copy_thread("t", f"copy {name}"),
            lambda: store.delete_thread(f"copy {name}"),
            lambda: store.pin("t-1"),
            lambda: store.rewrite("t", lambda kind, name, body: body),
            lambda: store.append_journal(self._lease, JournalEntry(1, some, b"{}")),
            lambda: store.events_after("t", 0),
            lambda: store.thread_header("t"),
            lambda: store.infos(limit=5),
        ]
        return self.random.choice(acts)()

    async def some_acts(self) -> None:
        tasks = [asyncio.create_task(self.act()) for _ in range(self.random.randrange(1, 6))]
        for task in tasks:
            if self.random.random() < 0.7:
                asyncio.get_running_loop().call_later(self.random.random() * 0.02, task.cancel)
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, ACCEPTED):
                raise ended


ACCEPTED = (ThreadBusy, ThreadConflict, ThreadNotFound, CheckpointNotFound, StoreUnavailable)


@pytest.mark.parametrize("pool_size", [1, 3])
async def test_acknowledged_commits_survive_any_cancellation(forced: Forced, pool_size: int) -> None:
    with Proxy(forced.dsn) as proxy:
        store = forced.store(proxy.url, pool_size=pool_size)
        owner = await own(store, "t")
        await owner.save(events=1)
        cancelling = Cancelling(store, owner.lease)
        rounds = 400 if SOAK else 8
        for _ in range(rounds):
            proxy.delay_seconds = cancelling.random.choice([0.0, 0.0, 0.001, 0.003])
            if cancelling.random.random() < 0.05:
                proxy.cut_all()
            await cancelling.some_acts()
            await owner.save(events=1)
        proxy.delay_seconds = 0.0
        infos = await forced.store().infos(thread_id="t")
        assert [info.number for info in infos] == [*range(1, rounds + 2)]
        await asyncio.gather(*(store.head("t") for _ in range(10)))  # all connections are of use
        assert await store.check() == []
        await store.close()
