"""WorkerThread: one piece of blocking work after the other, for any event loop, to its end."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import weakref
from asyncio import Task
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

from perdure.stores.worker import WorkerThread

NAME = "tested-own-thread"
LONG_ENOUGH = 60.0


@pytest.fixture
def own() -> Iterator[WorkerThread]:
    made = WorkerThread(NAME)
    yield made
    made.stop()


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def join_all() -> None:
    for thread in running():
        thread.join(LONG_ENOUGH)
    assert not running()


async def started(do: Callable[[Callable[[], str]], Coroutine[Any, Any, str]], gate: threading.Event) -> Task[str]:
    """Work that was begun and waits for the gate."""
    begun = threading.Event()

    def work() -> str:
        begun.set()
        gate.wait(LONG_ENOUGH)
        return "done"

    task = asyncio.create_task(do(work))
    await asyncio.sleep(0)
    assert begun.wait(LONG_ENOUGH)
    return task


# ---------------------------------------------------------------- results and errors


async def test_work_gives_its_result_and_is_done_in_one_other_thread(own: WorkerThread) -> None:
    idents = [await own.run(threading.get_ident) for _ in range(5)]
    assert len(set(idents)) == 1
    assert idents[0] != threading.get_ident()
    assert await own.run(lambda: [None]) == [None]


async def test_error_of_work_is_raised_at_its_caller(own: WorkerThread) -> None:
    class Unusual(BaseException):
        pass

    for error in (ValueError("x"), KeyError(1), Unusual("y")):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            await own.run(fail)
        assert caught.value is error
    assert await own.run(lambda: 1) == 1


async def test_stop_iteration_of_work_becomes_a_runtime_error(own: WorkerThread) -> None:
    async with asyncio.timeout(LONG_ENOUGH):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await own.run(lambda: next(iter(())))
        assert await own.run(lambda: 1) == 1


async def test_work_is_done_in_the_order_of_the_calls(own: WorkerThread) -> None:
    done: list[int] = []
    await asyncio.gather(*[own.run(partial(done.append, index)) for index in range(200)])
    assert done == list(range(200))


# ---------------------------------------------------------------- cancelling


async def test_queued_work_ends_after_all_its_callers_are_cancelled(own: WorkerThread) -> None:
    gate, done = threading.Event(), list[str]()
    task = await started(own.run, gate)
    queued = asyncio.create_task(own.run(lambda: done.append("queued")))
    await asyncio.sleep(0)
    for awaited in (task, queued):
        awaited.cancel()
    assert [type(awaited) for awaited in await asyncio.gather(task, queued, return_exceptions=True)] == [
        asyncio.CancelledError,
        asyncio.CancelledError,
    ]
    gate.set()
    assert await own.run(lambda: list(done)) == ["queued"]


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_caller_waits_for_work_to_the_end(own: WorkerThread, times: int) -> None:
    gate = threading.Event()
    task = await started(partial(own.run, uncancellable=True), gate)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    gate.set()
    assert await task == "done"
    assert task.cancelling() == times


async def test_an_error_of_work_to_the_end_is_not_lost_with_a_cancellation(own: WorkerThread) -> None:
    gate = threading.Event()

    def fail() -> None:
        gate.wait(LONG_ENOUGH)
        raise ValueError("disk full")

    task = asyncio.create_task(own.run(fail, uncancellable=True))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(ValueError, match="disk full"):
        await task


# ---------------------------------------------------------------- several loops


def in_threads(count: int, coroutine: Callable[[int], Any]) -> None:
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            asyncio.run(asyncio.wait_for(coroutine(index), LONG_ENOUGH))
        except BaseException as error:  # noqa: BLE001  # raised below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_loops_of_several_threads_share_a_worker_without_overlap(own: WorkerThread) -> None:
    inside, done = [0], list[int]()

    def piece(index: int) -> int:
        inside[0] += 1
        assert inside[0] == 1
        done.append(index)
        inside[0] -= 1
        return index

    async def ask(index: int) -> None:
        for number in range(50):
            assert await own.run(partial(piece, index * 100 + number)) == index * 100 + number

    in_threads(4, ask)
    assert sorted(done) == sorted(index * 100 + number for index in range(4) for number in range(50))


def test_thread_continues_when_the_loop_of_a_caller_was_closed(own: WorkerThread) -> None:
    gate = threading.Event()

    async def leave() -> None:
        task = await started(own.run, gate)
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_cancelled(leave))
    gate.set()
    assert asyncio.run(own.run(lambda: "next")) == "next"


async def _cancelled(leave: Callable[[], Any]) -> None:
    await leave()
    raise asyncio.CancelledError


# ---------------------------------------------------------------- stopping


async def test_after_a_stop_the_next_work_starts_another_thread(own: WorkerThread) -> None:
    first = await own.run(threading.current_thread)
    own.stop()
    own.stop()
    second = await own.run(threading.current_thread)
    assert first is not second
    assert not first.is_alive()


async def test_work_after_a_stop_waits_for_earlier_work(own: WorkerThread) -> None:
    gate, done = threading.Event(), list[str]()
    task = await started(own.run, gate)
    queued = asyncio.create_task(own.run(lambda: done.append("before")))
    await asyncio.sleep(0)
    own.stop()
    after = asyncio.create_task(own.run(lambda: done.append("after")))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(task, queued, after)
    assert done == ["before", "after"]


def test_no_work_is_lost_to_a_stop_of_another_thread() -> None:
    own, is_over = WorkerThread(NAME), threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def stop_again_and_again() -> None:
        while not is_over.wait(0.0001):
            own.stop()

    async def ask(index: int) -> None:
        for _ in range(600):
            assert await own.run(lambda: index) == index

    stopping = threading.Thread(target=stop_again_and_again)
    stopping.start()
    try:
        in_threads(3, ask)
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        stopping.join()
        own.stop()
    join_all()


async def test_the_thread_ends_with_the_object() -> None:
    own = WorkerThread(NAME)
    ended = await own.run(threading.current_thread)
    reference = weakref.ref(own)
    del own
    gc.collect()
    assert reference() is None
    ended.join(LONG_ENOUGH)
    assert not ended.is_alive()


async def test_work_that_was_done_is_not_kept(own: WorkerThread) -> None:
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    await own.run(partial(id, thing))
    del thing
    await own.run(lambda: None)
    gc.collect()
    assert reference() is None


# ---------------------------------------------------------------- in between


class Beats:
    """Counts calls, and lets a test wait for one."""

    def __init__(self, fails: bool = False) -> None:
        self.count = 0
        self.beat = threading.Event()
        self.idents: set[int] = set()
        self._fails = fails

    def __call__(self) -> None:
        self.count += 1
        self.idents.add(threading.get_ident())
        self.beat.set()
        if self._fails:
            raise ValueError("no beat")


async def test_periodic_call_runs_when_there_is_no_work() -> None:
    beats = Beats()
    own = WorkerThread(NAME, beats, 0.01)
    ident = await own.run(threading.get_ident)
    for _ in range(3):
        beats.beat.clear()
        assert beats.beat.wait(LONG_ENOUGH)
    assert beats.idents == {ident}
    own.stop()


async def test_periodic_call_runs_when_there_is_always_work() -> None:
    beats = Beats()
    own = WorkerThread(NAME, beats, 0.02)
    end = time.monotonic() + LONG_ENOUGH
    while beats.count < 5 and time.monotonic() < end:
        await asyncio.gather(*[own.run(lambda: time.sleep(0.001)) for _ in range(5)])
    own.stop()
    assert beats.count >= 5


async def test_error_of_the_periodic_call_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    beats = Beats(fails=True)
    own = WorkerThread(NAME, beats, 0.01)
    first = await own.run(threading.current_thread)
    assert beats.beat.wait(LONG_ENOUGH)
    assert await own.run(threading.current_thread) is first
    own.stop()
    first.join(LONG_ENOUGH)
    assert "no beat" in caplog.text


# ---------------------------------------------------------------- after a fork


def test_a_child_process_has_a_thread_of_its_own(own: WorkerThread) -> None:
    gate, begun = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        gate.wait(LONG_ENOUGH)
        return os.getpid()

    async def work_in_the_parent() -> None:
        assert await own.run(work) == os.getpid()

    other = threading.Thread(target=lambda: asyncio.run(work_in_the_parent()))
    other.start()
    assert begun.wait(LONG_ENOUGH)  # the parent's thread is busy when the child is made
    child = os.fork()
    if child == 0:
        os._exit(in_child(own))
    _, status = os.waitpid(child, 0)
    gate.set()
    other.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert asyncio.run(own.run(os.getpid)) == os.getpid()


def in_child(own: WorkerThread) -> int:
    """0 if all is well."""
    try:
        pids = [asyncio.run(asyncio.wait_for(own.run(os.getpid), LONG_ENOUGH)) for _ in range(2)]
        own.stop()
        return 0 if pids == [os.getpid()] * 2 else 1
    except BaseException:  # noqa: BLE001  # reported by the exit code
        return 2
