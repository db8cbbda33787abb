"""The calls that a file store makes to a disk. A test replaces them by a disk that loses power."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from perdure.errors import StorageFailed
from perdure.platform import fsync_file, fsync_folder, try_lock_file, unlock_file


class FileLocked(Exception):
    """Another process has locked the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"another process has locked {str(path)!r}")


def locked_for_long(error: FileLocked, seconds: float) -> StorageFailed:
    reason = f"another process has held its lock for more than {seconds:g} seconds"
    return StorageFailed("FileStore", f"use {str(error.path)!r}", reason)


class Disk:
    """The real one. `syncs=False`: the system decides when data reaches the disk."""

    def __init__(self, *, syncs: bool = True) -> None:
        self.syncs = syncs

    def open(self, path: Path) -> int:
        """For reading and appending; created if it does not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)

    def append(self, fd: int, data: bytes) -> None:
        """Raises OSError if not all of it could be written."""
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, data[written:])

    def cut(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        if self.syncs:
            fsync_file(fd)

    def sync_folder(self, path: Path) -> None:
        if self.syncs:
            fsync_folder(path)

    def sync_all(self, folder: Path) -> None:
        """All files in the folder, and the folder."""
        if self.syncs and sys.platform == "linux":  # elsewhere `os.sync` does not wait
            os.sync()
        elif self.syncs:
            for path in folder.iterdir():
                if path.is_file():
                    fd = os.open(path, os.O_RDWR)
                    try:
                        self.sync(fd)
                    finally:
                        os.close(fd)
            self.sync_folder(folder)

    def make_folder(self, path: Path) -> None:
        """With its parents."""
        if not path.is_dir():
            self.make_folder(path.parent)
            path.mkdir(exist_ok=True)
            self.sync_folder(path.parent)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def read(self, fd: int, place: int, size: int) -> bytes:
        """Fewer bytes if the file ends before."""
        os.lseek(fd, place, os.SEEK_SET)  # appends do not use the position; Windows has no pread
        parts = []
        while size > 0 and (part := os.read(fd, size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read_line(self, fd: int, place: int) -> bytes:
        """Up to the end of the line, or of the file."""
        line = b""
        while (part := self.read(fd, place + len(line), max(4096, 2 * len(line)))) and b"\n" not in part:
            line += part
        return line + part[: part.find(b"\n") + 1]

    def is_same(self, fd: int, path: Path) -> bool:
        """Whether the path still leads to the file that was opened."""
        try:
            return os.path.samestat(os.fstat(fd), path.stat())
        except FileNotFoundError:
            return False

    def lock(self, fd: int, path: Path, seconds: float) -> None:
        """Raises FileLocked if another process holds the lock for longer: it may be stopped."""
        until = time.monotonic() + seconds
        while not try_lock_file(fd):
            if time.monotonic() > until:
                raise FileLocked(path)
            time.sleep(0.0005)

    def unlock(self, fd: int) -> None:
        unlock_file(fd)
