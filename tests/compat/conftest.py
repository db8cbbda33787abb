"""Every storage that the flows of the documents are tried on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.programs import TextShelf
from tests.promises.processes import Place
from tests.six_methods import SixMethods

from holdfast import FileCheckpointStorage, InMemoryCheckpointStorage, SqliteCheckpointStorage
from holdfast.checkpoints.storage import StoreCheckpointStorage

MAKERS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda path: InMemoryCheckpointStorage(),
    "file": lambda path: FileCheckpointStorage(path, fsync=False),
    "sqlite": lambda path: SqliteCheckpointStorage(path.with_suffix(".db"), synchronous="NORMAL"),
    "a backend that keeps text": lambda path: TextShelf(),
    "a backend that keeps objects": lambda path: SixMethods(),
}


@pytest.fixture(params=MAKERS)
async def make_storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Makes a new, empty one with each call."""
    made: list[Any] = []

    def make() -> Any:
        made.append(MAKERS[request.param](tmp_path / f"storage-{len(made)}"))
        return made[-1]

    yield make
    for storage in made:
        if isinstance(storage, StoreCheckpointStorage):
            await storage.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Place]:
    """Starts other processes; what it started is gone when the test ends."""
    place = Place("file", tmp_path)
    yield place
    place.end()
