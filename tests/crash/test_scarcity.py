"""A full disk and a folder that may not be written: a clear error, and the thread continues when that has passed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chance import SOAK
from tests.crash.scarce import HEAP, Shortage
from tests.crash.zygote import Zygote

STORES = ["file, fsync=False", "sqlite, NORMAL"]


def life(zygote: Zygote, folder: Path, place: str, **more: Any) -> tuple[list[str], list[Any]]:
    """Errors and ends that it noted."""
    folder.mkdir(exist_ok=True)
    (folder / "notes").write_bytes(b"")  # not removed: its folder may be closed
    order = Shortage(
        place=place, folder=str(folder), flow=HEAP.name, most_bytes=None, goes_on=False, as_unprivileged=False
    )
    order.update(more)  # type: ignore[typeddict-item]  # the tests below say what they want
    zygote.life("tests.crash.scarce:live", order)
    lines = [line.split(" ", 1) for line in (folder / "notes").read_text(encoding="utf-8").splitlines()]
    errors = [rest for kind, rest in lines if kind == "refused"]
    return errors, [json.loads(rest) for kind, rest in lines if kind == "ended"]


@pytest.mark.parametrize("place", STORES)
def test_thread_that_met_a_full_disk_continues_when_there_is_space(place: str, zygote: Zygote, tmp_path: Path) -> None:
    _, [calm] = life(zygote, tmp_path / "calm", place)
    refused = 0
    step = 1_000 if SOAK else 60_000
    for number, most_bytes in enumerate(range(9_000, 420_000, step)):
        folder, goes_on = tmp_path / str(most_bytes), number % 2 == 0
        errors, ends = life(zygote, folder, place, most_bytes=most_bytes, goes_on=goes_on)
        refused += len(errors)
        assert all(str(folder) in error for error in errors)
        assert ends == [calm] if goes_on or not errors else ends == []
        assert life(zygote, folder, place) == ([], [calm]), f"{most_bytes} bytes"
    assert refused >= 3


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that any user can look into: those of pytest are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-read-only-"))
    folder.chmod(0o755)
    yield folder
    allow(folder, writing=True)
    shutil.rmtree(folder)


def allow(folder: Path, *, writing: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755 if writing else 0o555)
        else:
            path.chmod(0o644 if writing else 0o444)


@pytest.mark.parametrize("place", STORES)
def test_a_folder_that_may_not_be_written_is_named_and_nothing_is_lost(
    place: str, zygote: Zygote, open_folder: Path
) -> None:
    _, [calm] = life(zygote, open_folder / "calm", place)
    folder = open_folder / "threads"
    [first], [] = life(zygote, folder, place, most_bytes=200_000)  # it stopped in the middle
    allow(open_folder, writing=False)
    (folder / "notes").chmod(0o644)
    if os.getuid() != 0:
        folder.chmod(0o555)
    errors, ends = life(zygote, folder, place, as_unprivileged=True)
    assert first and len(errors) == 1 and str(folder) in errors[0] and ends == []
    allow(open_folder, writing=True)
    assert life(zygote, folder, place) == ([], [calm])


@pytest.mark.parametrize("place", STORES)
def test_store_that_cannot_be_created_raises_an_error_with_its_path(
    place: str, zygote: Zygote, open_folder: Path
) -> None:
    folder = open_folder / "threads"
    folder.mkdir()
    (folder / "notes").touch()
    allow(open_folder, writing=False)
    (folder / "notes").chmod(0o644)
    [error], [] = life(zygote, folder, place, as_unprivileged=True)
    assert str(folder) in error
