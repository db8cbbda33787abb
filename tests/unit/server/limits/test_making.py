"""The rate limiter of each configuration."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.server.config.schema import InvalidConfig, RateLimitConfig, ServerConfig
from perdure.server.factory import make_limiter
from perdure.server.rate_limit import MemoryLimiter, ValkeyLimiter


def make(redis: str | None = None, **config: Any) -> Any:
    return make_limiter(ServerConfig(redis=redis, rate_limit=RateLimitConfig(**config)))


def test_no_limiter_unless_it_is_enabled() -> None:
    assert make_limiter(ServerConfig()) is None
    assert make(enabled=False) is None


async def test_backend_selects_the_memory_or_valkey_limiter() -> None:
    limiter = make(requests=2, window=5)
    assert isinstance(limiter, MemoryLimiter)
    assert (await limiter.take("a")).limit == 2
    shared = make("redis://:s3cret@localhost:1/0", backend="redis")
    assert isinstance(shared, ValkeyLimiter)
    assert repr(shared) == "ValkeyLimiter('localhost:1')"


@pytest.mark.parametrize(
    ("redis", "config", "why"),
    [
        (None, {"backend": "redis"}, "rate_limit.backend: it is 'redis', but `redis` is not set."),
        ("http://:s3cret@x", {"backend": "redis"}, "redis: expected redis://"),
        ("redis://:s3cret@x/name", {"backend": "redis"}, "redis: expected redis://"),
        (None, {"requests": 0}, "rate_limit.requests: expected 1 or more, got 0"),
        (None, {"window": 0}, "rate_limit.window: expected a number of seconds, more than 0"),
        (None, {"window": float("nan")}, "rate_limit.window"),
        (None, {"trusted_proxies": ("x",)}, "rate_limit.trusted_proxies"),
    ],
)
def test_invalid_configuration_is_rejected_without_showing_a_password(
    redis: str | None, config: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidConfig, match=why) as raised:
        make(redis, **config)
    assert "s3cret" not in str(raised.value)
