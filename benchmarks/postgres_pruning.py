"""Prunes a thread with very many checkpoints while it and another thread continue to run."""

# The class is made from a module given at run time, which mypy cannot follow:
# mypy: disable-error-code="misc, valid-type, attr-defined, untyped-decorator"

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import stores_work
from postgres_work import Values, percentiles
from stores_work import THREAD

KEPT, RUN, WINDOW, ITEM_BYTES = 10, 100, 16, 256
ALONE_SECONDS = 3.0
PAUSE_SECONDS = 0.002
"""The pause between two commits, which leaves time for other work. The measure looks for commits that wait."""
ENDLESS = 1_000_000_000
OTHER = "other-thread"

Timed = list[tuple[float, float]]
"""The start of each commit, by the clock of the machine, and its duration."""


def _sliding(engine: Any, storage: Any, pause: float = 0.0) -> Any:
    """A workflow that keeps the last few items: each checkpoint adds one item and drops one."""
    Context = engine.WorkflowContext[int, int]

    class Window(engine.Executor):
        @engine.handler
        async def slide(self, message: int, ctx: Context) -> None:
            item = stores_work.text(ITEM_BYTES)
            ctx.set_state("items", [*ctx.get_state("items", []), item][-WINDOW:])
            if pause:
                await asyncio.sleep(pause)
            await stores_work.count_down(message, ctx)

    return stores_work.self_loop(engine, Window(id="window"), storage)


async def grow(engine: Any, subject: str, folder: Path, *, checkpoints: int) -> Values:
    """Create a thread with this many checkpoints, by runs of a hundred each."""
    storage = stores_work.open_storage(engine, "postgres-relaxed", folder)
    workflow = _sliding(engine, storage)
    for _ in range(checkpoints // RUN):
        await workflow.run(RUN - 1, thread_id=THREAD)  # and the entry
    await storage.close()
    return {}


async def measure_prune(engine: Any, subject: str, folder: Path, *, checkpoints: int) -> Values:
    """The seconds of a pruning and the growth of memory, with the time of commits before and during it.

    The commits are those of the same thread and of another thread, in a process of their own.
    """
    storage = stores_work.open_storage(engine, subject, folder)
    stores_work.expect(
        "checkpoints in one list", len(await storage.list_checkpoint_infos(thread_id=THREAD, limit=5)), 5
    )
    command = [sys.executable, str(Path(sys.argv[0])), "perdure", "run-threads", subject, str(folder), "{}"]
    pipe = asyncio.subprocess.PIPE
    others = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert others.stdout is not None
    await others.stdout.readline()  # both threads have committed
    alone = time.perf_counter()
    await asyncio.sleep(ALONE_SECONDS)
    lags: list[float] = []
    watching = asyncio.create_task(_watch(lags))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    report = await storage.prune(thread_id=THREAD, keep_last=KEPT)
    ended = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    watching.cancel()
    written, _ = await others.communicate(b"\n")
    removed = sum(thread.checkpoints for thread in report.threads)
    if removed < checkpoints - KEPT:
        raise AssertionError(f"expected at least {checkpoints - KEPT} checkpoints to go, got {removed}")
    values = {"seconds": ended - began, "peak MB": (after - before) / 1024, "lag ms": max(lags) * 1e3}
    timed: dict[str, Timed] = json.loads(written)
    for thread_id, title in ((OTHER, "other"), (THREAD, "same")):
        for name, since, until in (("alone", alone, began), ("meanwhile", began, ended)):
            spent = [took for start, took in timed[thread_id] if since <= start < until]
            values |= percentiles(spent, f"{title} {name} ") | {f"{title} {name} max": max(spent) * 1e3}
    checkpoint = await storage.get_latest(thread_id=THREAD)
    stores_work.expect("items in the head", len(checkpoint.state["items"]), WINDOW)
    await storage.close()
    return values


async def _watch(lags: list[float]) -> None:
    """Record how late this event loop resumes a task that is due."""
    while True:
        due = time.perf_counter() + PAUSE_SECONDS
        await asyncio.sleep(PAUSE_SECONDS)
        lags.append(time.perf_counter() - due)


async def run_threads(engine: Any, subject: str, folder: Path) -> Any:
    """Run two threads until stdin has a line. `measure_prune` starts this process and reads its result."""
    storage = stores_work.open_storage(engine, subject, folder)
    timed: dict[str, Timed] = {THREAD: [], OTHER: []}
    commit = storage.store.commit
    both = asyncio.Event()

    async def record(batch: Any) -> None:
        started = time.perf_counter()
        await commit(batch)
        timed[batch.lease.thread_id].append((started, time.perf_counter() - started))
        if all(timed.values()):
            both.set()

    storage.store.commit = record
    runs = [
        asyncio.create_task(_sliding(engine, storage, PAUSE_SECONDS).run(ENDLESS, thread_id=thread_id))
        for thread_id in timed
    ]
    await both.wait()
    print("both", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    await storage.close()
    return timed
