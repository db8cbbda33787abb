"""Other processes that use the store of a clause: told what to do, line by line, and killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from perdure.cancelling import await_uncancelled
from perdure.testing.conformance.support.expectations import NotKept
from perdure.testing.survival.children import kill_and_wait, kill_now

LINE_LIMIT = 16 * 1024 * 1024


class TrialProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, act: str, *given: Any) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise TypeError("a process without a pipe")
        stdin.write(json.dumps([act, *given]).encode() + b"\n")
        await stdin.drain()

    async def hear(self) -> list[Any] | None:
        """What came of it: `["done", value]` or `["refused", name of the error, its sentence]`; None at its end."""
        stdout = self._process.stdout
        if stdout is None:
            raise TypeError("a process without a pipe")
        line = await stdout.readline()
        if not line.endswith(b"\n"):
            return None  # killed while it wrote, or before
        told: list[Any] = json.loads(line)
        return told

    async def outcome(self) -> list[Any]:
        told = await self.hear()
        if told is None:
            raise NotKept(f"a process that used the store ended by itself, with {await self._process.wait()}")
        return told

    async def do(self, act: str, *given: Any) -> Any:
        """What came of it, which must be well."""
        await self.ask(act, *given)
        told = await self.outcome()
        if told[0] != "done":
            raise NotKept(f"{act}{given} in another process raised {told[1]}: {told[2]}")
        return told[1]

    async def refuses(self, error: str, act: str, *given: Any) -> None:
        await self.ask(act, *given)
        told = await self.outcome()
        if told[:2] != ["refused", error]:
            raise NotKept(f"{act}{given} in another process must raise {error}, and gave {told[1]!r}")

    async def kill(self) -> list[Any]:
        """End it at once. What it told before that nobody has heard yet."""
        kill_now(self._process)
        heard = []
        while (told := await self.hear()) is not None:
            heard.append(told)
        await self._process.wait()
        return heard


@asynccontextmanager
async def process(order: dict[str, Any]) -> AsyncIterator[TrialProcess]:
    """One that has made its store; it is gone when the block ends."""
    starting = asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "perdure.testing.conformance.support.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    # To its end: one that is cancelled while it starts would be left running, and nobody could end it.
    started, cancelled = await await_uncancelled(starting)
    try:
        if cancelled is not None:
            raise cancelled
        one = TrialProcess(started)
        await one.ask("use", order)
        yield one
    finally:
        await kill_and_wait(started)
