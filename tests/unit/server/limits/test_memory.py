"""The rate limit in memory: exact in every window, and never with more memory than it may have."""

from __future__ import annotations

import random

import pytest
from tests.chance import draw_seed

from perdure.server.rate_limit import MemoryLimiter, Verdict
from perdure.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_limiter_allows_its_limit_until_the_first_leaves_the_window(clock: FakeClock) -> None:
    limiter = MemoryLimiter(3, 60, clock=clock)
    verdicts = []
    for _ in range(4):
        verdicts.append(await limiter.take("a"))
        clock.advance(10)
    assert verdicts == [
        Verdict(True, 3, 2, 60),
        Verdict(True, 3, 1, 60),
        Verdict(True, 3, 0, 60),
        Verdict(False, 3, 0, 30),
    ]
    clock.advance(19)
    assert await limiter.take("a") == Verdict(False, 3, 0, 1)
    clock.advance(1)
    assert (await limiter.take("a")).is_allowed


async def test_keys_are_counted_separately(clock: FakeClock) -> None:
    limiter = MemoryLimiter(1, 60, clock=clock)
    assert [(await limiter.take(key)).is_allowed for key in ("a", "b", "a", "b")] == [True, True, False, False]


async def test_no_window_has_more_requests_than_allowed(clock: FakeClock) -> None:
    chance = random.Random(draw_seed())
    limiter, taken = MemoryLimiter(5, 10, clock=clock), list[float]()
    for _ in range(3000):
        clock.advance(chance.choice([0, 0.1, 1, 5]))
        now = clock.monotonic()
        recent = [at for at in taken if at > now - 10]
        verdict = await limiter.take("a")
        assert verdict.is_allowed is (len(recent) < 5)
        if verdict.is_allowed:
            taken.append(now)


async def test_quiet_keys_are_removed(clock: FakeClock) -> None:
    limiter = MemoryLimiter(5, 60, clock=clock)
    for number in range(100):
        await limiter.take(f"k{number}")
    assert len(limiter) == 100
    clock.advance(61)
    for _ in range(60):
        await limiter.take("busy")
    assert len(limiter) == 1


async def test_number_of_keys_is_limited_and_the_latest_keys_stay(clock: FakeClock) -> None:
    limiter = MemoryLimiter(1, 60, clock=clock, max_keys=10)
    for number in range(1000):
        await limiter.take(f"k{number}")
        assert len(limiter) <= 10
    assert not (await limiter.take("k999")).is_allowed
    assert (await limiter.take("k0")).is_allowed


async def test_rejected_requests_use_no_memory(clock: FakeClock) -> None:
    limiter = MemoryLimiter(2, 60, clock=clock)
    for _ in range(1000):
        await limiter.take("a")
    assert len(limiter._times["a"]) == 2
    await limiter.close()
    assert len(limiter) == 0
