"""Threads that a run could not give up: the next run of this process has them, and no other process loses one by it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.promises.processes import STORAGES
from tests.turns import AwaitingStore, turns
from tests.unit.engine.flows import Gate, gated, shouting

from perdure import ThreadBusy
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import StorageFailed
from perdure.testing import Faults

ROOT = Path(__file__).parents[3]
OWNER = """
import asyncio, sys
from pathlib import Path
from perdure.testing.conformance.threads import own
from tests.promises.processes import STORAGES
async def main():
    async with STORAGES[sys.argv[1]](Path(sys.argv[2])) as storage:
        owner = await own(storage.store, "t", owner="nightly", takeover=True)
        print("owns it", flush=True)
        sys.stdin.readline()
        await owner.note()
        print("still does", flush=True)
asyncio.run(main())
"""


@pytest.fixture(params=STORAGES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def storage(kind: str, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    made = STORAGES[kind](tmp_path)
    yield made
    await made.close()


class OtherProcess:
    """Has the thread under the run id "nightly", until it is asked whether it still does."""

    def __init__(self, kind: str, folder: Path) -> None:
        command = [sys.executable, "-c", OWNER, kind, str(folder)]
        self._child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None and self._child.stdout.readline() == "owns it\n"

    def reply(self) -> str:
        output, _ = self._child.communicate("go on\n", timeout=60)
        return output.strip()

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


@pytest.fixture
def started() -> Iterator[list[OtherProcess]]:
    made: list[OtherProcess] = []
    yield made
    for process in made:
        process.end()


# ---------------------------------------------------------------- made good here


async def test_next_run_here_takes_a_thread_that_could_not_be_released(
    storage: StoreCheckpointStorage,
) -> None:
    faults = Faults()
    flow = shouting(checkpoint_storage=faults.wrap(storage))
    faults.fail("release")
    assert (await flow.run("one", thread_id="t", run_id="nightly")).get_outputs() == ["<ONE>"]
    with pytest.raises(ThreadBusy) as busy:
        await storage.store.open("t", "somebody")
    assert busy.value.is_here and busy.value.run_id == "nightly"
    assert (await flow.run("two", thread_id="t")).get_outputs() == ["<TWO>"]
    assert (await flow.run("three", thread_id="t", run_id="nightly")).get_outputs() == ["<THREE>"]


async def test_next_run_here_takes_a_thread_that_a_failed_call_opened(
    storage: StoreCheckpointStorage,
) -> None:
    faults = Faults()
    flow = shouting(checkpoint_storage=faults.wrap(storage))
    faults.fail("open", when="after")
    with pytest.raises(StorageFailed):
        await flow.run("one", thread_id="t", run_id="nightly")
    assert (await flow.run("two", thread_id="t")).get_outputs() == ["<TWO>"]


async def test_a_living_run_of_the_same_id_on_another_thread_keeps_it(storage: StoreCheckpointStorage) -> None:
    faults, gate = Faults(), Gate()
    faults.fail("release")
    await shouting(checkpoint_storage=faults.wrap(storage)).run("one", thread_id="t", run_id="nightly")
    living = asyncio.create_task(gated(gate, checkpoint_storage=storage).run("x", thread_id="u", run_id="nightly"))
    await gate.arrived.wait()
    with pytest.raises(ThreadBusy):
        await gated(gate, checkpoint_storage=storage).run("y", thread_id="u", run_id="other")
    gate.opened.set()
    assert (await living).get_outputs() == ["x"]


# ---------------------------------------------------------------- never taken from elsewhere


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize(("point", "when"), [("open", "before"), ("release", "before")])
async def test_a_run_of_the_same_id_in_another_process_keeps_its_thread(
    point: str, when: str, kind: str, storage: StoreCheckpointStorage, tmp_path: Path, started: list[OtherProcess]
) -> None:
    faults = Faults()
    mine = faults.wrap(storage)
    faults.fail(point, when=when)  # type: ignore[arg-type]  # of the parameters
    try:
        await shouting(checkpoint_storage=mine).run("one", thread_id="t", run_id="nightly")
    except StorageFailed:
        assert point == "open"
    started.append(OtherProcess(kind, tmp_path))
    with pytest.raises(ThreadBusy) as busy:
        await shouting(checkpoint_storage=mine).run("two", thread_id="t", run_id="other")
    assert busy.value.run_id == "nightly" and not busy.value.is_here
    assert started[0].reply() == "still does"
    assert (await shouting(checkpoint_storage=mine).run("three", thread_id="t")).get_outputs() == ["<THREE>"]


# ---------------------------------------------------------------- threads that a cancelled run left behind


@pytest.mark.parametrize("moment", ["before open", "after open"])
def test_thread_half_opened_by_a_closed_loop_does_not_block_the_next_run(moment: str) -> None:
    reached = asyncio.Event()

    async def pause(now: str) -> None:
        if now == moment and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    flow = shouting(checkpoint_storage=StoreCheckpointStorage(AwaitingStore(pause)))

    async def give_up() -> None:
        run = asyncio.create_task(flow.run("one", thread_id="t"))
        await reached.wait()
        run.cancel()
        await asyncio.wait([run])

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a task destroyed while it is pending: as a careless user leaves it
    loop.run_until_complete(give_up())
    loop.close()

    async def next_run() -> list[str]:
        async with asyncio.timeout(60):
            return (await flow.run("two", thread_id="t")).get_outputs()

    assert asyncio.run(next_run()) == ["<TWO>"]


@pytest.fixture
def another_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One that runs in another thread of the system."""
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    running.join(10)
    loop.close()


async def test_run_waits_for_a_thread_that_a_cancelled_run_of_a_live_loop_opens(
    another_loop: asyncio.AbstractEventLoop,
) -> None:
    may_go_on, reached, calls = asyncio.Event(), asyncio.Event(), list[str]()

    async def pause(now: str) -> None:
        calls.append(now)
        if calls == ["before open"]:
            reached.set()
            await may_go_on.wait()

    flow = shouting(checkpoint_storage=StoreCheckpointStorage(AwaitingStore(pause)))

    async def give_up() -> None:
        run = asyncio.create_task(flow.run("one", thread_id="t"))
        await reached.wait()
        run.cancel()
        await asyncio.wait([run])

    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(give_up(), another_loop))
    following = asyncio.create_task(flow.run("two", thread_id="t"))
    await turns(20)
    assert calls == ["before open"]
    # Later, so that this loop is idle by then, and nothing wakes it but what it waits with.
    another_loop.call_soon_threadsafe(another_loop.call_later, 0.1, may_go_on.set)
    async with asyncio.timeout(60):
        assert (await following).get_outputs() == ["<TWO>"]
