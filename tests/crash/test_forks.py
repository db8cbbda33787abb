"""A store that is used by a process and by its fork, and one that several processes make at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.forking import Forking
from tests.crash.lives import prepared
from tests.crash.zygote import Zygote


@pytest.mark.parametrize("place", ["file, fsync=False", "sqlite, NORMAL", "postgres"])
def test_a_process_and_its_fork_write_to_one_thread_and_lose_nothing(
    place: str, zygote: Zygote, tmp_path: Path
) -> None:
    zygote.life("tests.crash.forking:live", Forking(place=place, folder=str(prepared(place, tmp_path))))


@pytest.mark.parametrize("place", ["file, fsync=False", "sqlite, NORMAL", "postgres"])
def test_processes_that_make_a_store_at_the_same_moment_all_succeed(place: str, zygote: Zygote, tmp_path: Path) -> None:
    zygote.life("tests.crash.forking:make_at_once", Forking(place=place, folder=str(prepared(place, tmp_path))))
