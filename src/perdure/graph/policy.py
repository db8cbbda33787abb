"""Failure policies: retries, timeouts, and the handling of the last failure. Reducers of shared state."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from perdure.errors import did_you_mean
from perdure.isolation import isolate

Seconds: TypeAlias = "float | timedelta"

LONGEST = 100 * 366 * 24 * 3600.0
"""Seconds in a century, the longest accepted duration: a longer one is a mistake, and exceeds the calendar."""

STOP, SKIP, ISOLATE = "stop", "skip", "isolate"


@dataclass(frozen=True)
class RetryPolicy:
    """`RetryPolicy(3)`: up to three attempts, 1 s and then 2 s apart. The count survives a restart."""

    max_attempts: int = 3
    """Attempts in all, the first included."""
    initial_delay: Seconds = 1.0
    """Before the second attempt, in seconds."""
    backoff: float = 2.0
    """The factor between one delay and the next."""
    max_delay: Seconds | None = None
    """No delay is longer; by default 60 s, or `initial_delay` where that is longer."""
    jitter: float = 0.0
    """The random part of each delay: 0.1 makes 10 s a value between 9 and 11 s."""
    retry_on: Any = Exception
    """An exception class, a tuple of them, or a function of the error that returns whether to retry."""

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise ValueError(f"RetryPolicy(max_attempts=...): expected a positive integer, got {self.max_attempts!r}.")
        initial = in_seconds("RetryPolicy(initial_delay=...)", self.initial_delay)
        longest = max(60.0, initial)
        if self.max_delay is not None:
            longest = in_seconds("RetryPolicy(max_delay=...)", self.max_delay)
        if longest < initial:
            raise ValueError(f"RetryPolicy(max_delay={longest:g}) is shorter than initial_delay={initial:g}.")
        object.__setattr__(self, "initial_delay", initial)
        object.__setattr__(self, "max_delay", longest)
        if not _is_number(self.backoff) or not 1 <= self.backoff < float("inf"):
            raise ValueError(f"RetryPolicy(backoff=...): expected a number of at least 1, got {self.backoff!r}.")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ValueError(f"RetryPolicy(jitter=...): expected a number from 0 to 1, got {self.jitter!r}.")
        classes = self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)
        is_classes = all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes)
        if not is_classes and (isinstance(self.retry_on, (tuple, type)) or not callable(self.retry_on)):
            raise ValueError(
                "RetryPolicy(retry_on=...): expected an exception class, a tuple of them or a function of the error, "
                f"got {self.retry_on!r}."
            )

    def retries(self, error: BaseException, attempts: int) -> bool:
        """Whether to retry after this error, which ended attempt number `attempts`."""
        if attempts >= self.max_attempts or not isinstance(error, Exception):
            return False
        if isinstance(self.retry_on, (type, tuple)):
            return isinstance(error, self.retry_on)
        return bool(self.retry_on(error))

    def delay_after(self, attempts: int) -> float:
        """Seconds to wait after attempt number `attempts` failed."""
        longest = in_seconds("max_delay", self.max_delay or 0.0)
        try:
            delay = in_seconds("initial_delay", self.initial_delay) * self.backoff ** (attempts - 1)
        except OverflowError:
            delay = longest
        delay = min(delay, longest)
        chance = random.uniform(-1, 1)  # noqa: S311  # spreads load, protects nothing
        return delay * (1 + self.jitter * chance)


@dataclass(frozen=True)
class FailurePolicy:
    """The failure policy of one executor or step. `DEFAULT`: the first failure ends the superstep."""

    retry: RetryPolicy | None = None
    timeout: float | None = None
    """Seconds one attempt may take; then it is cancelled and awaited, and counts as failed."""
    on_error: Any = STOP
    """After the last attempt: `stop`, `skip`, `isolate`, or a fallback."""

    @property
    def contains(self) -> bool:
        """Whether a failure of the last attempt does not end the superstep."""
        return bool(self.on_error != STOP)


DEFAULT = FailurePolicy()


def make_policy(
    owner: str, retry: Any, timeout: Any, on_error: Any, *, fallback: str, accepts: Callable[[Any], bool]
) -> FailurePolicy:
    """A checked policy. Raises ValueError for an invalid one; `fallback` names the accepted fallbacks."""
    if retry is None and timeout is None and on_error is STOP:
        return DEFAULT
    if type(retry) is int:
        retry = RetryPolicy(retry)
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise ValueError(f"{owner}: retry= expects a RetryPolicy or a number of attempts, got {retry!r}.")
    seconds = None if timeout is None else in_seconds(f"{owner}: timeout=", timeout)
    if seconds == 0:
        raise ValueError(f"{owner}: timeout= expects more than 0 seconds, got {timeout!r}.")
    is_mode = isinstance(on_error, str) and on_error in (STOP, SKIP, ISOLATE)
    if not is_mode and not accepts(on_error):
        hint = did_you_mean(on_error, (STOP, SKIP, ISOLATE)) if isinstance(on_error, str) else ""
        raise ValueError(f"{owner}: on_error= expects 'stop', 'skip', 'isolate' or {fallback}, got {on_error!r}{hint}.")
    return FailurePolicy(retry, seconds, on_error)


def in_seconds(what: str, duration: Any) -> float:
    """A duration in seconds. Raises ValueError for another type, and for a negative or too long duration."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not _is_number(seconds) or not 0 <= seconds < float("inf"):
        raise ValueError(f"{what} expects seconds or a timedelta, not negative, got {duration!r}.")
    if seconds > LONGEST:
        raise ValueError(f"{what} expects seconds or a timedelta, at most a century, got {duration!r}.")
    return float(seconds)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def executor_policy(executor_id: str, retry: Any, timeout: Any, on_error: Any) -> FailurePolicy:
    def may_stand_in(fallback: Any) -> bool:
        return fallback is not None and not isinstance(fallback, (int, float, list, dict, set, tuple))

    owner = f"Executor {executor_id!r}"
    return make_policy(owner, retry, timeout, on_error, fallback="an executor", accepts=may_stand_in)


def step_policy(name: str, retry: Any, timeout: Any, on_error: Any) -> FailurePolicy:
    return make_policy(f"Step {name!r}", retry, timeout, on_error, fallback="a function", accepts=callable)


Reducer: TypeAlias = Callable[[Any, Any], Any]
"""`reducer(current, written) -> joined`. The first write to a missing key is the value itself, except for `append`,
which starts a list."""


def append(current: list[Any] | None, item: Any) -> list[Any]:
    """Each write adds one item to a list."""
    return [*(current or ()), item]


def add(current: Any, amount: Any) -> Any:
    """Each write is added: numbers, strings, lists."""
    return current + amount


def merge(current: dict[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
    """Each write updates a dict; for equal keys later deliveries win."""
    return {**current, **entries}


_PURE = (append, add, merge)


def reduce_into(state: dict[str, Any], key: str, written: Any, reducer: Reducer) -> None:
    """Fold one write into the state, in place."""
    if key not in state:
        state[key] = append(None, written) if reducer is append else written
    elif reducer in _PURE:
        state[key] = reducer(state[key], written)
    else:
        # A user's reducer may change its arguments: neither the committed value nor the record may change with them.
        state[key] = reducer(isolate(state[key]), isolate(written))
