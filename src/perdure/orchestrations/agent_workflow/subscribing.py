"""Those who want to hear of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.log import get_logger

Callback: TypeAlias = Callable[[Any], Any]
logger = get_logger("agent_workflow")


@dataclass(frozen=True, eq=False)
class _Subscription:
    kind: type | None
    callback: Callback


class Subscribers:
    """Whoever watches must not stop what is watched: one that fails is named in the log, and the rest goes on."""

    def __init__(self) -> None:
        self._all: list[_Subscription] = []

    def add(self, kind: type | None, callback: Callback) -> Callable[[], None]:
        """Returns what ends the subscription."""
        if not callable(callback):
            raise TypeError(f"subscribe expects a function of the event, got {callback!r}.")
        subscription = _Subscription(kind, callback)
        self._all.append(subscription)

        def end() -> None:
            if subscription in self._all:
                self._all.remove(subscription)

        return end

    def tell(self, event: Any) -> Iterator[Awaitable[Any]]:
        """Gives what is still to be awaited."""
        for one in list(self._all):
            if one.kind is not None and not isinstance(event, one.kind):
                continue
            try:
                called = one.callback(event)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # see above
                log_failure(error)
                continue
            if isinstance(called, Awaitable):
                yield called


def log_failure(error: BaseException) -> None:
    logger.warning("a subscriber failed: %s: %s", type(error).__name__, error)
