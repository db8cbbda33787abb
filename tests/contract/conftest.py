"""Every store in turn, empty. A test that takes `store` is a clause of the contract, and knows nothing else of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.conformance.stores import ON_DISK, STORES

from perdure.store import Store


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=ON_DISK)
def kind(request: pytest.FixtureRequest) -> str:
    """One that several processes can use at once."""
    return str(request.param)


@pytest.fixture
async def another(kind: str, tmp_path: Path) -> AsyncIterator[Callable[[], Store]]:
    """Makes one more object that is the same store, as another process would."""
    made: list[Store] = []

    def make() -> Store:
        made.append(STORES[kind](tmp_path))
        return made[-1]

    yield make
    for one in made:
        await one.close()
