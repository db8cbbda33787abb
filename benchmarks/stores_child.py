"""One measurement of one store in a process of its own; prints it as JSON on stdout. stores.py starts it.

As in child.py the garbage collector is on, and imported modules are frozen.
"""

import argparse
import asyncio
import gc
import importlib
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import postgres_peers
import postgres_place
import postgres_pruning
import postgres_work
import stores_langgraph
import stores_raw
import stores_reading
import stores_work
from stores_work import BY_NAME, THREAD, Case, Stamps

SAVER = "langgraph-checkpoint-postgres"
MODULES = {
    "perdure": "perdure",
    "agent-framework-core": "agent_framework",
    "langgraph": "langgraph.graph",
    SAVER: "langgraph.checkpoint.postgres.aio",
    "dbos": "dbos",
}
ALSO = {"perdure": "perdure.stores.postgres.store", SAVER: "langgraph.graph"}
"""Modules that are imported at the first use; here before the measurement."""
WARM_UP_TURNS = 20
RUN_THREADS = "run-threads"
"""Not a measure: runs threads during the measurement of another process."""

Values = dict[str, float]


async def measure_turns(engine: Any, subject: str, folder: Path, *, case: str, turns: int) -> Values:
    """Bytes on disk for each byte of payload, and the growth of the time of a turn."""
    chosen = BY_NAME[case]
    await _take(engine, subject, folder / "warm", chosen, WARM_UP_TURNS)
    gc.collect()
    spent = await _take(engine, subject, folder / "measured", chosen, turns)
    tenth, warm = max(1, turns // 10), turns // 100
    first, last = mean(spent[warm : warm + tenth]), mean(spent[-tenth:])
    stored = await _bytes_in(subject, folder / "measured")
    return {
        "times": stored / (turns * stores_work.ITEM_BYTES),
        "growth": last / first,
        "first_ms": first * 1e3,
        "last_ms": last * 1e3,
    }


async def _bytes_in(subject: str, folder: Path) -> int:
    if subject == "peer-postgres":
        return await postgres_peers.bytes_of(folder)
    if subject == "postgres":
        return await postgres_place.bytes_of(folder)
    return stores_work.bytes_in(folder)


async def _take(engine: Any, subject: str, folder: Path, case: Case, turns: int) -> Stamps:
    """The time of each turn. Closes the store afterwards."""
    if subject in ("peer-sqlite", "peer-postgres"):
        return await _take_langgraph(subject, folder, case, turns)
    storage = stores_work.open_storage(engine, subject, folder)
    if subject == "postgres":
        await postgres_place.keep_dead_rows(folder, storage)
    has_threads = engine.__name__ == "perdure"
    if case.one_run:
        stamps: Stamps = []
        workflow = stores_work.loop_workflow(engine, case, storage, stamps)
        await workflow.run(turns, **({"thread_id": THREAD} if has_threads else {}))
        spent = _between([*stamps, time.perf_counter()])
    else:
        workflow = stores_work.turns_workflow(engine, case, storage)
        make_item = stores_work.ITEMS[case.item][1]
        spent = []
        for _ in range(turns):
            item = make_item()
            started = time.perf_counter()
            await workflow.run(item, **({"thread_id": THREAD} if has_threads else {}))
            spent.append(time.perf_counter() - started)
    await stores_work.close_storage(storage)
    if turns > WARM_UP_TURNS:
        await _check_kept(engine, subject, folder, case, turns)
    return spent


async def _check_kept(engine: Any, subject: str, folder: Path, case: Case, turns: int) -> None:
    again = stores_work.open_storage(engine, subject, folder)
    stores_work.expect("items in the store", await stores_work.kept_items(case, again), turns)
    await stores_work.close_storage(again)


async def _take_langgraph(subject: str, folder: Path, case: Case, turns: int) -> Stamps:
    opened = postgres_peers.open_saver if subject == "peer-postgres" else stores_langgraph.open_sqlite_saver
    async with opened(folder) as saver:
        if subject == "peer-postgres":
            await postgres_peers.keep_dead_rows(saver, folder)
        if case.one_run:
            spent = _between(await stores_langgraph.run_long(case, saver, turns))
        else:
            spent = await stores_langgraph.take_turns(case, saver, turns)
        stores_work.expect("items in the store", await stores_langgraph.kept_items(saver), turns)
    return spent


def _between(stamps: Stamps) -> Stamps:
    return [after - before for before, after in pairwise(stamps)]


async def measure_rate(engine: Any, subject: str, folder: Path, *, supersteps: int, seconds: float) -> Values:
    """Supersteps a second of whole runs, each on a thread of its own. The first run is a warm-up."""
    if subject == "peer-sqlite":
        async with stores_langgraph.open_sqlite_saver(folder) as saver:
            return await _rate(stores_langgraph.counting(saver), supersteps, seconds)
    storage = stores_work.open_storage(engine, subject, folder)
    workflow = stores_work.small_loop(engine, storage)
    has_threads = engine.__name__ == "perdure"

    async def run(count: int, thread_id: str) -> None:
        result = await workflow.run(count, **({"thread_id": thread_id} if has_threads else {}))
        stores_work.expect("outputs", len(result.get_outputs()), 1)

    values = await _rate(run, supersteps, seconds)
    await stores_work.close_storage(storage)
    return values


async def _rate(run: Callable[[int, str], Awaitable[None]], supersteps: int, seconds: float) -> Values:
    await run(max(1, supersteps // 4), "warm-up")
    runs, spent = 0, 0.0
    while spent < seconds:
        gc.collect()
        started = time.perf_counter()
        await run(supersteps, f"thread-{runs}")
        spent += time.perf_counter() - started
        runs += 1
    return {"rate": runs * supersteps / spent}


async def measure_raw(engine: Any, subject: str, folder: Path, *, supersteps: int, seconds: float) -> Values:
    """The rate of writing the same rows or lines without an engine."""
    storage = stores_work.open_storage(engine, subject, folder)
    await stores_work.small_loop(engine, storage).run(100, thread_id=THREAD)
    await storage.close()
    done, spent = 0, 0.0
    while spent < seconds:
        if subject.startswith("sqlite"):
            synchronous = "FULL" if subject == "sqlite-full" else "NORMAL"
            spent += stores_raw.sqlite_seconds(folder, synchronous, supersteps)
        else:
            spent += stores_raw.file_seconds(folder, syncs=subject == "file", commits=supersteps)
        done += supersteps
    return {"rate": done / spent}


MEASURES: dict[str, Callable[..., Awaitable[Values]]] = {
    "turns": measure_turns,
    "rate": measure_rate,
    "raw": measure_raw,
    "encoding": stores_reading.measure_encoding,
    "lookups": stores_reading.measure_lookups,
    "make": stores_reading.make_thread,
    "resume": stores_reading.measure_resume,
    "supersteps": postgres_work.measure_supersteps,
    "commits": postgres_work.measure_commits,
    "inserts": postgres_work.measure_inserts,
    "grow": postgres_pruning.grow,
    "prune": postgres_pruning.measure_prune,
}
OF_PEERS: dict[str, Callable[..., Awaitable[Values]]] = {
    "supersteps": postgres_peers.measure_supersteps,
    "make": postgres_peers.make_thread,
    "resume": postgres_peers.measure_resume,
}
"""The same measures for a peer on PostgreSQL."""


async def _measure(engine_name: str, measure: str, subject: str, folder: Path, parameters: dict[str, Any]) -> Values:
    engine = importlib.import_module(MODULES[engine_name])
    if engine_name in ALSO:
        importlib.import_module(ALSO[engine_name])
    for name in ("Executor", "WorkflowBuilder", "FileCheckpointStorage", "SqliteCheckpointStorage", "handler"):
        getattr(engine, name, None)  # lazy names are imported now, not in the measured time
    gc.collect()
    gc.freeze()
    measures = OF_PEERS if subject in ("peer-postgres", "peer-dbos") and measure in OF_PEERS else MEASURES
    return await measures[measure](engine, subject, folder, **parameters)


def _version(engine_name: str) -> str:
    try:
        number = version(engine_name)
        return f"{number} of langgraph {version('langgraph')}" if engine_name == SAVER else number
    except PackageNotFoundError:
        return "checkout"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=[*MODULES])
    parser.add_argument("measure", choices=[*MEASURES, RUN_THREADS])
    parser.add_argument("subject")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parameters", type=json.loads, help="the parameters of the measure, as JSON")
    options = parser.parse_args()
    # The loops are self-loops. Engines log a warning about them at build, which the NullHandler drops.
    logging.getLogger().addHandler(logging.NullHandler())
    if options.measure == RUN_THREADS:
        engine = importlib.import_module(MODULES[options.engine])
        json.dump(asyncio.run(postgres_pruning.run_threads(engine, options.subject, options.folder)), sys.stdout)
        return
    values = asyncio.run(_measure(options.engine, options.measure, options.subject, options.folder, options.parameters))
    python = ".".join(map(str, sys.version_info[:3]))
    json.dump({"values": values, "version": _version(options.engine), "python": python}, sys.stdout)


if __name__ == "__main__":
    main()
