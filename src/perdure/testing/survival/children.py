"""Child processes of a test: started with an order, listened to, killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from perdure.cancelling import await_uncancelled
from perdure.platform import kill_hard

Report: TypeAlias = dict[str, Any]

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of one report: a workflow's whole state may be in it."""


KILLED = (-9, 15)
"""How a process ends that was killed hard: by SIGKILL, or as Windows reports it."""


class ChildFailed(AssertionError):
    """The code under test raised in its process, or the process ended by itself."""


class ChildProcess:
    """One process that lives through one part of a thread's life."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors
        self.recorded: list[Any] = []
        """The last that it told of what is recorded."""

    async def next_report(self) -> Report | None:
        """What it tells next, beside what is recorded; None when it has ended."""
        assert self._process.stdout is not None  # noqa: S101  # it was made with a pipe
        while line := await self._process.stdout.readline():
            if not line.endswith(b"\n"):
                return None  # it was killed while it wrote
            report: Report = json.loads(line)
            if "failed" in report:
                raise ChildFailed(report["failed"])
            if "recorded" not in report:
                return report
            self.recorded = report["recorded"]
        return None

    async def expect(self, *kinds: str) -> Report:
        """The next report, which is one of these. Raises ChildFailed if the process ends without it."""
        report = await self.next_report()
        if report is None or not set(kinds) & report.keys():
            await self._process.wait()
            said = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            raise ChildFailed(f"The process ended with {self._process.returncode} and said: {said or 'nothing'}")
        return report

    async def kill(self) -> bool:
        """End it at once. Whether that ended it, rather than itself a moment before."""
        kill_now(self._process)
        while await self.next_report() is not None:
            pass  # what it told before
        return await self._process.wait() in KILLED


@asynccontextmanager
async def child(order: Report, errors: Path, seconds: float) -> AsyncIterator[ChildProcess]:
    """A process with this order; it is gone when the block ends. Raises ChildFailed if it takes too long."""
    with errors.open("wb") as stderr:
        starting = asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "perdure.testing.survival.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=LINE_LIMIT,
        )
        # To its end: one that is cancelled while it starts would be left running, and nobody could end it.
        process, cancelled = await await_uncancelled(starting)
    assert process.stdin is not None  # noqa: S101  # as above
    process.stdin.write(json.dumps(order).encode() + b"\n")  # and left open: its end would end the process
    try:
        if cancelled is not None:
            raise cancelled
        async with asyncio.timeout(seconds):
            yield ChildProcess(process, errors)
    except TimeoutError as error:
        raise ChildFailed(f"The process did not come to its end within {seconds:g} seconds.") from error
    finally:
        await kill_and_wait(process)


def kill_now(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:  # else its number may be another's by now
        kill_hard(process.pid)


async def kill_and_wait(process: asyncio.subprocess.Process) -> None:
    kill_now(process)
    _, cancelled = await await_uncancelled(process.communicate())
    if cancelled is not None:
        raise cancelled


async def at_most(number: int, works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do all of it, so many at a time. The first error ends the rest."""
    left = iter(works)

    async def one_after_the_other() -> None:
        for work in left:
            await work()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(one_after_the_other())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
