"""Measures of perdure's own stores only: encoding, finding and listing, and resuming."""

# The classes are made from a module given at run time, which mypy cannot follow:
# mypy: disable-error-code="misc, valid-type, attr-defined, untyped-decorator"

import gc
import time
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import stores_work
from stores_work import BY_NAME, ITEM_BYTES, ITEMS, NAME, THREAD

Values = dict[str, float]
Call = Callable[[Any], Awaitable[Any]]

# ---------------------------------------------------------------- encoding


@cache
def _changing_class(engine: Any) -> Any:
    Context = engine.WorkflowContext[int, int]

    class Changing(engine.Executor):
        """Changes one dict of a list in each superstep, and sets the whole list."""

        @engine.handler
        async def change(self, message: int, ctx: Context) -> None:
            self.stamps.append(time.perf_counter())
            items = ctx.get_state("items", self.items) if self.reads else self.items
            if items:
                items[message % len(items)]["tokens"] = message
            ctx.set_state("items", items)
            if message > 1:
                await ctx.send_message(message - 1)
            else:
                await ctx.yield_output(0)

    return Changing


async def measure_encoding(engine: Any, subject: str, folder: Path, *, megabytes: list[int], supersteps: int) -> Values:
    """Milliseconds that each MB of state adds to a superstep that sets all of it, compared with `[]`."""
    values: Values = {}
    for how in ("set", "read and set"):
        empty = await _superstep_ms(engine, subject, folder, 0, supersteps, reads=how != "set")
        for size in megabytes:
            count = size * 1024 * 1024 // ITEM_BYTES
            full = await _superstep_ms(engine, subject, folder, count, supersteps, reads=how != "set")
            values[f"{how} {size}"] = (full - empty) / size
    return values


async def _superstep_ms(engine: Any, subject: str, folder: Path, items: int, supersteps: int, *, reads: bool) -> float:
    """The median time from the start of one handler to the start of the next."""
    place = folder / f"encoding-{items}-{reads}"
    storage = stores_work.open_storage(engine, subject, place)
    changing = _changing_class(engine)(id="changing")
    changing.stamps, changing.reads = [], reads
    changing.items = [ITEMS["dict"][1]() for _ in range(items)]
    gc.collect()
    await stores_work.self_loop(engine, changing, storage).run(supersteps + 3, thread_id=THREAD)
    checkpoint = await storage.get_latest(thread_id=THREAD)
    stores_work.expect("dicts in the state", len(checkpoint.state["items"]), items)
    await storage.close()
    stamps: stores_work.Stamps = changing.stamps[2:]  # the first superstep writes everything
    return 1e3 * median([after - before for before, after in pairwise(stamps)])


# ---------------------------------------------------------------- finding and listing

CALLS: dict[str, tuple[str, Call]] = {
    "latest-thread": ("one-thread", lambda storage: storage.get_latest(thread_id=THREAD)),
    "latest-workflow": ("one-thread", lambda storage: storage.get_latest(workflow_name=NAME)),
    "infos-thread": ("one-thread", lambda storage: storage.list_checkpoint_infos(thread_id=THREAD, limit=100)),
    "infos-workflow": ("one-thread", lambda storage: storage.list_checkpoint_infos(workflow_name=NAME, limit=100)),
    "latest-of-many": ("many-threads", lambda storage: storage.get_latest(workflow_name=NAME)),
    "infos-of-many": ("many-threads", lambda storage: storage.list_checkpoint_infos(workflow_name=NAME, limit=100)),
    "latest-behind": ("behind", lambda storage: storage.get_latest(workflow_name="other")),
    "infos-behind": ("behind", lambda storage: storage.list_checkpoint_infos(workflow_name="other", limit=100)),
}
"""By name: the layout of the store, and the call that reads it."""


async def measure_lookups(
    engine: Any, subject: str, folder: Path, *, layout: str, counts: list[int], repeat: int
) -> Values:
    """Microseconds of each call by number of stored checkpoints, with a storage in use and with a new storage."""
    folders = {count: folder / f"{layout}-{count}" for count in counts}
    storages = {}
    for count, place in folders.items():
        storages[count] = stores_work.open_storage(engine, subject, place)
        await _FILL[layout](engine, storages[count], count)
    values: Values = {}
    for name, (wanted, call) in CALLS.items():
        if wanted != layout:
            continue
        for count, storage in storages.items():
            values[f"{name} warm {count}"] = await _warm_us(storage, call, repeat)
    for storage in storages.values():
        await storage.close()
    for name, (wanted, call) in CALLS.items():
        if wanted == layout and subject != "memory":
            for count, place in folders.items():
                values[f"{name} fresh {count}"] = await _fresh_us(engine, subject, place, call, max(3, repeat // 10))
    return values


async def _fill_one_thread(engine: Any, storage: Any, count: int) -> None:
    await stores_work.small_loop(engine, storage).run(count - 1, thread_id=THREAD)  # and the entry
    await _expect_stored(storage, count)


async def _fill_many_threads(engine: Any, storage: Any, count: int) -> None:
    for number in range(count):
        await storage.save(engine.WorkflowCheckpoint(NAME, "", thread_id=f"thread-{number}", state={"count": number}))
    await _expect_stored(storage, count)


async def _fill_behind(engine: Any, storage: Any, count: int) -> None:
    """Store ten checkpoints of another workflow, and then `count` of the measured one."""
    for number in range(10):
        await storage.save(engine.WorkflowCheckpoint("other", "", thread_id="other", state={"count": number}))
    await _fill_one_thread(engine, storage, count)


async def _expect_stored(storage: Any, count: int) -> None:
    stores_work.expect("checkpoints stored", len(await storage.list_checkpoint_ids(workflow_name=NAME)), count)


_FILL = {"one-thread": _fill_one_thread, "many-threads": _fill_many_threads, "behind": _fill_behind}


async def _warm_us(storage: Any, call: Call, repeat: int) -> float:
    await call(storage)
    return median([await _timed_us(call, storage) for _ in range(repeat)])


async def _fresh_us(engine: Any, subject: str, folder: Path, call: Call, repeat: int) -> float:
    spent = []
    for _ in range(repeat):
        started = time.perf_counter()
        storage = stores_work.open_storage(engine, subject, folder)
        await call(storage)
        spent.append((time.perf_counter() - started) * 1e6)
        await storage.close()
    return median(spent)


async def _timed_us(call: Call, storage: Any) -> float:
    started = time.perf_counter()
    await call(storage)
    return (time.perf_counter() - started) * 1e6


# ---------------------------------------------------------------- resuming


@cache
def _large_class(engine: Any) -> Any:
    Context = engine.WorkflowContext[int, int]

    class Large(engine.Executor):
        """Sets 1 MB in the first superstep, and then counts down."""

        @engine.handler
        async def count_down(self, message: int, ctx: Context) -> None:
            if ctx.get_state("count") is None:
                ctx.set_state("items", [ITEMS["str"][1]() for _ in range(1024 * 1024 // ITEM_BYTES)])
            ctx.set_state("count", message)
            if message > 1:
                await ctx.send_message(message - 1)
            else:
                await ctx.yield_output(0)

    return Large


def _resumable(engine: Any, shape: str, storage: Any) -> Any:
    if shape == "grown":
        return stores_work.loop_workflow(engine, BY_NAME["run-state-str"], storage, [])
    return stores_work.self_loop(engine, _large_class(engine)(id="large"), storage)


async def make_thread(engine: Any, subject: str, folder: Path, *, shape: str, checkpoints: int) -> Values:
    storage = stores_work.open_storage(engine, subject, folder)
    await _resumable(engine, shape, storage).run(checkpoints - 1, thread_id=THREAD)  # and the entry
    await _expect_stored(storage, checkpoints)
    await storage.close()
    return {}


async def measure_resume(engine: Any, subject: str, folder: Path, *, shape: str, how: str, least: int) -> Values:
    """Milliseconds from opening the storage to the head of the thread, in a new process.

    With `how="connected"`: milliseconds of reading the head with a storage in use.
    """
    started = time.perf_counter()
    storage = stores_work.open_storage(engine, subject, folder)
    if how == "connected":
        await storage.get_latest(thread_id=THREAD)
        spent = await _warm_us(storage, CALLS["latest-thread"][1], 20) / 1e6
    elif how == "run":
        result = await _resumable(engine, shape, storage).run(thread_id=THREAD)
        spent = time.perf_counter() - started
        stores_work.expect("outputs of the thread at rest", len(result.get_outputs()), 1)
    else:
        checkpoint = await storage.get_latest(thread_id=THREAD)
        spent = time.perf_counter() - started
        if len(checkpoint.state["items"]) < least:
            raise AssertionError(f"expected at least {least} items, got {len(checkpoint.state['items'])}")
    await storage.close()
    return {"ms": spent * 1e3}
