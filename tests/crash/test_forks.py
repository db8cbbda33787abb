"""A store that is used by a process and by its fork, as under a server that loads before it forks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.forking import Forking
from tests.crash.zygote import Zygote


@pytest.mark.parametrize("place", ["file, fsync=False", "sqlite, NORMAL"])
def test_a_process_and_its_fork_write_to_one_thread_and_lose_nothing(
    place: str, zygote: Zygote, tmp_path: Path
) -> None:
    zygote.life("tests.crash.forking:live", Forking(place=place, folder=str(tmp_path)))
