"""The place of a trial: an empty folder, stores over it, processes that use them, and a source of chance.

Run as a program, the module is such a process. It reads lines of JSON: its order, then acts such as
`["open", thread, owner]`, and answers each with a line. The acts that begin with `keep_` never end: they reply with
each write that the store acknowledged, until they are killed.
"""

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
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from perdure.records import Lease, OpenedThread
from perdure.store import Store
from perdure.testing.conformance.clause import NotApplicable, NotKept, run_together
from perdure.testing.conformance.threads import ThreadOwner, own, save_thread
from perdure.testing.processes import Importable, JsonLines, JsonProcess, import_path, importable, start_json_process

LEAVE_SECONDS = 10.0
"""The most seconds for closing the stores of a clause."""

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
    """Raises TypeError for an object that cannot make a store, ImportError for an unknown name."""
    if isinstance(factory, str):
        address = importable("store_factory", factory)
        return Maker(address.load(), address)
    if not callable(factory):
        raise TypeError(f"store_factory must take a folder and return a Store, got {factory!r}.")
    try:
        inspect.signature(factory).bind(Path())
    except TypeError as error:
        taken = "store_factory is called with a folder: def make_store(folder: Path) -> Store"
        raise TypeError(f"{taken}. {factory!r} does not take one: {error}.") from error
    except ValueError:
        pass  # its signature is unknown
    return maker_of(factory, factory)


def maker_of(make: StoreFactory, home: Any) -> Maker:
    """`home`: what another process would import, the factory or the class that has it."""
    try:
        return Maker(make, importable("store_factory", home))
    except TypeError:
        return Maker(make, None, f"another process cannot import {home!r}: put it on top of a module")


@dataclass
class TrialLocation:
    folder: Path
    maker: Maker
    is_shared: bool
    chance: random.Random
    ends: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Closes the stores and ends the processes of the clause."""

    @cached_property
    def store(self) -> Store:
        """The one that most clauses need."""
        return self.another()

    async def supply(self, name: str) -> Any:
        """The values of a clause's parameters: the place, which is a `disk` if the clause needs files, its store and
        chance, the owner of thread `t`, a `second` object that is the same store, a `target`, which is another store,
        a process that uses the store, or two `processes`."""
        match name:
            case "place" | "disk":
                return self
            case "owner":
                return await own(self.store)
            case "second":
                return self.another()
            case "target":
                return self.elsewhere()
            case "process":
                return await self.start_process()
            case "processes":
                return await run_together(self.start_process(), self.start_process())
        return getattr(self, name)

    def another(self) -> Store:
        """One more object that is the same store."""
        return self.elsewhere("store")

    def elsewhere(self, name: str = "elsewhere") -> Store:
        """A store of the same kind that is another."""
        return self.at(self._folder(name))

    def copy(self, name: str) -> tuple[Path, Store]:
        """The store as its files are now, in a folder of its own."""
        folder = self.folder / name
        shutil.copytree(self._folder("store"), folder)
        return folder, self.at(folder)

    def at(self, folder: Path) -> Store:
        """A store over an existing folder."""
        made = self.maker.make(folder)
        self.ends.push_async_callback(made.close)
        return made

    @property
    def files(self) -> list[Path]:
        return files_of(self._folder("store"))

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    async def start_process(self) -> TrialProcess:
        """Another process that uses the store; it is ended with the clause."""
        if self.maker.address is None:
            raise TypeError(self.maker.why_alone)
        order = {"path": import_path(), "factory": asdict(self.maker.address), "folder": str(self._folder("store"))}
        return await self.ends.enter_async_context(start_json_process(TrialProcess, __name__, order))


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
                await place.ends.aclose()


class TrialProcess(JsonProcess):
    """Another process that uses the store, seen from here."""

    async def ask(self, act: str, *arguments: Any) -> None:
        await self.send([act, *arguments])

    async def outcome(self) -> list[Any]:
        """The reply: `["done", value]` or `["refused", name of the error, its sentence]`."""
        reply: list[Any] | None = await self.receive()
        if reply is None:
            raise NotKept(f"a process that used the store ended by itself, with {await self.process.wait()}")
        return reply

    async def do(self, act: str, *arguments: Any) -> Any:
        """The result, which must not be an error."""
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
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        if sys.platform != "win32":
            self.process.send_signal(signal.SIGCONT)


# ---------------------------------------------------------------- in that process


class Worker:
    def __init__(self, order: dict[str, Any]) -> None:
        sys.path[:] = order["path"]
        source = Importable(**order["factory"]).load()
        make = source().make_store if hasattr(source, "make_store") else source  # a factory, or a class that has it
        self.store: Store = make(Path(order["folder"]))
        self.owners: dict[str, ThreadOwner] = {}
        self._lines = JsonLines()

    def reply(self, *parts: Any) -> None:
        """The store has acknowledged this, and the parent process has the line on return."""
        self._lines.send(parts)

    async def open(self, thread_id: str, owner: str) -> int:
        self.owners[thread_id] = await own(self.store, thread_id, owner=owner)
        return self.owners[thread_id].number

    async def lend(self, thread_id: str, owner: str, fence: int) -> None:
        """Hold what another process was given, of a thread without a commit."""
        opened = OpenedThread(Lease(thread_id, owner, fence), 0, None, None, 0)
        self.owners[thread_id] = ThreadOwner(self.store, opened, "w")

    async def save(self, thread_id: str, checkpoint_id: str) -> int:
        return (await self.owners[thread_id].save(checkpoint_id, events=1, brings=[checkpoint_id])).number

    async def save_many(self, thread_id: str, number: int) -> None:
        await save_thread(self.store, thread_id, number, events=1, brings=[thread_id])

    # ------------------------------------------------------------ until it is killed

    async def keep_committing(self, thread_id: str) -> None:
        owner = await own(self.store, thread_id)
        for number in count(owner.number + 1):
            text = f"{thread_id} at {number}"
            await owner.save(events=2, brings=[text, f"all of {text}"], drops=[f"{thread_id} at {number - 1}"])
            self.reply("done", number)

    async def keep_posting(self, thread_id: str) -> None:
        owner = await own(self.store, thread_id)
        for number in count(1):
            await self.store.post(thread_id, f"item {number}", "message", b"%d" % number)
            self.reply("done", ["post", number])
            await owner.record(number, b"%d" % number)
            self.reply("done", ["journal", number])

    async def keep_pruning(self, thread_id: str) -> None:
        for info in (await self.store.infos(thread_id=thread_id))[:-1]:
            await self.store.prune(thread_id, [info.checkpoint_id])
            self.reply("done", info.checkpoint_id)

    async def keep_copying(self, thread_id: str) -> None:
        for number in count(1):
            await self.store.copy_thread(thread_id, f"{thread_id} copy {number}")
            self.reply("done", number)


async def answer(worker: Worker, act: str, arguments: list[Any]) -> None:
    try:
        worker.reply("done", await getattr(worker, act)(*arguments))
    except Exception as error:  # noqa: BLE001  # the reply; the clause decides
        worker.reply("refused", type(error).__name__, str(error))


def main() -> None:
    worker = Worker(json.loads(sys.stdin.readline()))
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            act, *arguments = json.loads(line)
            runner.run(answer(worker, act, arguments))


if __name__ == "__main__":
    main()
