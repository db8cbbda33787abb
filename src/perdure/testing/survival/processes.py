"""Child processes of a test, and how they find what is defined in this one."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from perdure.cancelling import await_uncancelled
from perdure.names import stable_module
from perdure.platform import kill_hard


@dataclass(frozen=True)
class Importable:
    module: str
    name: str
    file: str | None = None
    """Where the module is, should its name not be enough: a script, or a test that pytest loaded by path."""

    def load(self) -> Any:
        """The thing itself. Raises ImportError or AttributeError."""
        return reduce(getattr, self.name.split("."), _module(self.module, self.file))


def importable(what: str, thing: Any) -> Importable:
    """How another process finds `thing`: something defined on top of a module, or its name, `"module:function"`.

    Raises TypeError, naming the parameter `what`, for anything that only this process can have.
    """
    if isinstance(thing, str):
        module, _, name = thing.partition(":")
        if not module or not name:
            raise TypeError(f"{what} expects 'module:function', got {thing!r}.")
        return Importable(module, name)
    home, name = str(getattr(thing, "__module__", None)), str(getattr(thing, "__qualname__", None))
    if _look_up(home, name) is not thing:
        raise TypeError(
            f"{what} must be something that another process can import, such as a function on top of a module, or "
            f"its name, 'module:function'; got {thing!r}."
        )
    return Importable(stable_module(home), name, getattr(sys.modules[home], "__file__", None))


def _look_up(module: str, name: str) -> Any:
    """None for a lambda, a local function or an instance."""
    return reduce(lambda thing, part: getattr(thing, part, None), name.split("."), sys.modules.get(module))


def _module(name: str, file: str | None) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if file is None or not name.startswith(error.name or " "):
            raise
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}, and {file!r} cannot be read as one.", name=name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        """The last report of recorded work."""

    async def next_report(self) -> Report | None:
        """The next report except those of recorded work; None when it has ended."""
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
            stderr = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            raise ChildFailed(
                f"The process ended with {self._process.returncode} and wrote to stderr: {stderr or 'nothing'}"
            )
        return report

    async def kill(self) -> bool:
        """End it at once. Whether that ended it, rather than itself a moment before."""
        kill_now(self._process)
        while await self.next_report() is not None:
            pass  # reports sent before
        return await self._process.wait() in KILLED


@asynccontextmanager
async def child(order: Report, errors: Path, seconds: float) -> AsyncIterator[ChildProcess]:
    """A process with this order; it is dead when the block ends. Raises ChildFailed if it takes too long."""
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
        # Uncancelled: a process whose start is cancelled would be left running.
        process, cancelled = await await_uncancelled(starting)
    assert process.stdin is not None  # noqa: S101  # as above
    process.stdin.write(json.dumps(order).encode() + b"\n")  # and left open: its end would end the process
    try:
        if cancelled is not None:
            raise cancelled
        async with asyncio.timeout(seconds):
            yield ChildProcess(process, errors)
    except TimeoutError as error:
        raise ChildFailed(f"The process did not end within {seconds:g} seconds.") from error
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

    async def work_in_order() -> None:
        for work in left:
            await work()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(work_in_order())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
