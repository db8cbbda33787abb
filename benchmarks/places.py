"""The folders of the benchmarks: on the disk of the checkout, because a sync in a folder of memory is free."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peer import ROOT

PLACE = ROOT / ".bench"


@contextmanager
def own_folder(name: str) -> Iterator[Path]:
    """A new folder for one measurement, removed after it."""
    place = PLACE / name
    place.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
