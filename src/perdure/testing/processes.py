"""Child processes of a test: how they import the functions of this process, and exchange lines of JSON with it."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import reduce
from typing import IO, Any, TypeVar

from perdure.clock import await_uncancelled
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

    Raises TypeError, naming the parameter `what`, for an object that exists only in this process.
    """
    if isinstance(thing, str):
        module, _, name = thing.partition(":")
        if not module or not name:
            raise TypeError(f"{what} expects 'module:function', got {thing!r}.")
        return Importable(module, name)
    home, name = str(getattr(thing, "__module__", None)), str(getattr(thing, "__qualname__", None))
    look_up: Any = reduce(lambda parent, part: getattr(parent, part, None), name.split("."), sys.modules.get(home))
    if look_up is not thing:  # a lambda, a local function or an instance
        raise TypeError(
            f"{what} must be importable in another process, such as a function at the top of a module, or its "
            f"name, 'module:function'; got {thing!r}."
        )
    return Importable(stable_module(home), name, getattr(sys.modules[home], "__file__", None))


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


def import_path() -> list[str]:
    """Where this process finds modules, for `sys.path` of another."""
    return [os.path.abspath(entry) for entry in sys.path]


LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of one line: a workflow's whole state may be in it."""


class JsonProcess:
    """A child process. It reads values, one line of JSON each, from its stdin, and sends others with `JsonLines`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, value: Any) -> None:
        assert self.process.stdin is not None  # noqa: S101  # it was made with a pipe
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        await self.process.stdin.drain()

    async def receive(self) -> Any:
        """The next value; None when the process has ended."""
        assert self.process.stdout is not None  # noqa: S101  # as above
        line = await self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None  # else it was killed while it wrote, or before

    async def kill(self) -> list[Any]:
        """End it at once. Returns the values that were not received yet."""
        _kill_now(self.process)
        values = []
        while (value := await self.receive()) is not None:
            values.append(value)
        await self.process.wait()
        return values


P = TypeVar("P", bound=JsonProcess)


@asynccontextmanager
async def start_json_process(
    kind: type[P], module: str, order: Any, *, stderr: IO[bytes] | None = None
) -> AsyncIterator[P]:
    """A process that runs this module and was sent the order; it is dead when the block ends."""
    starting = asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=LINE_LIMIT,
    )
    # Uncancelled: a process whose start is cancelled would be left running.
    process, cancelled = await await_uncancelled(starting)
    try:
        if cancelled is not None:
            raise cancelled
        started = kind(process)
        await started.send(order)
        yield started
    finally:
        _kill_now(process)
        _, cancelled = await await_uncancelled(process.communicate())
        if cancelled is not None:
            raise cancelled


def _kill_now(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:  # else its number may be another's by now
        kill_hard(process.pid)


class JsonLines:
    """The way back to the parent of this process. What the code under test prints goes to stderr instead."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def send(self, value: Any) -> None:
        """It has left this process on return."""
        line = json.dumps(value).encode() + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]
