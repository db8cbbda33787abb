"""What a PostgreSQL store reads does not grow with what it keeps: counted by the server, in rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.databases.fixtures import Place
from tests.postgres.forcing import Forced

from perdure.records import CheckpointInfo, Commit, Lease, ThreadHeader
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import FAR, at, make_events, own

FEW, MANY = 20, 2000

READ = """
SELECT COALESCE(sum(seq_tup_read) + sum(idx_tup_fetch), 0) FROM pg_stat_all_tables
  WHERE schemaname = $1 OR (schemaname = 'pg_toast' AND relname IN (
    SELECT t.relname FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid
      WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)))
"""


@pytest.fixture
async def forced(postgres_place: Place) -> AsyncIterator[Forced]:
    async with Forced(*postgres_place) as schema:
        yield schema


def made(thread_id: str, count: int) -> tuple[ThreadHeader, list[Commit]]:
    """Return a thread with so many checkpoints. Each brings a chunk, drops one and records an event."""
    commits = []
    for number in range(1, count + 1):
        stamp = at(number).isoformat()
        info = CheckpointInfo(f"{thread_id}-{number}", thread_id, "w", number, number, None, stamp, "run", "IDLE")
        commits.append(
            Commit(
                Lease(thread_id, "", 0),
                number,
                info,
                b'{"root":%d}' % number,
                make_events(number, 1),
                status="IDLE",
                run_id="run",
                timestamp=stamp,
                parent=number - 1 or None,
                chunks={f"{number:024x}": b'"%d"' % number},
                dropped=[f"{number - 5:024x}.{number - 5}"] if number > 5 else [],
            )
        )
    last = commits[-1]
    standing = ThreadHeader(thread_id, "w", count, 1, "IDLE", last.timestamp, count, head=count, due_at=FAR)
    return standing, commits


class Counted:
    """A store of one connection, and how many rows the server reads for what it is asked."""

    def __init__(self, forced: Forced) -> None:
        self.store: PostgresStore = forced.store(pool_size=1)
        self._forced = forced

    async def rows(self, act: Callable[[], Awaitable[Any]]) -> int:
        await act()  # plans are made, and what is looked up once is known
        before = await self._read()
        await act()
        return await self._read() - before

    async def _read(self) -> int:
        for ask in (self.store.db.value, self._forced.value):  # each reports its reads so far to the server
            await ask("SELECT pg_stat_force_next_flush()")
            await ask("SELECT 1")
        return int(await self._forced.value(READ, self._forced.schema))


def reads(store: PostgresStore, thread_id: str, count: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    """All that is asked of one thread, or of some in the order of all."""
    middle = f"{thread_id}-{count // 2}"

    async def opened() -> None:
        await store.release((await store.open(thread_id, "run")).lease)

    async def moved() -> None:
        owner = await own(store, thread_id)
        await owner.save(events=1)
        await owner.record(1)
        await owner.release()

    async def pinned() -> None:
        await store.pin(middle)
        await store.unpin(middle)

    return {
        "head": lambda: store.head(thread_id),
        "open": opened,
        "move": moved,
        "pin": pinned,
        "find": lambda: store.find_checkpoint(middle),
        "infos": lambda: store.infos(thread_id=thread_id, limit=5),
        "infos before": lambda: store.infos(thread_id=thread_id, limit=5, before=middle),
        "infos of all": lambda: store.infos(limit=5),
        "infos of a workflow": lambda: store.infos(workflow_name="w", limit=5, before=middle),
        "thread": lambda: store.threads(thread_id=thread_id),
        "events": lambda: store.events_after(thread_id, count - 3),
        "standing": lambda: store.thread_header(thread_id),
        "commits": lambda: store.commits(thread_id, after=count // 2, limit=5),
        "chunks": lambda: store.read_chunks(thread_id, [count // 2]),
        "post": lambda: store.post(thread_id, "item", "k", b"1"),
        "questions": lambda: store.pending_requests(thread_id=thread_id),
        "due": lambda: store.due(FAR, limit=2),
        "ids": lambda: store.thread_ids(after=thread_id, limit=2),
        "threads of a prefix": lambda: store.threads(prefix=thread_id, limit=10),
        "statuses of a prefix": lambda: store.threads(prefix=thread_id, statuses={"IDLE"}),
        "ids of a prefix": lambda: store.thread_ids(prefix=thread_id, limit=10),
        "questions of a prefix": lambda: store.pending_requests(prefix=thread_id, limit=10),
        "last seq": lambda: store.last_seq(thread_id),
    }


BESIDE = """
INSERT INTO {s}.threads SELECT (json_populate_record(t, json_build_object('thread', md5(n::text)::uuid,
    'thread_id', 'beside ' || n, 'moved', 100000 + n, 'due_at', t.due_at - n * interval '1 second'))).*
  FROM {s}.threads t, generate_series(1, 3000) n WHERE t.thread_id = 'pattern';
INSERT INTO {s}.commits SELECT (json_populate_record(c, json_build_object('thread', md5(n::text)::uuid,
    'checkpoint_id', '\\x' || md5(n::text), 'seq', 100000 + n))).*
  FROM {s}.commits c JOIN {s}.threads t USING (thread), generate_series(1, 3000) n WHERE t.thread_id = 'pattern';
INSERT INTO {s}.requests SELECT md5(n::text)::uuid, 'q', 'e', now() + n * interval '1 second'
  FROM generate_series(1, 3000) n;
ANALYZE {s}.commits, {s}.threads, {s}.requests
"""
"""Thousands of threads like that of the name `pattern`."""


async def test_rows_read_of_a_thread_do_not_grow_with_history_or_other_threads(forced: Forced) -> None:
    counted = Counted(forced)
    store = counted.store
    await store.add_thread(*made("small", FEW))
    await store.add_thread(*made("large", MANY))
    await store.add_thread(*made("pattern", 1))
    await forced.execute(BESIDE)
    few = {name: await counted.rows(act) for name, act in reads(store, "small", FEW).items()}
    many = {name: await counted.rows(act) for name, act in reads(store, "large", MANY).items()}
    assert {name: (few[name], many[name]) for name in few if max(few[name], many[name]) > 60} == {}
    for _ in range(8):  # the server may keep a plan that is good for these
        await store.pending_requests(limit=10)
        await store.threads(limit=10)
    again = {name: await counted.rows(act) for name, act in reads(store, "large", MANY).items()}
    assert {name: rows for name, rows in again.items() if rows > 60} == {}
    assert await counted.rows(lambda: store.pending_requests(limit=10)) < 60


async def test_all_but_the_newest_of_thousands_are_pruned_with_what_they_hold(forced: Forced) -> None:
    store = forced.store()
    await store.add_thread(*made("t", MANY))
    doomed = [f"t-{number}" for number in range(1, MANY)]
    assert await store.prune("t", doomed, events_before=MANY) == MANY - 1
    assert [info.number for info in await store.infos(thread_id="t")] == [MANY]
    held = await store.read_chunks("t", range(1, MANY + 1))
    assert sorted(held) == [*range(MANY - 4, MANY + 1)]  # those that it has
    assert await forced.value("SELECT count(*) FROM {s}.commits") == 5
    assert await store.check() == []


async def test_half_of_thousands_of_chunks_are_cut_out_of_a_commit_in_a_moment(forced: Forced) -> None:
    store = forced.store(statement_seconds=3.0)
    owner = await own(store, "t")
    names = [f"{number:04x}".ljust(24, "0") for number in range(4000)]
    await owner.save(chunks={name: b'"' + name.encode() * 30 + b'"' for name in names})
    await owner.save(dropped=[f"{name}.1" for name in names[::2]])
    assert await store.prune("t", ["t-1"]) == 1
    assert [*(await store.read_chunks("t", [1]))[1]] == names[1::2]


async def test_pruned_and_unfreed_commits_stay_few_however_many_are_carried_on(forced: Forced) -> None:
    counted = Counted(forced)
    owner = await own(counted.store, "t")
    await owner.save(chunks={f"{number:024x}": b"1" for number in range(4000)})
    for _ in range(600):
        await owner.save(prunes=[owner.number])
    await forced.execute("ANALYZE {s}.commits, {s}.threads")
    assert await forced.value("SELECT count(*) FROM {s}.commits") < 400
    assert await counted.rows(lambda: counted.store.head("t")) < 800
    assert await counted.rows(lambda: counted.store.infos(thread_id="t", limit=5)) < 800


async def test_pruning_beside_thousands_of_kept_chunks_does_not_read_them(forced: Forced) -> None:
    counted, count = Counted(forced), 3 * MANY
    store = counted.store
    await store.add_thread(*made("t", count))
    await forced.execute("ANALYZE {s}.commits, {s}.threads")
    assert await counted.rows(lambda: store.thread_header("t")) < 60
    assert await counted.rows(lambda: store.delete_thread("t", if_unmoved_since=1)) < 60
    owner = await own(store, "t")

    async def forget() -> None:
        for _ in range(20):
            await owner.save(prunes=[owner.number - count + 1])

    assert await counted.rows(forget) < 600
    assert await store.check() == []
