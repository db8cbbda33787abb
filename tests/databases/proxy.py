"""A proxy in front of a server on loopback: counts round trips and statements, and harms connections on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Self
from urllib.parse import urlsplit

from tests.databases import wire
from tests.databases.looping import Door, LoopThread, at_port


class Instant(Enum):
    """When a connection is cut, seen from one statement."""

    BEFORE = "before it is forwarded: the server never sees it"
    AFTER = "once it is forwarded: the server goes on with it while the client may already try again"
    LATE = "before it is forwarded; the server gets it all the same, when `deliver` is called"
    ANSWERED = "once the server has answered: it is done, and the client never hears of it"
    IN_ANSWER = "in the middle of the answer"


@dataclass
class Counts:
    round_trips: int = 0
    """How often a client said something and got an answer; logging in is not counted."""
    connections: int = 0
    statements: list[str] = field(default_factory=list)
    """The SQL of each statement that was executed, in order."""


@dataclass
class Doom:
    """Waits for its statement."""

    instant: Instant
    at: str
    skip: int

    def strikes(self, sql: str) -> bool:
        if self.at not in sql:
            return False
        self.skip -= 1
        return self.skip < 0


class Proxy:
    """Stands at `url`, which is that of the server but for the port. Its methods may be called from any thread."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._loop = LoopThread()
        self._door = Door(self._receive)
        self.url = at_port(url, self._door.port)
        self.counts = Counts()
        self.delay_seconds = 0.0
        """By which each answer is late."""
        self.doom: Doom | None = None
        self.cuts = 0
        """How many connections were cut by `cut`."""
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.undelivered: list[Link] = []

    def start(self) -> Self:
        self._loop.run(self._door.open())
        return self

    def close(self) -> None:
        if self._loop.is_running:
            self._loop.run(self._door.shut())
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ counting

    @contextmanager
    def counted(self) -> Iterator[Counts]:
        """What happens meanwhile."""
        before, self.counts = self.counts, Counts()
        try:
            yield self.counts
        finally:
            self.counts = before

    # ------------------------------------------------------------ harming

    def cut(self, instant: Instant, at: str = "", *, skip: int = 0) -> None:
        """Cut the connection that executes the next statement with this text in its SQL, or one after it. Once."""
        self.doom = Doom(instant, at, skip)

    def deliver(self) -> None:
        """Let the server have what was cut off LATE, and wait until it has done that, and what was cut off AFTER."""
        self._loop.run(self._deliver())

    def cut_all(self) -> None:
        self._loop.run(self._door.throw_out())

    def refuse(self) -> None:
        """Cut all connections and accept none, as if the server were down."""
        self._loop.run(self._door.shut())

    def admit(self) -> None:
        self._loop.run(self._door.open())

    def stall(self) -> None:
        """Swallow nothing and forward nothing, in either direction, until `flow`. Connections are accepted."""
        self._loop.run(self._set_flowing(False))

    def flow(self) -> None:
        self._loop.run(self._set_flowing(True))

    # ------------------------------------------------------------ in its loop

    async def _set_flowing(self, is_flowing: bool) -> None:
        if is_flowing:
            self.flowing.set()
        else:
            self.flowing.clear()

    async def _deliver(self) -> None:
        undelivered, self.undelivered = self.undelivered, []
        for link in undelivered:
            await link.deliver()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection(self._target.hostname, self._target.port)
        traffic = PostgresTraffic() if self._target.scheme.startswith("postgres") else PlainTraffic()
        await Link(self, (reader, writer), server, traffic).run()


class PlainTraffic:
    """Of a protocol that is not understood: whatever comes in one piece is a statement."""

    is_logged_in = True

    def sent(self, data: bytes) -> list[tuple[bytes, str | None, bool]]:
        return [(data, data.decode(errors="replace"), True)]

    def answered(self, data: bytes) -> bool:
        return True


class PostgresTraffic:
    """One connection's messages: which statements they execute, and when the server waits for the next."""

    def __init__(self) -> None:
        self.is_logged_in = False
        self._client, self._server = wire.Frames(begins_untyped=True), wire.Frames()
        self._single_bytes = 0
        self._sql: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def sent(self, data: bytes) -> list[tuple[bytes, str | None, bool]]:
        """Messages, each with the SQL that it executes, and whether it is the last of those that are sent together."""
        return [self._seen(frame, was_untyped) for frame, was_untyped in self._cut(data)]

    def _cut(self, data: bytes) -> list[tuple[bytes, bool]]:
        was_untyped = self._client.is_untyped
        frames = self._client.feed(data)
        return [(frame, was_untyped and index == 0) for index, frame in enumerate(frames)]

    def _seen(self, frame: bytes, is_untyped: bool) -> tuple[bytes, str | None, bool]:
        if is_untyped:
            self._single_bytes += wire.startup_code(frame) in (wire.SSL, wire.GSS)  # answered with one byte
            return frame, None, True
        kind = frame[:1]
        if kind == b"P":
            name, rest = wire.parsed(frame)
            self._sql[name] = rest.partition(b"\0")[0].decode()
        elif kind == b"B":
            portal, name, _ = wire.bound(frame)
            self._portals[portal] = self._sql.get(name, "")
        elif kind == b"E":
            return frame, self._portals.get(frame[5:].partition(b"\0")[0], ""), False
        elif kind == b"Q":
            return frame, frame[5:-1].decode(), True
        return frame, None, kind not in (b"P", b"B", b"D", b"C")

    def answered(self, data: bytes) -> bool:
        """Return whether the server has come to the end of what it received."""
        single, self._single_bytes = self._single_bytes, 0
        is_ready = any(frame[:1] == b"Z" for frame in self._server.feed(data[single:]))
        self.is_logged_in = self.is_logged_in or is_ready
        return is_ready


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """One connection: from the client to the server, and back."""

    def __init__(self, proxy: Proxy, client: Stream, server: Stream, traffic: PlainTraffic | PostgresTraffic) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._traffic = traffic
        self._is_asked = False
        """Whether the client has said something that was not answered yet."""
        self._doom: Instant | None = None
        self._held = b""
        self._ways: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        self._proxy.counts.connections += 1
        self._ways = [asyncio.create_task(self._forth()), asyncio.create_task(self._back())]
        try:
            await asyncio.wait(self._ways, return_when=asyncio.FIRST_COMPLETED)
            if self._doom in (Instant.AFTER, Instant.LATE):
                await asyncio.wait(self._ways)  # the server still has something to say
        finally:
            self._server[1].transport.abort()
            self._client[1].transport.abort()
            for way in self._ways:
                way.cancel()
            await asyncio.gather(*self._ways, return_exceptions=True)

    async def _forth(self) -> None:
        together = b""
        while data := await self._client[0].read(65536):
            await self._proxy.flowing.wait()
            self._is_asked = self._traffic.is_logged_in
            for message, sql, is_last in self._traffic.sent(data):
                together += message
                if sql is not None:
                    self._executes(sql)
                if not is_last:
                    continue
                if self._doom is Instant.BEFORE:
                    return
                if self._doom is Instant.LATE:
                    self._held = together
                else:
                    self._server[1].write(together)
                together = b""
                if self._doom in (Instant.AFTER, Instant.LATE):
                    self._client[1].transport.abort()
                    return
            await self._server[1].drain()

    def _executes(self, sql: str) -> None:
        doom = self._proxy.doom
        if doom is not None and doom.strikes(sql):
            self._proxy.doom, self._doom = None, doom.instant
            self._proxy.cuts += 1
            if self._doom in (Instant.AFTER, Instant.LATE):
                self._proxy.undelivered.append(self)
        else:
            self._proxy.counts.statements.append(sql)

    async def _back(self) -> None:
        while data := await self._server[0].read(65536):
            is_ready = self._traffic.answered(data)
            if self._doom is Instant.IN_ANSWER:
                self._client[1].write(data[: len(data) // 2])
                await self._client[1].drain()
                return
            if self._doom is not None:
                if is_ready:
                    return
                continue
            await self._proxy.flowing.wait()
            await asyncio.sleep(self._proxy.delay_seconds)
            if self._is_asked:
                self._is_asked = False
                self._proxy.counts.round_trips += 1
            self._client[1].write(data)
            await self._client[1].drain()

    async def deliver(self) -> None:
        """Wait until the server has answered, though no client receives the answer."""
        self._server[1].write(self._held)
        await asyncio.wait(self._ways)
