"""What is sent to Valkey in the background, for one event loop. Nobody waits for it, and all of it may be lost."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from perdure.stores.valkey.circuit_breaker import CircuitBreaker

WAITING_BYTES = 8 * 1024 * 1024
"""What may wait to be sent; more is dropped."""
AT_ONCE = 100
EXCHANGE_SECONDS = 1.0
"""For all that is sent at once, a new connection included."""
QUIET_SECONDS = 0.05
"""Where nobody listened just now, all that happens in this time is one hint."""
HEARD_SECONDS = 0.25
"""How long it is believed that nobody listens."""
KNOWN_CHANNELS = 10_000

Command = tuple[Any, ...]


class Publisher:
    """A task works off what there is to send, and ends. Between two times there is none."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._breaker = breaker
        self._hints: dict[bytes, bytes] = {}
        """By channel: of several hints, one will do."""
        self._waiting: deque[Command] = deque()
        self._bytes = 0
        self._later: dict[bytes, tuple[bytes, asyncio.TimerHandle]] = {}
        self._listeners: dict[bytes, tuple[int, float]] = {}
        """How many took what was last published in a channel, and when that was."""
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ what to send

    def hint(self, channel: bytes, message: bytes, *, at_once: bool) -> None:
        if self._breaker.seconds_left():
            return
        if channel in self._later:
            if not at_once:
                return
            self._later.pop(channel)[1].cancel()
        elif not at_once and self._has_none(channel, QUIET_SECONDS):
            timer = self._loop.call_later(QUIET_SECONDS, self._hint_now, channel)
            self._later[channel] = message, timer
            return
        self._hints[channel] = message
        self._start()

    def _hint_now(self, channel: bytes) -> None:
        message, _ = self._later.pop(channel)
        self._hints[channel] = message
        self._start()

    def put(self, *command: Any) -> None:
        size = sum(len(one) for one in command if isinstance(one, bytes))
        if self._breaker.seconds_left() or self._bytes + size > WAITING_BYTES:
            return
        self._bytes += size
        self._waiting.append(command)
        self._start()

    def may_have_subscribers(self, channel: bytes) -> bool:
        return not self._breaker.seconds_left() and not self._has_none(channel, HEARD_SECONDS)

    def _has_none(self, channel: bytes, seconds: float) -> bool:
        count, at = self._listeners.get(channel, (1, 0.0))
        return count == 0 and self._loop.time() - at < seconds

    # ------------------------------------------------------------ sending it

    def _start(self) -> None:
        if self._task is not None and not self._task.done():
            return
        if self._breaker.may_try():
            self._task = self._loop.create_task(self._send(), name="perdure-valkey-sending")
        else:
            self._drop_all()

    async def _send(self) -> None:
        try:
            while self._hints or self._waiting:
                await self._send_some()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does: it is only slower without
            self._breaker.failed(error)
            self._drop_all()
        finally:
            self._task = None

    async def _send_some(self) -> None:
        batch: list[Command] = []
        while self._waiting and len(batch) < AT_ONCE:
            batch.append(self._waiting.popleft())
        while self._hints and len(batch) < AT_ONCE:  # after what was told before the commit that they are about
            channel, message = self._hints.popitem()
            batch.append(("PUBLISH", channel, message))
        if not self._waiting:
            self._bytes = 0
        line = self._client.pipeline(transaction=False)
        for command in batch:
            line.execute_command(*command)
        async with asyncio.timeout(EXCHANGE_SECONDS):
            answers = await line.execute(raise_on_error=False)
        now = self._loop.time()
        if len(self._listeners) > KNOWN_CHANNELS:
            self._listeners.clear()
        for command, answer in zip(batch, answers, strict=False):
            if command[0] == "PUBLISH":
                if isinstance(answer, Exception):
                    raise answer
                self._listeners[command[1]] = answer, now
        self._breaker.succeeded()

    def _drop_all(self) -> None:
        self._hints.clear()
        self._waiting.clear()
        self._bytes = 0

    async def close(self, seconds: float) -> None:
        """What waits gets so long to be sent."""
        for channel, (message, timer) in self._later.items():
            timer.cancel()
            self._hints[channel] = message
        self._later.clear()
        if self._hints:
            self._start()
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
            task.cancel()
            await asyncio.wait([task])
        self._drop_all()
