"""The rate limit that instances share on a real Valkey: exact with many at once, and safe during an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from tests.counting import without_waiting
from tests.databases.valkey import ValkeyServer

from perdure import valkey_client
from perdure.server import rate_limit as valkey
from perdure.server.rate_limit import ValkeyLimiter


def limiter_at(url: str, requests: int = 3, window: float = 60, *, fail_open: bool = True) -> ValkeyLimiter:
    return ValkeyLimiter(url, requests, window, prefix="perdure:rate-limit", fail_open=fail_open)


@pytest.fixture
async def limiter(valkey_url: str) -> AsyncIterator[ValkeyLimiter]:
    made = limiter_at(valkey_url)
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def long_timeout_for_busy_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "TIMEOUT_SECONDS", 10)


@pytest.fixture
def client(valkey_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(valkey_url) as made:
        yield made


async def test_limiter_allows_as_many_as_its_limit_and_then_none(limiter: ValkeyLimiter) -> None:
    verdicts = [await limiter.take("a") for _ in range(4)]
    assert [(verdict.is_allowed, verdict.remaining, verdict.limit) for verdict in verdicts] == [
        *((True, 2, 3), (True, 1, 3), (True, 0, 3), (False, 0, 3))
    ]
    assert verdicts[0].seconds == 60
    assert 59 < verdicts[3].seconds <= 60
    assert (await limiter.take("b")).is_allowed


async def test_many_instances_at_once_allow_exactly_the_limit(valkey_url: str) -> None:
    instances = [limiter_at(valkey_url, 25) for _ in range(4)]
    verdicts = await asyncio.gather(*(instance.take("a") for instance in instances for _ in range(25)))
    assert sum(verdict.is_allowed for verdict in verdicts) == 25
    for instance in instances:
        await instance.close()


async def test_requests_outside_the_window_do_not_count(limiter: ValkeyLimiter, client: Any) -> None:
    for _ in range(3):
        await limiter.take("a")
    assert not (await limiter.take("a")).is_allowed
    [key] = client.keys()
    first, *_ = client.zrange(key, 0, 0)
    client.zincrby(key, -60_000_001, first)  # as if it had come a minute earlier
    verdict = await limiter.take("a")
    assert (verdict.is_allowed, verdict.remaining) == (True, 0)
    assert client.zcard(key) == 3


async def test_server_clock_that_was_set_back_does_not_block_clients(limiter: ValkeyLimiter, client: Any) -> None:
    for _ in range(3):
        await limiter.take("a")
    [key] = client.keys()
    for member in client.zrange(key, 0, -1):
        client.zincrby(key, 3_600_000_000, member)
    assert (await limiter.take("a")).is_allowed


async def test_keys_expire_and_do_not_contain_the_user(limiter: ValkeyLimiter, client: Any) -> None:
    await limiter.take("user:ada@example.org")
    [key] = client.keys()
    assert key.startswith(b"perdure:rate-limit:") and b"ada" not in key
    assert 59_000 < client.pttl(key) <= 60_000


async def test_keys_of_any_text_are_counted(limiter: ValkeyLimiter) -> None:
    for key in ("", "é" * 10_000, "\ud800", "a\nb {c}"):
        assert (await limiter.take(key)).remaining == 2


async def test_limiter_starts_over_after_the_server_loses_scripts_and_keys(limiter: ValkeyLimiter, client: Any) -> None:
    await limiter.take("a")
    client.flushall()
    client.script_flush()
    verdict = await limiter.take("a")
    assert (verdict.is_allowed, verdict.remaining) == (True, 2)


@pytest.mark.parametrize("fail_open", [True, False])
async def test_key_with_another_type_is_logged_and_affects_no_other_key(
    fail_open: bool, valkey_url: str, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = limiter_at(valkey_url, fail_open=fail_open)
    await limiter.take("a")
    [key] = client.keys()
    client.set(key, "rubbish")
    assert (await limiter.take("a")).is_allowed is fail_open
    assert "ResponseError" in caplog.text
    assert (await limiter.take("b")).remaining == 2
    await limiter.close()


# ---------------------------------------------------------------- while it is away


async def until_it_counts_again(limiter: ValkeyLimiter) -> None:
    async with asyncio.timeout(60):
        while limiter._breaker.is_open:
            await limiter.take("probe")
            await asyncio.sleep(0.01)  # it is tried at times of its own


@pytest.mark.parametrize("fail_open", [True, False])
async def test_outage_decides_by_fail_open_at_once_and_counting_resumes_later(
    fail_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with ValkeyServer() as server:
        limiter = limiter_at(server.url, fail_open=fail_open)
        assert (await limiter.take("a")).remaining == 2
        server.kill()
        assert (await limiter.take("a")).is_allowed is fail_open
        verdicts = [without_waiting(limiter.take("a")) for _ in range(200)]
        assert {verdict.is_allowed for verdict in verdicts} == {fail_open}
        if not fail_open:
            assert all(verdict.seconds >= 1 for verdict in verdicts)
        assert caplog.text.count("is unavailable") == 1
        assert server.url not in caplog.text
        server.start()
        await until_it_counts_again(limiter)
        assert (await limiter.take("new")).remaining == 2
        await limiter.close()


async def test_server_that_does_not_answer_delays_requests_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "TIMEOUT_SECONDS", 0.25)
    monkeypatch.setattr(valkey_client, "FIRST_PAUSE_SECONDS", 5.0)  # the 20 failures take less
    with ValkeyServer() as server:
        limiter = limiter_at(server.url)
        await limiter.take("a")
        server.pause()
        await asyncio.gather(*(limiter.take("a") for _ in range(20)))
        assert limiter._breaker._failures == 1  # they failed together: it is not left alone for longer because of that
        for _ in range(200):
            without_waiting(limiter.take("a"))
        server.resume()
        limiter._breaker._until = 0.0  # the pause is over
        await until_it_counts_again(limiter)
        await limiter.close()


async def test_outage_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = limiter_at("redis://127.0.0.1:1/0")
    for _ in range(3):
        limiter._breaker._failures = 0  # as if it had come back each time
        await limiter.take("a")
    assert caplog.text.count("allowed without a limit") == 1
    limiter._breaker._warned_at -= valkey_client.WARN_EVERY_SECONDS
    limiter._breaker._failures = 0
    await limiter.take("a")
    assert caplog.text.count("allowed without a limit") == 2
    await limiter.close()


async def test_close_ends_an_active_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    with ValkeyServer() as server:
        limiter = limiter_at(server.url)
        await limiter.take("a")
        server.pause()
        with monkeypatch.context() as patch:
            patch.setattr(valkey, "TIMEOUT_SECONDS", 0.05)
            await limiter.take("a")
        limiter._breaker._until = 0.0
        await limiter.take("a")
        assert limiter._trying is not None
        await limiter.close()
        await limiter.close()
        server.resume()
