"""When a whole execution must have ended."""

from __future__ import annotations

import asyncio
from uuid import uuid4
from weakref import WeakKeyDictionary

from perdure.agent_workflow.execution.state import NodeTask
from perdure.agents.turns.recording import working_for
from perdure.clock import Clock
from perdure.engine.delivery.context import DeliveryContext

# ---------------------------------------------------------------- limits


_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
"""By event loop and turnstile."""


class Turnstile:
    """A semaphore for whichever event loop it is used in; without a number everybody passes. Copies of it are the same:
    executors are copied for each thread, and this counts what all of them do."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._name = uuid4().hex

    def _semaphore(self) -> asyncio.Semaphore | None:
        if self._most is None:
            return None
        known = _semaphores.setdefault(asyncio.get_running_loop(), {})
        return known.setdefault(self._name, asyncio.Semaphore(self._most))

    async def __aenter__(self) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            await semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            semaphore.release()


class OutOfTime(Exception):
    """The execution's time is up, not the node's alone: whatever the node does about errors, nothing more is begun."""

    def __str__(self) -> str:
        return "the execution ran out of time"


def delivery() -> DeliveryContext:
    """What this handler works for."""
    context = working_for()
    assert context is not None  # noqa: S101  # asked in a handler
    return context


def raise_trouble() -> None:
    """Raises what keeps this handler's work from being recorded: that is no failure of its node."""
    trouble = delivery().delivery.broken
    if trouble is not None:
        raise trouble


def clock() -> Clock:
    return delivery().clock


def is_over(task: NodeTask) -> bool:
    return task.deadline is not None and clock().now() >= task.deadline


def seconds_left(task: NodeTask) -> float | None:
    """None: as many as it takes."""
    return None if task.deadline is None else max(0.0, (task.deadline - clock().now()).total_seconds())
