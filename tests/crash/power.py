"""A disk that remembers what was done to it: what a power cut leaves of it can be made again, for any moment.

What was synced is there. Of what was not, anything may be: all, nothing, or some of it in whatever order, with pages
of a file that were never written, and names that lead to files without content, or are missing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perdure.platform import unlock_file
from perdure.stores.disk import Disk
from perdure.testing import ProcessGone

SECTOR = 512


@dataclass(frozen=True)
class Operation:
    """One thing done to a file, known by a number that it keeps when it is renamed, or to a folder's names."""

    what: str
    """`append`, `cut`, `sync`; `create`, `replace`, `remove`, `sync_folder`; or `note`, which is none of the disk's."""
    file: int = 0
    place: int = 0
    """Where bytes go, or the size that is left."""
    data: bytes = b""
    name: str = ""
    old_name: str = ""
    note: str = ""


@dataclass(frozen=True)
class Moment:
    """How much was done, and what the index was then: that is no part of the disk under test."""

    done: int
    index: dict[str, bytes]


class RememberingDisk(Disk):
    """Everything happens for real, in a folder, and is remembered."""

    def __init__(self, *, syncs: bool = True) -> None:
        super().__init__(syncs=syncs)
        self.operations: list[Operation] = []
        self.moments: list[Moment] = []
        self._names: dict[str, int] = {}
        self._files: dict[int, int] = {}
        """By descriptor."""
        self._folder = Path()
        self.dies_after: int | None = None
        """With so many operations the process that uses it is gone: nothing that it still tries is done."""

    def die(self) -> None:
        """What a killed process leaves: its locks are free."""
        for fd in self._files:
            unlock_file(fd)
        self._files = {}

    def _live(self) -> None:
        if self.dies_after is not None and len(self.moments) >= self.dies_after:
            raise ProcessGone

    def lock(self, fd: int, path: Path, seconds: float) -> None:
        self._live()
        super().lock(fd, path, seconds)

    def note(self, line: str) -> None:
        """What else happened, in its place among the operations."""
        self.operations.append(Operation("note", note=line))
        if line.startswith("committed"):
            self._remember()

    def _did(self, operation: Operation) -> None:
        self.operations.append(operation)
        self._remember()

    def _remember(self) -> None:
        index = {path.name: path.read_bytes() for path in self._folder.glob("index.db*") if path.suffix != ".db-shm"}
        self.moments.append(Moment(len(self.operations), index))

    def open(self, path: Path) -> int:
        self._live()
        self._folder = path.parent
        fd = super().open(path)
        if path.name not in self._names:
            self._names[path.name] = len(self.operations) + 1
            self._did(Operation("create", self._names[path.name], name=path.name))
        self._files[fd] = self._names[path.name]
        return fd

    def append(self, fd: int, data: bytes) -> None:
        self._live()
        place = os.fstat(fd).st_size
        super().append(fd, data)
        self._did(Operation("append", self._files[fd], place, data))

    def cut(self, fd: int, size: int) -> None:
        self._live()
        super().cut(fd, size)
        self._did(Operation("cut", self._files[fd], size))

    def sync(self, fd: int) -> None:  # no wait: the power of this machine stays on
        self._live()
        if self.syncs:
            self._did(Operation("sync", self._files[fd]))

    def sync_folder(self, path: Path) -> None:
        self._live()
        if self.syncs and path == self._folder:
            self._did(Operation("sync_folder"))

    def replace(self, source: Path, target: Path) -> None:
        self._live()
        super().replace(source, target)
        self._names[target.name] = self._names.pop(source.name)
        self._did(Operation("replace", self._names[target.name], name=target.name, old_name=source.name))

    def remove(self, path: Path) -> None:
        self._live()
        super().remove(path)
        if self._names.pop(path.name, None) is not None:
            self._did(Operation("remove", name=path.name))


# ---------------------------------------------------------------- what a power cut leaves


@dataclass
class Left:
    """How much survives of what was not synced."""

    chance: random.Random
    share: float
    """Of unsynced operations, from 0 to 1; in between they may be torn, too."""
    files: dict[int, bytearray] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def survives(self) -> bool:
        return self.chance.random() < self.share

    def is_torn(self) -> bool:
        return 0 < self.share < 1 and self.chance.random() < 0.75


def is_synced(operations: Iterable[Operation]) -> bool:
    """Whether a power cut can take nothing of it."""
    return disk_after(operations, random.Random(0), 0.0) == disk_after(operations, random.Random(0), 1.0)


def disk_after(operations: Iterable[Operation], chance: random.Random, share: float) -> dict[str, bytes]:
    """The files, by name, after a power cut that follows these operations."""
    left = Left(chance, share)
    unsynced: list[Operation] = []
    for operation in operations:
        if operation.what == "sync":
            synced = [
                earlier for earlier in unsynced if earlier.file == operation.file and earlier.what in ("append", "cut")
            ]
        elif operation.what == "sync_folder":
            synced = [earlier for earlier in unsynced if earlier.what in ("create", "replace", "remove")]
        else:
            unsynced.append(operation)
            continue
        _apply(left, synced)
        unsynced = [earlier for earlier in unsynced if earlier not in synced]
    for operation in unsynced:
        if left.survives():
            _apply(left, [_torn(operation, left) if left.is_torn() else operation])
    return {name: bytes(left.files.get(file, b"")) for name, file in left.names.items()}


def _apply(left: Left, operations: Iterable[Operation]) -> None:
    for operation in operations:
        content = left.files.setdefault(operation.file, bytearray())
        if operation.what == "append":
            content.extend(b"\0" * (operation.place - len(content)))  # what was to be there never came
            content[operation.place : operation.place + len(operation.data)] = operation.data
        elif operation.what == "cut":
            del content[operation.place :]
        elif operation.what in ("create", "replace"):
            left.names.pop(operation.old_name, None)
            left.names[operation.name] = operation.file
        elif operation.what == "remove":
            left.names.pop(operation.name, None)


def _torn(operation: Operation, left: Left) -> Operation:
    """Only the beginning was written, or some sectors were not."""
    if operation.what != "append":
        return operation
    data = bytearray(operation.data)
    if left.chance.random() < 0.5:
        del data[left.chance.randrange(len(data)) :]
    else:
        for start in _sectors(operation):
            if left.chance.random() < 0.5:
                end = min(start + SECTOR, len(data))
                data[max(start, 0) : end] = b"\0" * (end - max(start, 0))
    return Operation("append", operation.file, operation.place, bytes(data))


def _sectors(operation: Operation) -> Iterator[int]:
    """Where they begin, counted from the first byte of the data."""
    yield from range(-(operation.place % SECTOR), len(operation.data), SECTOR)
