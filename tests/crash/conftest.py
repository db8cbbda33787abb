"""What the tests of crashes share: the process that forks lives, and a seed that is shown."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from tests.crash.zygote import Zygote, zygote as started_zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with started_zygote() as started:
        yield started


@pytest.fixture
def seed() -> int:
    """Another one in every run, so that runs add up. pytest shows it with a failure; PERDURE_CRASH_SEED repeats it."""
    given = int(os.environ.get("PERDURE_CRASH_SEED") or random.randrange(2**32))
    print(f"PERDURE_CRASH_SEED={given}")
    return given
