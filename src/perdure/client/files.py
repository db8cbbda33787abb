"""Files of threads: written wholly or not at all, and read piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

PIECE = 256 * 1024


class WholeFile:
    """Written beside its place, and moved there when the block ends well. A file that was there is replaced."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(f".{self.path.name}.{uuid4().hex}.part")
        self._file = self._part.open("xb")

    def __enter__(self) -> Self:
        return self

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is None:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)


def pieces_of(path: Path) -> Iterator[bytes]:
    """Raises OSError when it is opened, which is when the first piece is asked for."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
