"""Messages from Valkey, for one event loop: one connection, subscribed to the channels of all subscriptions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from perdure.stores.notify import LocalBus
from perdure.stores.valkey.circuit_breaker import FIRST_PAUSE_SECONDS, CircuitBreaker

SILENT_SECONDS = 0.5
"""After this time without a message the subscriber sends a ping, whose answer must arrive within the same time."""
SUBSCRIBE_SECONDS = 1.0
SENDER_BYTES, BODY_AT = 8, 9
CHANGED, PUBLISHED = b"c", b"t"


def change_message(bus: LocalBus) -> bytes:
    return bus.token + CHANGED


def published_message(bus: LocalBus, body: bytes) -> bytes:
    return bus.token + PUBLISHED + body


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
        if kind not in (CHANGED, PUBLISHED):
            return
        for bus in self.buses:
            if bus.token == sender:
                continue  # it delivered the message itself
            if kind == PUBLISHED:
                bus.publish(self.thread_id, body)
            else:
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
                await _close(connection)

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


async def _close(connection: Any) -> None:
    try:
        await connection.aclose()
    except Exception:  # noqa: BLE001, S110  # the connection was lost before
        pass
