"""The facts that `perdure doctor` reads of a file store, without a judgement. Nothing is changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perdure.platform import boot_id
from perdure.stores.disk import Disk, FileLocked
from perdure.stores.file.folder import SUFFIX, file_name
from perdure.stores.file.index import INDEX
from perdure.stores.file.lines import VERSION
from perdure.stores.sqlite import health as sqlite_report
from perdure.stores.sqlite.health import LOCK_SECONDS, SqliteReport, file_size

MAX_FIRST_LINE_BYTES = 1024 * 1024
MAX_LOOKS = 3


class _FirstLine(msgspec.Struct):
    """The part of a file's first line that every version has."""

    thread_id: str
    version: int


@dataclass(frozen=True)
class FileReport:
    path: str
    known_version: int
    files: int
    file_bytes: int
    free_disk_bytes: int
    is_writable: bool
    newer: tuple[str, ...]
    """Files of another version of perdure."""
    unreadable: tuple[str, ...]
    """Files whose first line names no thread."""
    shortened: tuple[str, ...]
    """Threads whose file is shorter than what was acknowledged."""
    is_locked: bool
    """Whether another process held the lock of the index during the whole look."""
    index: SqliteReport | None
    is_index_current: bool
    """Whether it is of this start of the machine; otherwise the next use rebuilds it from the files."""


def look(folder: Path) -> FileReport:
    """Report on an existing folder. Raises OSError."""
    files = {path: path.stat().st_size for path in sorted(folder.glob(f"*{SUFFIX}"))}
    versions = {path: version for path in files if (version := _version(path)) is not None}
    index = folder / INDEX
    of_index = sqlite_report.look(index) if index.exists() else None
    is_readable = of_index is not None and of_index.contents is not None
    return FileReport(
        str(folder),
        VERSION,
        len(files),
        sum(files.values()),
        shutil.disk_usage(folder).free,
        os.access(folder, os.W_OK),
        newer=tuple(path.name for path, version in versions.items() if version not in (0, VERSION)),
        unreadable=tuple(path.name for path, version in versions.items() if not version),
        shortened=_shortened_files(folder) if is_readable else (),
        is_locked=_is_locked(folder / "index.lock"),
        index=of_index,
        is_index_current=is_readable and _boot(index) == (boot_id() or "unknown"),
    )


def _version(path: Path) -> int | None:
    """0 for a first line without one; None for a torn line, which was never acknowledged."""
    try:
        with path.open("rb") as file:
            line = file.readline(MAX_FIRST_LINE_BYTES)
    except FileNotFoundError:  # just removed
        return None
    if not line.endswith(b"\n") and len(line) < MAX_FIRST_LINE_BYTES:
        return None
    try:
        return msgspec.json.decode(line, type=_FirstLine).version
    except (msgspec.DecodeError, msgspec.ValidationError):
        return 0


def _shortened_files(folder: Path) -> tuple[str, ...]:
    shortened = _find_shortened(folder)
    for _ in range(MAX_LOOKS):  # a file that is being rewritten seems shortened only for a moment
        if shortened:
            time.sleep(0.05)
            shortened &= _find_shortened(folder)
    return tuple(sorted(shortened))


def _find_shortened(folder: Path) -> set[str]:
    with closing(sqlite_report.connect(folder / INDEX)) as db:
        rows = db.execute("SELECT thread_id, size FROM threads WHERE size IS NOT NULL").fetchall()
    return {thread_id for thread_id, size in rows if size > file_size(folder / file_name(thread_id))}


def _boot(index: Path) -> str | None:
    try:
        with closing(sqlite_report.connect(index)) as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'boot_id'").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:  # it does not exist, or may not be written, which the report shows by itself
        return False
    try:
        Disk().lock(fd, path, LOCK_SECONDS)
    except FileLocked:
        return True
    finally:
        os.close(fd)
    return False
