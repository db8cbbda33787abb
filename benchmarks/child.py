"""One measurement of one engine in a process of its own; prints it as JSON on stdout.

engine.py starts it. The garbage collector is on, with its usual thresholds, for every engine: the
garbage of an engine is part of its cost. Imported modules are frozen (`gc.freeze`), so that the size
of a library does not count.
"""

import argparse
import asyncio
import gc
import importlib
import json
import logging
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import bare
import workloads

IDLE_SUPERSTEPS = 3
MODULES = {"perdure": "perdure", "agent-framework-core": "agent_framework"}


@dataclass(frozen=True)
class Size:
    supersteps: int
    fan_rounds: int
    turns: int
    threads: int
    seconds: float
    """A rate covers whole runs until they took this much time."""


async def rate_of_loop(engine: Any, size: Size) -> float:
    async def once() -> float:
        return await _timed(workloads.loop_run(engine, size.supersteps))

    return size.supersteps * await _runs_per_second(once, size.seconds)


async def rate_of_stored_loop(engine: Any, size: Size) -> float:
    async def once() -> float:
        run, check = workloads.stored_loop_run(engine, size.supersteps)
        seconds = await _timed(run)
        await check()
        return seconds

    return size.supersteps * await _runs_per_second(once, size.seconds)


async def rate_of_streamed_loop(engine: Any, size: Size) -> float:
    async def once() -> float:
        return await _timed(workloads.streamed_loop_run(engine, size.supersteps))

    return size.supersteps * await _runs_per_second(once, size.seconds)


async def rate_of_fan(engine: Any, size: Size) -> float:
    async def once() -> float:
        return await _timed(workloads.fan_run(engine, size.fan_rounds))

    deliveries = workloads.DELIVERIES_PER_ROUND * size.fan_rounds
    return deliveries * await _runs_per_second(once, size.seconds)


async def rate_of_fan_in_a_used_process(engine: Any, size: Size) -> float:
    """The same where the engine has run before, and imported modules are not frozen: collections cost what they cost
    in a program."""
    gc.unfreeze()
    with tempfile.TemporaryDirectory() as folder:
        kept = await workloads.live_before(engine, size.supersteps // 4, folder)
        rate = await rate_of_fan(engine, size)
        kept.clear()
    return rate


async def rate_of_conversation(engine: Any, size: Size) -> float:
    async def once() -> float:
        run, check = workloads.conversation_run(engine, size.turns)
        seconds = await _timed(run)
        await check()
        return seconds

    return size.turns * await _runs_per_second(once, size.seconds)


async def bytes_of_idle_thread(engine: Any, size: Size) -> float:
    return await _bytes_per_thread(engine, size.threads, stored=False)


async def bytes_of_stored_idle_thread(engine: Any, size: Size) -> float:
    return await _bytes_per_thread(engine, size.threads, stored=True)


async def rate_of_bare_loop(size: Size) -> float:
    async def once() -> float:
        return await _timed(lambda: bare.loop_once(size.supersteps))

    return size.supersteps * await _runs_per_second(once, size.seconds)


async def rate_of_bare_fan(size: Size) -> float:
    async def once() -> float:
        return await _timed(lambda: bare.fan_once(size.fan_rounds))

    deliveries = workloads.DELIVERIES_PER_ROUND * size.fan_rounds
    return deliveries * await _runs_per_second(once, size.seconds)


MEASURES: dict[str, Callable[[Any, Size], Awaitable[float]]] = {
    "loop": rate_of_loop,
    "stored_loop": rate_of_stored_loop,
    "streamed_loop": rate_of_streamed_loop,
    "fan": rate_of_fan,
    "used_fan": rate_of_fan_in_a_used_process,
    "conversation": rate_of_conversation,
    "idle_thread": bytes_of_idle_thread,
    "stored_idle_thread": bytes_of_stored_idle_thread,
}
BARE_MEASURES: dict[str, Callable[[Size], Awaitable[float]]] = {
    "loop": rate_of_bare_loop,
    "fan": rate_of_bare_fan,
}


async def _timed(run: workloads.Run) -> float:
    gc.collect()
    started = time.perf_counter()
    await run()
    return time.perf_counter() - started


async def _runs_per_second(once: Callable[[], Awaitable[float]], seconds: float) -> float:
    """The rate of whole runs, each on a workflow object of its own. The first run is a warm-up and does not count."""
    await once()
    runs, spent = 0, 0.0
    while spent < seconds:
        spent += await once()
        runs += 1
    return runs / spent


async def _bytes_per_thread(engine: Any, count: int, *, stored: bool) -> float:
    """The memory of Python's allocators for each of `count` finished runs. Two earlier runs are the warm-up."""
    await workloads.finish_threads(engine, 2, IDLE_SUPERSTEPS, stored=stored)
    tracemalloc.start()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    alive = await workloads.finish_threads(engine, count, IDLE_SUPERSTEPS, stored=stored)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    alive.clear()
    return (after - before) / count


async def _measure(engine_name: str, measure: str, size: Size) -> float:
    if engine_name == "bare":
        return await BARE_MEASURES[measure](size)
    engine = importlib.import_module(MODULES[engine_name])
    for name in ("Executor", "WorkflowBuilder", "InMemoryCheckpointStorage", "handler"):
        getattr(engine, name)  # lazy names are imported now, not in the measured time
    gc.collect()
    gc.freeze()
    return await MEASURES[measure](engine, size)


def _version(engine_name: str) -> str:
    try:
        return version(engine_name)
    except PackageNotFoundError:
        return "checkout"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=[*MODULES, "bare"])
    parser.add_argument("measure", choices=[*MEASURES])
    parser.add_argument("size", type=json.loads, help="the fields of Size, as JSON")
    options = parser.parse_args()
    # The countdown is a self-loop. Engines log a warning about it at build, which the NullHandler drops.
    logging.getLogger().addHandler(logging.NullHandler())
    value = asyncio.run(_measure(options.engine, options.measure, Size(**options.size)))
    python = ".".join(map(str, sys.version_info[:3]))
    json.dump({"value": value, "version": _version(options.engine), "python": python}, sys.stdout)


if __name__ == "__main__":
    main()
