"""How a node tries again: the engine's policy for what a document says."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from perdure.agent_workflow.definition.config import RetryConfig
from perdure.errors import StorageFailed
from perdure.graph.policy import RetryPolicy, in_seconds

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers of a service that may be another when it is asked again."""


def policy_of(config: RetryConfig | None) -> RetryPolicy | None:
    if config is None:
        return None
    backoff = 2.0 if config.strategy in ("exponential", "jittered") else 1.0
    kind = (
        LinearRetry if config.strategy == "linear" else JitteredRetry if config.strategy == "jittered" else RetryPolicy
    )
    return kind(
        config.max_attempts,
        config.initial_delay,
        backoff,
        config.max_delay,
        retry_on=is_transient if config.only_transient else Exception,
    )


@dataclass(frozen=True)
class LinearRetry(RetryPolicy):
    """Each delay is longer by the first one."""

    def delay_after(self, attempts: int) -> float:
        longest = in_seconds("max_delay", self.max_delay or 0.0)
        return min(in_seconds("initial_delay", self.initial_delay) * attempts, longest)


@dataclass(frozen=True)
class JitteredRetry(RetryPolicy):
    """Anything from half of what the exponential delay is to all of it, so that many do not come back at once."""

    def delay_after(self, attempts: int) -> float:
        return super().delay_after(attempts) * random.uniform(0.5, 1)  # noqa: S311  # spreads load, protects nothing


@dataclass(frozen=True, kw_only=True)
class BoundedRetry(RetryPolicy):
    """Another policy, as long as there is time: the last attempt is due when that is up."""

    policy: RetryPolicy
    seconds_left: Callable[[], float]
    over: type[Exception]
    """What says that time is up, and is not tried again."""

    def retries(self, error: BaseException, attempts: int) -> bool:
        return not isinstance(error, self.over) and self.policy.retries(error, attempts)

    def delay_after(self, attempts: int) -> float:
        return min(self.policy.delay_after(attempts), self.seconds_left())


def is_transient(error: BaseException | None) -> bool:
    """Whether the same may go well a moment later: told by the error, or by what caused it."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, TimeoutError | ConnectionError | StorageFailed):
            return True
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        if status in _BUSY or type(error).__name__ in _NAMES:
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


_NAMES = frozenset(
    {
        *("APIConnectionError", "APITimeoutError", "RateLimitError", "InternalServerError", "ServiceUnavailableError"),
        *("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "RemoteProtocolError", "PoolTimeout"),
    }
)
"""Of the usual clients, which are not imported for that."""
