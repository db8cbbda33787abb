"""Which rate limiter a configuration means."""

from __future__ import annotations

import math

from perdure.clock import Clock
from perdure.server.config.errors import invalid
from perdure.server.config.schema import RateLimitConfig, ServerConfig
from perdure.server.rate_limit.addresses import trusted_networks
from perdure.server.rate_limit.memory import MemoryLimiter, RateLimiter


def make_limiter(config: ServerConfig, clock: Clock | None = None) -> RateLimiter | None:
    """None: nothing is limited. `clock` is for the one in memory. Raises InvalidConfig, and MissingExtra for Valkey."""
    wanted = config.rate_limit
    if wanted is None or not wanted.enabled:
        return None
    _check(wanted)
    if wanted.backend == "memory":
        return MemoryLimiter(wanted.requests, wanted.window, clock=clock)
    if config.redis is None:
        raise invalid(
            "redis",
            'rate_limit.backend is "redis", and this must say where it is: redis://host:6379/0. Or choose the backend '
            '"memory", which counts in each process by itself.',
        )
    from perdure.server.rate_limit.valkey import ValkeyLimiter

    return ValkeyLimiter(config.redis, wanted.requests, wanted.window, prefix=wanted.prefix, fail_open=wanted.fail_open)


def _check(wanted: RateLimitConfig) -> None:
    if wanted.requests < 1:
        raise invalid("rate_limit.requests", f"expected 1 or more, got {wanted.requests}.")
    if not math.isfinite(wanted.window) or wanted.window <= 0:
        raise invalid("rate_limit.window", f"expected seconds, more than 0, got {wanted.window}.")
    trusted_networks(wanted.trusted_proxies)
