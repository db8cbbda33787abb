"""What the tests of crashes share: the process that forks lives, and a seed that is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.chance import draw_seed
from tests.crash.zygote import Zygote, zygote as started_zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with started_zygote() as started:
        yield started


@pytest.fixture
def seed() -> int:
    return draw_seed()
