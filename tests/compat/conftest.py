"""Every storage that the flows of the documents are tried on."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.programs import TextShelf
from tests.promises.processes import Place
from tests.schemas import where
from tests.six_methods import SixMethods

from perdure import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SqliteCheckpointStorage,
    StoreCheckpointStorage,
)

MAKERS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda path: InMemoryCheckpointStorage(),
    "file": lambda path: FileCheckpointStorage(path, fsync=False),
    "sqlite": lambda path: SqliteCheckpointStorage(path.with_suffix(".db"), synchronous="NORMAL"),
    "postgres": lambda path: PostgresCheckpointStorage(where(path).dsn, schema=where(path).schema),
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


# ---------------------------------------------------------------- the storage that documents name

IN_DOCUMENTS = "InMemoryCheckpointStorage"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What the documents do with a storage in memory is done once more with one in PostgreSQL."""
    if metafunc.module.__name__.rpartition(".")[2] != "test_reference_names" and _names(metafunc.function):
        metafunc.parametrize("_documented_storage", ["in memory", "in postgres"], indirect=True)


def _names(function: Any) -> bool:
    """Whether it, or a function of its module that it calls, makes such a storage."""
    used = function.__code__.co_names
    called = (function.__globals__.get(name) for name in used)
    own = (helper for helper in called if inspect.isfunction(helper) and helper.__module__ == function.__module__)
    return IN_DOCUMENTS in used or any(_names(helper) for helper in own if helper is not function)


@pytest.fixture(autouse=True)
async def _documented_storage(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[None]:
    if getattr(request, "param", "in memory") == "in memory":
        yield
        return
    made: list[StoreCheckpointStorage] = []

    class InPostgres(PostgresCheckpointStorage):
        def __init__(self, **options: Any) -> None:
            dsn, schema = where(tmp_path / f"storage-{len(made)}")
            super().__init__(dsn, schema=schema, **options)
            made.append(self)

    monkeypatch.setattr(request.module, IN_DOCUMENTS, InPostgres)
    yield
    for storage in made:
        await storage.close()


# ---------------------------------------------------------------- other processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Place]:
    """Starts other processes; what it started is gone when the test ends."""
    place = Place("file", tmp_path)
    yield place
    place.end()
