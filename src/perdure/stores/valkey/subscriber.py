"""What is heard from Valkey, for one event loop: one connection, subscribed to the channels of all who listen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from perdure.stores.notify import LocalBus
from perdure.stores.valkey.circuit_breaker import FIRST_PAUSE_SECONDS, CircuitBreaker

SILENT_SECONDS = 0.5
"""After which a server is asked whether it is still there, and by when it must have answered."""
SUBSCRIBE_SECONDS = 1.0
SENDER_BYTES, BODY_AT = 8, 9
CHANGED, PUBLISHED = b"c", b"t"


def change_message(bus: LocalBus) -> bytes:
    return bus.token + CHANGED


def published_message(bus: LocalBus, body: bytes) -> bytes:
    return bus.token + PUBLISHED + body


@dataclass
class _Channels:
    """A channel that somebody listens to."""

    thread_id: str
    buses: dict[LocalBus, int] = field(default_factory=dict)
    """Where it is heard, and by how many."""
    is_subscribed: bool = False
    """Whether the server has said so: from then on nothing is missed, as long as the connection lives."""

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

    def look_again(self) -> None:
        for bus in self.buses:
            bus.notify(self.thread_id)


class Subscriber:
    """A task reads while somebody listens, and ends with the last who does."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._breaker = breaker
        self._wanted: dict[bytes, _Channels] = {}
        self._line: Any = None
        """Subscribes; None while there is no connection."""
        self._task: asyncio.Task[None] | None = None

    def is_subscribed(self, channel: bytes) -> bool:
        wanted = self._wanted.get(channel)
        return wanted is not None and wanted.is_subscribed

    async def add(self, channel: bytes, bus: LocalBus, thread_id: str) -> None:
        """Does not wait for the server: once it has subscribed, whoever listens is sent to look at the store."""
        is_new = channel not in self._wanted
        wanted = self._wanted.setdefault(channel, _Channels(thread_id))
        wanted.buses[bus] = wanted.buses.get(bus, 0) + 1
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._read(), name="perdure-valkey-hearing")
        elif is_new:
            await self._send("subscribe", channel)

    async def remove(self, channel: bytes, bus: LocalBus) -> None:
        wanted = self._wanted[channel]
        wanted.buses[bus] -= 1
        if not wanted.buses[bus]:
            del wanted.buses[bus]
        if wanted.buses:
            return
        del self._wanted[channel]
        if self._wanted:
            await self._send("unsubscribe", channel)
        else:
            await self.close()

    async def _send(self, what: str, *channels: bytes) -> None:
        line = self._line
        if line is None:
            return  # whoever connects says what is wanted then
        try:
            async with asyncio.timeout(SUBSCRIBE_SECONDS):
                await getattr(line, what)(*channels)
        except Exception as error:  # noqa: BLE001  # whoever listens looks at the store instead
            self._lose(error)

    def _lose(self, error: BaseException) -> None:
        """Whoever listens looks at the store from now on."""
        self._breaker.failed(error)
        self._line = None
        for wanted in self._wanted.values():
            wanted.is_subscribed = False
            wanted.look_again()

    # ------------------------------------------------------------ reading

    async def _read(self) -> None:
        while self._wanted:
            if not self._breaker.may_try():
                await asyncio.sleep(min(max(self._breaker.seconds_left(), 0.01), FIRST_PAUSE_SECONDS))
                continue
            line = self._client.pubsub()
            try:
                await self._take_all(line)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever a server or a network does
                self._lose(error)
            finally:
                self._line = None
                await _closed(line)

    async def _take_all(self, line: Any) -> None:
        said: set[bytes] = set()
        while missing := [one for one in self._wanted if one not in said]:  # some may come while it is connected
            said.update(missing)
            async with asyncio.timeout(SUBSCRIBE_SECONDS):
                await line.subscribe(*missing)
        self._line = line
        is_asked = False
        while self._wanted and self._line is line:
            message = await line.get_message(timeout=SILENT_SECONDS)
            if message is not None:
                is_asked = False
                self._breaker.succeeded()
                self._take(message["type"], message["channel"], message["data"])
            elif is_asked:
                raise TimeoutError("it was silent")
            else:
                is_asked = True
                await line.ping()

    def _take(self, kind: str, channel: bytes | None, data: Any) -> None:
        wanted = self._wanted.get(channel or b"")
        if wanted is None:
            return
        if kind == "message" and isinstance(data, bytes):
            wanted.deliver(data)
        elif kind == "subscribe":
            wanted.is_subscribed = True
            wanted.look_again()  # what happened before was missed

    async def close(self) -> None:
        task, self._task = self._task, None
        for wanted in self._wanted.values():
            wanted.is_subscribed = False
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])


async def _closed(line: Any) -> None:
    try:
        await line.aclose()
    except Exception:  # noqa: BLE001, S110  # it was lost before
        pass
