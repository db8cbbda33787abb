"""Other processes of a test: forked from one that has everything loaded, spoken to through a pipe."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec

P = ParamSpec("P")

SECONDS = 60.0
"""How long anything may take that is waited for; the machine may be busy."""

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["pytest", "tests.promises.processes", "tests.valkey.acts"])


class Pipe:
    """One end: of the test, or of the other process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, *words: Any) -> None:
        self._connection.send(words)

    async def receive(self) -> Any:
        """Raises EOFError when the other process is gone."""
        loop = asyncio.get_running_loop()
        while not self._connection.poll():
            readable = asyncio.Event()
            loop.add_reader(self._connection.fileno(), readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(self._connection.fileno())
        return self._connection.recv()

    async def wait_for(self, *words: Any) -> tuple[Any, ...]:
        """Return what comes after these words, past everything else."""
        async with asyncio.timeout(SECONDS):
            while (words_received := await self.receive())[: len(words)] != words:
                assert words_received[0] != "raised", words_received[1]
        rest: tuple[Any, ...] = words_received[len(words) :]
        return rest

    def close(self) -> None:
        self._connection.close()


class Others:
    def __init__(self) -> None:
        self._started: list[tuple[Pipe, Any]] = []

    def start(self, act: Callable[Concatenate[Pipe, P], Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> Pipe:
        """A process that does this, and then ends."""
        ours, theirs = _SERVER.Pipe()
        process = _SERVER.Process(target=_do, args=(theirs, act, args, kwargs), daemon=True)
        process.start()
        theirs.close()
        pipe = Pipe(ours)
        self._started.append((pipe, process))
        return pipe

    async def end(self) -> None:
        for pipe, process in self._started:
            pipe.close()
            process.kill()
            await asyncio.to_thread(process.join)
            process.close()


def _do(connection: Connection, act: Callable[..., Awaitable[None]], args: Any, kwargs: Any) -> None:
    pipe = Pipe(connection)

    async def do() -> None:
        await act(pipe, *args, **kwargs)

    try:
        asyncio.run(do())
    except BaseException as error:
        pipe.send("raised", repr(error))
        raise
