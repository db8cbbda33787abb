"""An event loop in a thread of its own: what runs in it goes on while the test's own loop is busy or blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tests.servers.daemon import free_port

T = TypeVar("T")

LIMIT_SECONDS = 15.0


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
    await asyncio.sleep(0)  # sockets are closed in the turn after


class Door:
    """A port on loopback. Whoever comes in is received in a task of its own, and thrown out by cancelling that."""

    def __init__(self, receive: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.port = free_port()
        self._receive = receive
        self._listening: asyncio.Server | None = None
        self._inside: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._let_in, "127.0.0.1", self.port)

    async def shut(self) -> None:
        """Let nobody in any more, and throw all out."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        await self.throw_out()

    async def throw_out(self) -> None:
        for task in self._inside:
            task.cancel()
        await asyncio.gather(*self._inside, return_exceptions=True)

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._inside.add(task)
        try:
            await self._receive(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # either side may go at any time
        finally:
            self._inside.discard(task)
            writer.transport.abort()


def at_port(url: str, port: int) -> str:
    """The same address but for the port."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))
