"""Where a clause is tried: an empty folder, the stores that are made over it, processes that use them, and chance."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from perdure.cancelling import await_uncancelled
from perdure.store import Store
from perdure.testing.conformance.clause import NotApplicable, NotKept
from perdure.testing.survival.processes import Importable, importable, kill_and_wait, kill_now

LINE_LIMIT = 16 * 1024 * 1024


class TrialProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, act: str, *arguments: Any) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise TypeError("a process without a pipe")
        stdin.write(json.dumps([act, *arguments]).encode() + b"\n")
        await stdin.drain()

    async def receive(self) -> list[Any] | None:
        """What came of it: `["done", value]` or `["refused", name of the error, its sentence]`; None at its end."""
        stdout = self._process.stdout
        if stdout is None:
            raise TypeError("a process without a pipe")
        line = await stdout.readline()
        if not line.endswith(b"\n"):
            return None  # killed while it wrote, or before
        reply: list[Any] = json.loads(line)
        return reply

    async def outcome(self) -> list[Any]:
        reply = await self.receive()
        if reply is None:
            raise NotKept(f"a process that used the store ended by itself, with {await self._process.wait()}")
        return reply

    async def do(self, act: str, *arguments: Any) -> Any:
        """What came of it, which must be well."""
        await self.ask(act, *arguments)
        reply = await self.outcome()
        if reply[0] != "done":
            raise NotKept(f"{act}{arguments} in another process raised {reply[1]}: {reply[2]}")
        return reply[1]

    async def refuses(self, error: str, act: str, *arguments: Any) -> None:
        await self.ask(act, *arguments)
        reply = await self.outcome()
        if reply[:2] != ["refused", error]:
            raise NotKept(f"{act}{arguments} in another process must raise {error}, and gave {reply[1]!r}")

    def pause(self) -> None:
        """Stop it where it is. Raises NotApplicable where the system has no such signal."""
        if sys.platform == "win32":
            raise NotApplicable("this system cannot pause a process")
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        if sys.platform != "win32":
            self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> list[Any]:
        """Kill it; returns the replies that were not read yet."""
        kill_now(self._process)
        replies = []
        while (reply := await self.receive()) is not None:
            replies.append(reply)
        await self._process.wait()
        return replies


@asynccontextmanager
async def start_process(order: dict[str, Any]) -> AsyncIterator[TrialProcess]:
    """One that has made its store; it is gone when the block ends."""
    starting = asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "perdure.testing.conformance.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    # Uncancelled: a process whose start is cancelled would be left running.
    started, cancelled = await await_uncancelled(starting)
    try:
        if cancelled is not None:
            raise cancelled
        process = TrialProcess(started)
        await process.ask("use", order)
        yield process
    finally:
        await kill_and_wait(started)


LEAVE_SECONDS = 10.0
"""What closing the stores of a clause may take."""

StoreFactory: TypeAlias = "Callable[[Path], Store]"
"""Makes a store over a folder: an empty one over a new folder, and the same store over the same folder."""


@dataclass(frozen=True)
class Maker:
    """How stores are made, here and in other processes."""

    make: StoreFactory
    address: Importable | None
    """Where another process finds `make`, or the class that has it; None if only this one can have it."""
    why_alone: str = ""


def find_maker(factory: StoreFactory | str) -> Maker:
    """Raises TypeError for what cannot make a store, ImportError for a name that leads nowhere."""
    if isinstance(factory, str):
        address = importable("store_factory", factory)
        return Maker(address.load(), address)
    if not callable(factory):
        raise TypeError(f"store_factory must be called with a folder and give a Store, got {factory!r}.")
    try:
        inspect.signature(factory).bind(Path())
    except TypeError as error:
        taken = "store_factory is called with a folder: def make_store(folder: Path) -> Store"
        raise TypeError(f"{taken}. {factory!r} does not take one: {error}.") from error
    except ValueError:
        pass  # its signature is unknown
    try:
        return Maker(factory, importable("store_factory", factory))
    except TypeError:
        return Maker(factory, None, f"another process cannot import {factory!r}: put it on top of a module")


@dataclass
class TrialLocation:
    folder: Path
    maker: Maker
    is_shared: bool
    chance: random.Random
    _made: list[Store] = field(default_factory=list)
    _ends: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def address(self) -> Importable | None:
        return self.maker.address

    @property
    def why_alone(self) -> str:
        return self.maker.why_alone

    @cached_property
    def store(self) -> Store:
        """The one that most clauses need."""
        return self.another()

    def another(self) -> Store:
        """One more object that is the same store."""
        return self._make(self._folder("store"))

    def elsewhere(self, name: str = "elsewhere") -> Store:
        """A store of the same kind that is another."""
        return self._make(self._folder(name))

    def copy(self, name: str) -> tuple[Path, Store]:
        """The store as its files are now, in a folder of its own."""
        folder = self.folder / name
        shutil.copytree(self._folder("store"), folder)
        return folder, self._make(folder)

    def at(self, folder: Path) -> Store:
        """One over a folder that there is."""
        return self._make(folder)

    @property
    def files(self) -> list[Path]:
        return files_of(self._folder("store"))

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _make(self, folder: Path) -> Store:
        made = self.maker.make(folder)
        self._made.append(made)
        return made

    async def start_process(self) -> TrialProcess:
        """Another process that uses the store; it is ended with the clause."""
        return await self._ends.enter_async_context(start_process(self._order()))

    def _order(self) -> dict[str, Any]:
        """The first command to the process."""
        if self.maker.address is None:
            raise TypeError(self.maker.why_alone)
        path = [os.path.abspath(entry) for entry in sys.path]
        return {"path": path, "factory": asdict(self.maker.address), "folder": str(self._folder("store"))}

    async def leave(self) -> None:
        await self._ends.aclose()
        for store in self._made:
            await store.close()


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


@asynccontextmanager
async def open_location(maker: Maker, *, shared: bool, chance: random.Random) -> AsyncIterator[TrialLocation]:
    with TemporaryDirectory(prefix="perdure-conformance-", ignore_cleanup_errors=True) as folder:
        place = TrialLocation(Path(folder), maker, shared, chance)
        try:
            yield place
        finally:
            async with asyncio.timeout(LEAVE_SECONDS):
                await place.leave()


def load_factory(loaded: Any) -> StoreFactory:
    """What another process found at an address: a factory, or a class with a `make_store`."""
    make: StoreFactory = loaded().make_store if hasattr(loaded, "make_store") else loaded
    return make
