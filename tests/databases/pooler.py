"""A small pooler in transaction mode, like PgBouncer: clients share server connections, a transaction at a time."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections import deque
from typing import Self
from urllib.parse import unquote, urlsplit

from tests.databases import wire
from tests.databases.looping import Door, LoopThread, at_port

TRACKED = {"client_encoding", "datestyle", "timezone", "standard_conforming_strings", "application_name"}
"""What a client may say when it logs in. PgBouncer refuses all else: it could not give each client its own."""


class Pooler:
    """Stands at `dsn`. After each transaction a client's next one goes to another server connection, if one is free.

    `knows_statements`: a prepared statement is prepared again on whichever connection it is used, as PgBouncer does
    from 1.21 on; otherwise it exists only where it was prepared.
    """

    def __init__(self, dsn: str, *, size: int = 2, knows_statements: bool = True) -> None:
        self._target = dsn
        self._loop = LoopThread()
        self._door = Door(self._receive)
        self.dsn = at_port(dsn, self._door.port)
        self._size = size
        self.knows_statements = knows_statements
        self.clients: dict[int, Client] = {}
        self.switches = 0
        """How often a client's transaction went to another server connection than its last one."""
        self._free: asyncio.Queue[Backend | None] = asyncio.Queue()
        """None: one that has to be made."""
        self.numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._loop.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._close())
        self._loop.close()

    async def _open(self) -> None:
        for _ in range(self._size):
            self._free.put_nowait(None)
        await self._door.open()

    async def _close(self) -> None:
        await self._door.shut()
        while not self._free.empty():
            backend = self._free.get_nowait()
            if backend is not None:
                backend.writer.transport.abort()

    async def take(self, last: Backend | None) -> Backend:
        backend = await self._free.get()
        if backend is not None and backend is last and not self._free.empty():
            self._free.put_nowait(backend)
            backend = await self._free.get()
        if backend is None:
            backend = await Backend.login(self._target)
        self.switches += last is not None and backend is not last
        return backend

    def give_back(self, backend: Backend, *, is_clean: bool) -> None:
        if not is_clean:
            backend.writer.transport.abort()
        self._free.put_nowait(backend if is_clean else None)

    async def cancel(self, frame: bytes) -> None:
        """For the server connection that the client has now, if it has one."""
        number = int(struct.unpack_from("!I", frame, 8)[0])
        client = self.clients.get(number)
        if client is not None and client.backend is not None:
            target = urlsplit(self._target)
            _, writer = await asyncio.open_connection(target.hostname, target.port)
            writer.write(client.backend.cancel_request)
            await writer.drain()
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(self, reader, writer)
        self.clients[client.number] = client
        try:
            await client.run()
        finally:
            del self.clients[client.number]
            if client.backend is not None:  # it went in the middle of a transaction
                self.give_back(client.backend, is_clean=False)


class Backend:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames = wire.Frames()
        self.greeting = b""
        """What the server says of itself to one who has logged in."""
        self.cancel_request = b""
        self.statements: set[bytes] = set()
        """Prepared here, under names that no two clients share."""
        self.parses: deque[tuple[bytes, bool]] = deque()
        """Those that the server has not answered yet, and whether the client knows of them."""

    @classmethod
    async def login(cls, dsn: str) -> Backend:
        target = urlsplit(dsn)
        self = cls(*await asyncio.open_connection(target.hostname, target.port))
        try:
            await self._log_in(target.username or "", unquote(target.password or ""), target.path[1:])
        except BaseException:  # also if the client goes meanwhile
            self.writer.transport.abort()
            raise
        return self

    async def _log_in(self, user: str, password: str, database: str) -> None:
        self.writer.write(wire.startup({"user": user, "database": database}))
        while True:
            for frame in self.frames.feed(await self.reader.read(65536)):
                if frame[:1] == b"R" and frame[5:9] == struct.pack("!I", 3):
                    self.writer.write(wire.message(b"p", password.encode() + b"\0"))
                elif frame[:1] == b"S":
                    self.greeting += frame
                elif frame[:1] == b"K":
                    self.cancel_request = wire.cancel_request(struct.unpack("!I", frame[5:9])[0], frame[9:])
                elif frame[:1] == b"E":
                    raise ConnectionError(frame)
                elif frame[:1] == b"Z":
                    return


class Client:
    """One client: it has a server connection only while it is in a transaction."""

    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pooler = pooler
        self._reader, self._writer = reader, writer
        self.number = next(pooler.numbers)
        self.backend: Backend | None = None
        self._last: Backend | None = None
        self._unanswered = 0
        """Messages after which the server says that it is ready for more, and has not said so yet."""
        self._statements: dict[bytes, tuple[bytes, bytes]] = {}
        """By the client's name for it: the name on the server, and the rest of its Parse message."""

    async def run(self) -> None:
        frames = wire.Frames(begins_untyped=True)
        answering: asyncio.Task[None] | None = None
        try:
            while data := await self._reader.read(65536):
                was_untyped = frames.is_untyped
                for frame in frames.feed(data):
                    if was_untyped:
                        if not await self._begin(frame):
                            return
                        was_untyped = frames.is_untyped
                        continue
                    if frame[:1] == b"X":
                        return
                    if self.backend is None:
                        if answering is not None:
                            await answering
                        self.backend = await self._pooler.take(self._last)
                        answering = asyncio.create_task(self._answer(self.backend))
                    self._forward(frame, self.backend)
        finally:
            if answering is not None:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)

    async def _begin(self, frame: bytes) -> bool:
        """Return whether the connection continues. No client is asked for a password."""
        code = wire.startup_code(frame)
        if code in (wire.SSL, wire.GSS):
            self._writer.write(b"N")
            return True
        if code == wire.CANCEL:
            await self._pooler.cancel(frame)
            return False
        unknown = set(wire.startup_parameters(frame)) - TRACKED - {"user", "database"}
        if unknown:
            self._writer.write(wire.error("08P01", f"unsupported startup parameter: {min(unknown)}"))
            await self._writer.drain()
            return False
        backend = await self._pooler.take(None)
        self._pooler.give_back(backend, is_clean=True)
        key = wire.message(b"K", struct.pack("!II", self.number, 0))
        self._writer.write(wire.message(b"R", bytes(4)) + backend.greeting + key + wire.message(b"Z", b"I"))
        return True

    def _forward(self, frame: bytes, backend: Backend) -> None:
        kind = frame[:1]
        self._unanswered += kind in (b"Q", b"S")
        if self._pooler.knows_statements:
            frame = self._renamed(kind, frame, backend)
        backend.writer.write(frame)

    def _renamed(self, kind: bytes, frame: bytes, backend: Backend) -> bytes:
        """The same message with the statement's name on the server; before it, a Parse if the server has it not."""
        if kind == b"P":
            name, rest = wire.parsed(frame)
            own = b"" if not name else b"pool_%d_%d" % (self.number, next(self._pooler.numbers))
            if name:
                self._statements[name] = own, rest
                backend.statements.add(own)
            backend.parses.append((own, True))
            return wire.message(b"P", own + b"\0" + rest)
        if kind == b"B":
            portal, name, rest = wire.bound(frame)
            own = self._prepared(name, backend)
            return wire.message(b"B", portal + b"\0" + own + b"\0" + rest)
        if kind in (b"D", b"C"):
            what, name = wire.described(frame)
            if what == b"S" and kind == b"D":
                return wire.message(b"D", what + self._prepared(name, backend) + b"\0")
            if what == b"S":
                own, _ = self._statements.pop(name, (name, b""))
                backend.statements.discard(own)
                return wire.message(b"C", what + own + b"\0")
        return frame

    def _prepared(self, name: bytes, backend: Backend) -> bytes:
        if name not in self._statements:
            return name
        own, rest = self._statements[name]
        if own not in backend.statements:
            backend.statements.add(own)
            backend.parses.append((own, False))
            backend.writer.write(wire.message(b"P", own + b"\0" + rest))
        return own

    async def _answer(self, backend: Backend) -> None:
        """Hand on what the server says, until the transaction is over."""
        while data := await backend.reader.read(65536):
            answer = bytearray()
            is_over = False
            for frame in backend.frames.feed(data):
                kind = frame[:1]
                if kind == b"1" and backend.parses and not backend.parses.popleft()[1]:
                    continue  # the client did not ask for it
                if kind == b"E":
                    backend.statements -= {name for name, _ in backend.parses}
                    backend.parses.clear()
                if kind == b"Z":
                    self._unanswered -= 1
                    is_over = self._unanswered == 0 and frame[5:6] == b"I"
                answer += frame
            if is_over:  # before the client gets the reply, so that its next message finds it so
                self._last, self.backend = backend, None
                self._pooler.give_back(backend, is_clean=True)
            self._writer.write(answer)
            await self._writer.drain()
            if is_over:
                return
        self._writer.transport.abort()  # the server has closed it
