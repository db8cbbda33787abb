"""Messages of one event loop to Valkey and from it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from perdure.stores.notify import LocalBus
from perdure.valkey_client import FIRST_PAUSE_SECONDS, CircuitBreaker

# ---------------------------------------------------------------- to the server


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
        self._changes[channel], _ = self._delayed.pop(channel)
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


# ---------------------------------------------------------------- from the server


SILENT_SECONDS = 0.5
"""After this time without a message the subscriber sends a ping, whose answer must arrive within the same time."""
SUBSCRIBE_SECONDS = 1.0
SENDER_BYTES, BODY_AT = 8, 9
CHANGED, PUBLISHED = b"c", b"t"


@dataclass
class _ValkeyChannel:
    """A channel with subscriptions in this event loop."""

    thread_id: str
    buses: dict[LocalBus, int] = field(default_factory=dict)
    """How many subscriptions each bus has."""
    is_subscribed: bool = False
    """Whether the server has confirmed. From then on no message is lost while the connection lives."""

    def deliver(self, message: bytes) -> None:
        sender, kind, body = message[:SENDER_BYTES], message[SENDER_BYTES:BODY_AT], message[BODY_AT:]
        for bus in self.buses:
            if bus.token == sender:
                continue  # the sender delivered the message itself
            if kind == PUBLISHED:
                bus.publish(self.thread_id, body)
            elif kind == CHANGED:
                bus.notify(self.thread_id)

    def notify(self) -> None:
        for bus in self.buses:
            bus.notify(self.thread_id)


class Subscriber:
    """A task reads messages while the event loop has subscriptions."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._breaker = breaker
        self._channels: dict[bytes, _ValkeyChannel] = {}
        self._connection: Any = None
        """None while it is not connected."""
        self._task: asyncio.Task[None] | None = None

    def is_subscribed(self, name: bytes) -> bool:
        channel = self._channels.get(name)
        return channel is not None and channel.is_subscribed

    async def add(self, name: bytes, bus: LocalBus, thread_id: str) -> None:
        """Add a subscription. Does not wait for the server: when it confirms, the bus notifies its subscribers."""
        is_new = name not in self._channels
        channel = self._channels.setdefault(name, _ValkeyChannel(thread_id))
        channel.buses[bus] = channel.buses.get(bus, 0) + 1
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run(), name="perdure-valkey-subscriber")
        elif is_new:
            await self._send("subscribe", name)

    async def remove(self, name: bytes, bus: LocalBus) -> None:
        channel = self._channels[name]
        channel.buses[bus] -= 1
        if not channel.buses[bus]:
            del channel.buses[bus]
        if channel.buses:
            return
        del self._channels[name]
        if self._channels:
            await self._send("unsubscribe", name)
        else:
            await self.close()

    async def _send(self, command: str, *names: bytes) -> None:
        connection = self._connection
        if connection is None:
            return  # the next connection subscribes to all channels
        try:
            async with asyncio.timeout(SUBSCRIBE_SECONDS):
                await getattr(connection, command)(*names)
        except Exception as error:  # noqa: BLE001  # the subscriptions poll the store instead
            self._lose(error)

    def _lose(self, error: BaseException) -> None:
        """Subscriptions poll the store from now on."""
        self._breaker.failed(error)
        self._connection = None
        for channel in self._channels.values():
            channel.is_subscribed = False
            channel.notify()

    async def _run(self) -> None:
        while self._channels:
            if not self._breaker.may_try():
                await asyncio.sleep(min(max(self._breaker.seconds_left(), 0.01), FIRST_PAUSE_SECONDS))
                continue
            connection = self._client.pubsub()
            try:
                await self._receive_all(connection)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever a server or a network does
                self._lose(error)
            finally:
                self._connection = None
                await close_quietly(connection)

    async def _receive_all(self, connection: Any) -> None:
        requested: set[bytes] = set()
        while missing := [name for name in self._channels if name not in requested]:  # some are added meanwhile
            requested.update(missing)
            async with asyncio.timeout(SUBSCRIBE_SECONDS):
                await connection.subscribe(*missing)
        self._connection = connection
        is_pinged = False
        while self._channels and self._connection is connection:
            message = await connection.get_message(timeout=SILENT_SECONDS)
            if message is not None:
                is_pinged = False
                self._breaker.succeeded()
                self._receive(message["type"], message["channel"], message["data"])
            elif is_pinged:
                raise TimeoutError("the server does not answer a ping")
            else:
                is_pinged = True
                await connection.ping()

    def _receive(self, kind: str, name: bytes | None, data: Any) -> None:
        channel = self._channels.get(name or b"")
        if channel is None:
            return
        if kind == "message" and isinstance(data, bytes):
            channel.deliver(data)
        elif kind == "subscribe":
            channel.is_subscribed = True
            channel.notify()  # earlier messages were missed

    async def close(self) -> None:
        task, self._task = self._task, None
        for channel in self._channels.values():
            channel.is_subscribed = False
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])


async def close_quietly(connection: Any) -> None:
    try:
        await connection.aclose()
    except Exception:  # noqa: BLE001, S110  # the connection was lost before
        pass
