"""Where a clause is tried: an empty folder, the stores that are made over it, processes that use them, and chance."""

from __future__ import annotations

import asyncio
import inspect
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from perdure.store import Store
from perdure.testing.conformance import worker
from perdure.testing.conformance.worker import TrialProcess
from perdure.testing.processes import Importable, import_path, importable, start_json_process

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
        if self.maker.address is None:
            raise TypeError(self.maker.why_alone)
        order = {"path": import_path(), "factory": asdict(self.maker.address), "folder": str(self._folder("store"))}
        return await self._ends.enter_async_context(start_json_process(TrialProcess, worker.__name__, order))

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
