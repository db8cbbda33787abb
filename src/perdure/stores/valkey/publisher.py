"""Commands for Valkey, sent in the background, for one event loop. No caller waits for them, and they may be lost."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from perdure.stores.valkey.circuit_breaker import CircuitBreaker

MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""The publisher drops commands beyond this."""
MAX_BATCH = 100
"""Commands of one round trip."""
EXCHANGE_SECONDS = 1.0
"""The limit of one round trip, a new connection included."""
QUIET_SECONDS = 0.05
"""Changes of a channel without subscribers are combined into one message within this time."""
NO_SUBSCRIBERS_SECONDS = 0.25
"""How long the publisher relies on the last count of subscribers."""
MAX_CHANNELS = 10_000

Command = tuple[Any, ...]


class Publisher:
    """A task sends what is queued, and ends when the queue is empty."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._breaker = breaker
        self._changes: dict[bytes, bytes] = {}
        """The change message of each channel: one is enough for several changes."""
        self._queue: deque[Command] = deque()
        self._bytes = 0
        self._delayed: dict[bytes, tuple[bytes, asyncio.TimerHandle]] = {}
        self._subscribers: dict[bytes, tuple[int, float]] = {}
        """How many subscribers received the last message of a channel, and when."""
        self._task: asyncio.Task[None] | None = None

    def publish_change(self, channel: bytes, message: bytes, *, is_urgent: bool) -> None:
        """Publish that a thread changed. Several messages of a channel may become one."""
        if self._breaker.seconds_left():
            return
        if channel in self._delayed:
            if not is_urgent:
                return
            self._delayed.pop(channel)[1].cancel()
        elif not is_urgent and self._has_no_subscribers(channel, QUIET_SECONDS):
            timer = self._loop.call_later(QUIET_SECONDS, self._publish_delayed, channel)
            self._delayed[channel] = message, timer
            return
        self._changes[channel] = message
        self._start()

    def _publish_delayed(self, channel: bytes) -> None:
        message, _ = self._delayed.pop(channel)
        self._changes[channel] = message
        self._start()

    def put(self, *command: Any) -> None:
        size = sum(len(part) for part in command if isinstance(part, bytes))
        if self._breaker.seconds_left() or self._bytes + size > MAX_QUEUED_BYTES:
            return
        self._bytes += size
        self._queue.append(command)
        self._start()

    def may_have_subscribers(self, channel: bytes) -> bool:
        return not self._breaker.seconds_left() and not self._has_no_subscribers(channel, NO_SUBSCRIBERS_SECONDS)

    def _has_no_subscribers(self, channel: bytes, seconds: float) -> bool:
        count, at = self._subscribers.get(channel, (1, 0.0))
        return count == 0 and self._loop.time() - at < seconds

    def _start(self) -> None:
        if self._task is not None and not self._task.done():
            return
        if self._breaker.may_try():
            self._task = self._loop.create_task(self._send(), name="perdure-valkey-publisher")
        else:
            self._drop_all()

    async def _send(self) -> None:
        try:
            while self._changes or self._queue:
                await self._send_batch()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does: perdure works without it
            self._breaker.failed(error)
            self._drop_all()
        finally:
            self._task = None

    async def _send_batch(self) -> None:
        batch: list[Command] = []
        while self._queue and len(batch) < MAX_BATCH:
            batch.append(self._queue.popleft())
        while self._changes and len(batch) < MAX_BATCH:  # after the bodies published before the commit
            channel, message = self._changes.popitem()
            batch.append(("PUBLISH", channel, message))
        if not self._queue:
            self._bytes = 0
        pipeline = self._client.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*command)
        async with asyncio.timeout(EXCHANGE_SECONDS):
            answers = await pipeline.execute(raise_on_error=False)
        now = self._loop.time()
        if len(self._subscribers) > MAX_CHANNELS:
            self._subscribers.clear()
        for command, answer in zip(batch, answers, strict=False):
            if command[0] == "PUBLISH":
                if isinstance(answer, Exception):
                    raise answer
                self._subscribers[command[1]] = answer, now
        self._breaker.succeeded()

    def _drop_all(self) -> None:
        self._changes.clear()
        self._queue.clear()
        self._bytes = 0

    async def close(self, seconds: float) -> None:
        """Send what is queued, for at most this time."""
        for channel, (message, timer) in self._delayed.items():
            timer.cancel()
            self._changes[channel] = message
        self._delayed.clear()
        if self._changes:
            self._start()
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
            task.cancel()
            await asyncio.wait([task])
        self._drop_all()
