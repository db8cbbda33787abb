"""An event loop in a thread of its own: what runs in it continues while the test's own loop is busy or blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tests.databases.daemon import free_port

T = TypeVar("T")

LIMIT_SECONDS = 30.0


class LoopThread:
    """Started when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done there, and wait for it here."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_SECONDS)

    def close(self) -> None:
        """Cancel what still runs there."""
        if self._loop is None or self._thread is None:
            return
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(3):  # what was aborted is closed in the next turns
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # sockets are closed in the turn after


class Door:
    """A port on loopback. Each connection is served in a task of its own, and closed by cancelling that."""

    def __init__(self, receive: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.port = free_port()
        self._receive = receive
        self._listening: asyncio.Server | None = None
        self._inside: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._let_in, "127.0.0.1", self.port)

    async def shut(self) -> None:
        """Accept no more connections, and close all."""
        if self._listening is not None:
            for accepting in self._listening.sockets:
                asyncio.get_running_loop().remove_reader(accepting.fileno())
            for _ in range(4):  # to let in what was accepted: a server that is closed before leaves its socket open
                await asyncio.sleep(0)
            self._listening.close()
            self._listening = None
        await self.throw_out()

    async def throw_out(self) -> None:
        inside = [*self._inside]
        for task in inside:
            task.cancel()
        await asyncio.gather(*inside, return_exceptions=True)

    def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._inside[task] = writer
        task.add_done_callback(self._let_out)  # also of one that was cancelled before it had begun

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._receive(reader, writer)
        except ConnectionError:
            pass  # either side may go at any time

    def _let_out(self, task: asyncio.Task[None]) -> None:
        writer = self._inside.pop(task)
        writer.transport.abort()  # a writer that is deleted before warns that it is open


def at_port(url: str, port: int) -> str:
    """The same address but for the port."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))
