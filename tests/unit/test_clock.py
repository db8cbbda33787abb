"""Time as a dependency, and the clock that tests move by hand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure.clock import Clock, SystemClock, Waker
from perdure.testing import FakeClock


@pytest.fixture(params=[SystemClock, FakeClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_now_is_aware_and_in_utc(clock: Clock) -> None:
    assert clock.now().utcoffset() == timedelta(0)


def test_monotonic_time_never_goes_back(clock: Clock) -> None:
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


@pytest.mark.parametrize("seconds", [0, -1])
async def test_sleeping_for_no_time_gives_other_tasks_a_turn(clock: Clock, seconds: float) -> None:
    turns: list[str] = []

    async def other() -> None:
        turns.append("other")

    task = asyncio.create_task(other())
    await clock.sleep(seconds)
    turns.append("sleeper")
    await task
    assert turns == ["other", "sleeper"]


async def test_system_clock_sleeps_for_the_requested_time() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.02)
    assert clock.monotonic() - before >= 0.019


async def test_a_fake_clock_wakes_sleepers_in_the_order_of_their_times() -> None:
    clock, woken = FakeClock(), list[str]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, seconds in [("late", 3.0), ("early", 1.0), ("also early", 1.0), ("never due", 99.0)]:
            group.create_task(sleeper(name, seconds))
        await clock.wait_for_sleepers(4)
        clock.advance(0.5)
        await asyncio.sleep(0)
        assert woken == []
        clock.advance(5)
        await asyncio.sleep(0)
        assert woken == ["early", "also early", "late"]
        clock.advance(99)
    assert woken[-1] == "never due"


def test_fake_clock_moves_only_on_advance() -> None:
    clock = FakeClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert clock.now() == datetime(2026, 3, 1, 12, tzinfo=UTC)
    clock.advance(90)
    assert clock.now() == datetime(2026, 3, 1, 12, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == 90


async def test_a_cancelled_sleeper_is_no_longer_waited_for() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.wait_for_sleepers()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.sleepers == 0
    clock.advance(11)


def test_a_fake_clock_refuses_to_go_back() -> None:
    with pytest.raises(ValueError, match=r"Time does not go back: advance\(-1\)"):
        FakeClock().advance(-1)


def test_a_fake_clock_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="needs a time with a zone"):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001 (the mistake under test)


async def test_waker_wakes_its_task_from_another_os_thread() -> None:
    waker, news = Waker(), list[str]()

    def publish() -> None:
        news.append("published")
        waker.wake()

    async with asyncio.timeout(60):
        waiting = asyncio.ensure_future(waker.wait(3_600, lambda: news))
        await asyncio.sleep(0)
        await asyncio.to_thread(publish)
        assert await waiting


async def test_waker_does_not_wait_for_what_is_there_and_ends_in_time() -> None:
    waker = Waker()
    assert await waker.wait(3_600, lambda: True)
    assert not await waker.wait(0.0, lambda: False)
    waker.wake()  # no task waits: it has no effect
