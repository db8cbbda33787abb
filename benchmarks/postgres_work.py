"""The work of the PostgreSQL store: supersteps, commits without an engine, and inserts without a store."""

# The class is made from a module given at run time, which mypy cannot follow:
# mypy: disable-error-code="misc, valid-type, attr-defined, untyped-decorator"

import asyncio
import gc
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec
import postgres_place
import stores_work
from stores_work import Stamps

Values = dict[str, float]

_RAW_TABLE = """
CREATE TABLE public.raw (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)
"""


def spread_of(stamps: Iterable[Stamps], prefix: str = "") -> Values:
    """The percentiles of the time from each stamp to the next."""
    return percentiles([after - before for mine in stamps for before, after in pairwise(mine)], prefix)


def percentiles(seconds: Sequence[float], prefix: str = "") -> Values:
    """p50 and p99, in milliseconds."""
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {f"{prefix}p50": cuts[49] * 1e3, f"{prefix}p99": cuts[98] * 1e3}


# ---------------------------------------------------------------- supersteps


def _counting(engine: Any, storage: Any, stamps: Stamps) -> Any:
    """A countdown with one number in the state. `stamps` receives the start of each superstep."""
    Context = engine.WorkflowContext[int, int]

    class Counter(engine.Executor):
        @engine.handler
        async def count(self, message: int, ctx: Context) -> None:
            stamps.append(time.perf_counter())
            ctx.set_state("count", message)
            await stores_work.count_down(message, ctx)

    return stores_work.self_loop(engine, Counter(id="counter"), storage)


async def measure_supersteps(engine: Any, subject: str, folder: Path, *, threads: int, supersteps: int) -> Values:
    """Supersteps a second of concurrent countdowns, and the time of a superstep and of its commit."""
    storage = stores_work.open_storage(engine, subject, folder)
    stamps: list[Stamps] = [[] for _ in range(threads)]
    workflows = [_counting(engine, storage, mine) for mine in stamps]
    commits = _timed_commits(storage.store)

    async def run(each: int, name: str) -> float:
        started = time.perf_counter()
        done = await asyncio.gather(
            *(workflow.run(each, thread_id=f"{name}-{i}") for i, workflow in enumerate(workflows))
        )
        spent = time.perf_counter() - started
        stores_work.expect("outputs", sum(len(result.get_outputs()) for result in done), threads)
        return spent

    await run(max(1, supersteps // 4), "warm-up")
    for mine in (*stamps, commits):
        mine.clear()
    gc.collect()
    spent = await run(supersteps, "thread")
    await storage.close()
    return {"rate": threads * supersteps / spent, **spread_of(stamps), **percentiles(commits, "commit ")}


def _timed_commits(store: Any) -> Stamps:
    """A list that receives the time of each later commit."""
    spent: Stamps = []
    commit = store.commit

    async def timed(batch: Any) -> None:
        started = time.perf_counter()
        await commit(batch)
        spent.append(time.perf_counter() - started)

    store.commit = timed
    return spent


# ---------------------------------------------------------------- commits without an engine


async def measure_commits(engine: Any, subject: str, folder: Path, *, threads: int, supersteps: int) -> Values:
    """Commits a second. They are like those of the countdown, but prepared, and the store receives one at a time."""
    storage = stores_work.open_storage(engine, subject, folder)
    model = await _commit_of_a_countdown(engine, storage)
    lines = [await _line(storage.store, model, f"thread-{i}", supersteps) for i in range(threads)]
    warm = [await _line(storage.store, model, f"warm-up-{i}", max(1, supersteps // 4)) for i in range(threads)]
    commits = _timed_commits(storage.store)

    async def give(line: Sequence[Any]) -> None:
        for commit in line:
            await storage.store.commit(commit)

    await asyncio.gather(*map(give, warm))
    commits.clear()
    gc.collect()
    started = time.perf_counter()
    await asyncio.gather(*map(give, lines))
    spent = time.perf_counter() - started
    await storage.close()
    return {"rate": threads * supersteps / spent, **percentiles(commits)}


async def _commit_of_a_countdown(engine: Any, storage: Any) -> Any:
    """A commit from the middle of a run."""
    seen: list[Any] = []
    commit = storage.store.commit

    async def record(batch: Any) -> None:
        seen.append(batch)
        await commit(batch)

    storage.store.commit = record
    await stores_work.small_loop(engine, storage).run(200, thread_id="model")
    storage.store.commit = commit
    return seen[100]


async def _line(store: Any, model: Any, thread_id: str, count: int) -> list[Any]:
    """Consecutive commits of one thread."""
    opened = await store.open(thread_id, "bench")
    replace = msgspec.structs.replace
    line = []
    for number in range(1, count + 1):
        checkpoint_id = f"{thread_id:-<12}{number:012x}"
        info = replace(model.info, checkpoint_id=checkpoint_id, thread_id=thread_id, number=number)
        events = replace(model.events, first_seq=number * model.events.count)
        parent = number - 1 if number > 1 else None
        line.append(replace(model, lease=opened.lease, number=number, info=info, events=events, parent=parent))
    return line


# ---------------------------------------------------------------- inserts without a store


async def measure_inserts(engine: Any, subject: str, folder: Path, *, threads: int, supersteps: int) -> Values:
    """Inserts a second of a row as large as a commit. Each thread has a connection and a prepared statement."""
    length = await _row_bytes(engine, folder)
    connections = [await postgres_place.connect(folder) for _ in range(threads)]
    await connections[0].execute(_RAW_TABLE)
    insert = "INSERT INTO public.raw (body) VALUES ($1)"
    statements = [await connection.prepare(insert) for connection in connections]
    await statements[0].fetch(b"")
    empty = await connections[0].fetchval("SELECT pg_column_size(r.*) FROM public.raw r")
    body = b"x" * (length - empty)
    spent_on: Stamps = []

    async def give(statement: Any, count: int) -> None:
        for _ in range(count):
            started = time.perf_counter()
            await statement.fetch(body)
            spent_on.append(time.perf_counter() - started)

    await asyncio.gather(*(give(statement, max(10, supersteps // 4)) for statement in statements))
    spent_on.clear()
    gc.collect()
    started = time.perf_counter()
    await asyncio.gather(*(give(statement, supersteps) for statement in statements))
    spent = time.perf_counter() - started
    del statements
    for connection in connections:
        await connection.close()
    return {"rate": threads * supersteps / spent, **percentiles(spent_on), "bytes": float(length)}


async def _row_bytes(engine: Any, folder: Path) -> int:
    """The stored size of a commit from the middle of a countdown."""
    storage = postgres_place.open_storage(engine, "postgres", folder)
    await stores_work.small_loop(engine, storage).run(200, thread_id="model")
    await storage.close()
    connection = await postgres_place.connect(folder)
    size = f'SELECT pg_column_size(c.*) FROM "{postgres_place.schema_of(folder)}".commits c WHERE number = 100'
    stored = int(await connection.fetchval(size))
    await connection.close()
    return stored
