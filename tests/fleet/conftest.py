"""What the tests with many processes share: the process that forks them, a seed that is shown, and a server to harm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.chance import draw_seed
from tests.crash.zygote import Zygote
from tests.databases.fixtures import postgres_dsn, postgres_place, postgres_server
from tests.fleet.harbour import harbour as started_harbour

__all__ = ["harbour", "postgres_dsn", "postgres_place", "postgres_server", "seed"]


@pytest.fixture(scope="session")
def harbour() -> Iterator[Zygote]:
    with started_harbour() as started:
        yield started


@pytest.fixture
def seed() -> int:
    return draw_seed()
