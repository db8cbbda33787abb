"""The peers on PostgreSQL: langgraph's saver with a pool, and the steps of DBOS."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import postgres_place
import stores_langgraph
import stores_work
from postgres_place import CONNECTIONS, schema_of, url_of
from postgres_work import Values, spread_of
from stores_work import THREAD, Stamps


@asynccontextmanager
async def open_saver(folder: Path) -> AsyncIterator[Any]:
    """The saver on a pool, with the connection settings of its own `from_conn_string`."""
    psycopg = import_module("psycopg")
    schema = schema_of(folder)
    async with await psycopg.AsyncConnection.connect(url_of(folder), autocommit=True) as connection:
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    settings = {
        "autocommit": True,
        "prepare_threshold": 0,
        "row_factory": import_module("psycopg.rows").dict_row,
        "options": f"-c search_path={schema}",
    }
    pools = import_module("psycopg_pool")
    sizes = {"min_size": CONNECTIONS, "max_size": CONNECTIONS}
    async with pools.AsyncConnectionPool(url_of(folder), **sizes, kwargs=settings) as pool:
        saver = import_module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


async def keep_dead_rows(saver: Any, folder: Path) -> None:
    """Turn off autovacuum, so that dead rows stay until the measurement."""
    schema = schema_of(folder)
    async with saver.conn.connection() as connection:
        rows = await (await connection.execute(postgres_place.TABLES.format(schema=schema))).fetchall()
        for statement in postgres_place.without_vacuum(schema, (row["tablename"] for row in rows)):
            await connection.execute(statement)


async def bytes_of(folder: Path) -> int:
    async with open_saver(folder) as saver, saver.conn.connection() as connection:
        answer = await connection.execute(postgres_place.SIZE.format(schema=schema_of(folder)))
        return int((await answer.fetchone())["bytes"])


# ---------------------------------------------------------------- supersteps


async def measure_supersteps(_: Any, subject: str, folder: Path, *, threads: int, supersteps: int) -> Values:
    """Supersteps of a compiled graph with `durability="sync"`, or steps of as many workflows of DBOS."""
    if subject == "peer-dbos":
        return _measure_steps(folder, threads, supersteps)
    async with open_saver(folder) as saver:
        stamps: list[Stamps] = [[] for _ in range(threads)]
        runs = [stores_langgraph.counting(saver, mine) for mine in stamps]
        await asyncio.gather(*(run(max(1, supersteps // 4), f"warm-up-{i}") for i, run in enumerate(runs)))
        for mine in stamps:
            mine.clear()
        gc.collect()
        started = time.perf_counter()
        await asyncio.gather(*(run(supersteps, f"thread-{i}") for i, run in enumerate(runs)))
        spent = time.perf_counter() - started
    return {"rate": threads * supersteps / spent, **spread_of(stamps)}


def _measure_steps(folder: Path, threads: int, steps: int) -> Values:
    """Steps of workflows that are plain functions, each in a thread of DBOS. Coroutines are not faster."""
    DBOS = import_module("dbos").DBOS
    DBOS(config={"name": "bench", "system_database_url": url_of(folder), "log_level": "ERROR"})
    stamps: list[Stamps] = [[] for _ in range(threads)]

    @DBOS.step()  # type: ignore[untyped-decorator]
    def count(number: int, mine: int) -> int:
        stamps[mine].append(time.perf_counter())
        return number - 1

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def countdown(number: int, mine: int) -> int:
        while number:
            number = count(number, mine)
        return number

    def run(each: int) -> float:
        started = time.perf_counter()
        handles = [DBOS.start_workflow(countdown, each, mine) for mine in range(threads)]
        stores_work.expect("as the sum of the last counts", sum(handle.get_result() for handle in handles), 0)
        return time.perf_counter() - started

    DBOS.launch()
    run(max(1, steps // 4))
    for mine in stamps:
        mine.clear()
    gc.collect()
    spent = run(steps)
    DBOS.destroy()
    return {"rate": threads * steps / spent, **spread_of(stamps)}


# ---------------------------------------------------------------- resuming


async def make_thread(_: Any, subject: str, folder: Path, *, shape: str, checkpoints: int) -> Values:
    async with open_saver(folder) as saver:
        if shape == "grown":
            case = stores_work.BY_NAME["run-state-str"]
            await stores_langgraph.run_long(case, saver, checkpoints - 1)
        else:
            await stores_langgraph.run_large(saver, checkpoints - 1)
    return {}


async def measure_resume(_: Any, subject: str, folder: Path, *, shape: str, how: str, least: int) -> Values:
    """Time of `aget_tuple` in a new process, or with `how="connected"` once its connections are open."""
    started = time.perf_counter()
    async with open_saver(folder) as saver:
        items = await stores_langgraph.kept_items(saver)
        spent = [time.perf_counter() - started]
        if how == "connected":
            spent = []
            for _ in range(20):
                started = time.perf_counter()
                items = await stores_langgraph.kept_items(saver)
                spent.append(time.perf_counter() - started)
    if items < least:
        raise AssertionError(f"expected at least {least} items in {THREAD}, got {items}")
    return {"ms": median(spent) * 1e3}
