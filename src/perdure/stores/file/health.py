"""What `perdure doctor` reads of a file store: facts, without a judgement. Nothing is made or changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perdure.platform import boot_id, try_lock_file
from perdure.stores.file.folder import SUFFIX, file_name
from perdure.stores.file.index import INDEX
from perdure.stores.file.lines import VERSION
from perdure.stores.sqlite import health as sqlite_report
from perdure.stores.sqlite.health import LOCK_SECONDS, SqliteReport
from perdure.stores.sqlite.store import file_size

LONGEST_FIRST_LINE = 1024 * 1024
LOOKS = 3


class _First(msgspec.Struct):
    """Of a file, the part of its first line that every version has."""

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
    older: int
    """Files of an older version."""
    newer: tuple[str, ...]
    """Files of a newer perdure."""
    unreadable: tuple[str, ...]
    """Files whose first line says no thread."""
    shortened: tuple[str, ...]
    """Threads whose file is shorter than what was acknowledged."""
    is_locked: bool
    """Whether somebody was making the index all the time that one looked."""
    index: SqliteReport | None
    is_index_current: bool
    """Whether it is of this start of the machine; otherwise it is made anew from the files when the store is used."""


def look(folder: Path) -> FileReport:
    """Of a folder that is there. Raises OSError."""
    files = {path: path.stat().st_size for path in sorted(folder.glob(f"*{SUFFIX}"))}
    versions = {path: version for path in files if (version := _version(path)) is not None}
    index = folder / INDEX
    found = sqlite_report.look(index) if index.exists() else None
    is_readable = found is not None and found.contents is not None
    return FileReport(
        str(folder),
        VERSION,
        len(files),
        sum(files.values()),
        shutil.disk_usage(folder).free,
        os.access(folder, os.W_OK),
        older=sum(0 < version < VERSION for version in versions.values()),
        newer=tuple(path.name for path, version in versions.items() if version > VERSION),
        unreadable=tuple(path.name for path, version in versions.items() if not version),
        shortened=_shortened(folder) if is_readable else (),
        is_locked=_is_locked(folder / "index.lock"),
        index=found,
        is_index_current=is_readable and _boot(index) == (boot_id() or "unknown"),
    )


def _version(path: Path) -> int | None:
    """0 for a first line that says none; None for one that is not whole, which was never acknowledged."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_FIRST_LINE)
    except FileNotFoundError:  # removed meanwhile
        return None
    if not line.endswith(b"\n") and len(line) < LONGEST_FIRST_LINE:
        return None
    try:
        return msgspec.json.decode(line, type=_First).version
    except (msgspec.DecodeError, msgspec.ValidationError):
        return 0


def _shortened(folder: Path) -> tuple[str, ...]:
    found = _seem_shortened(folder)
    for _ in range(LOOKS):  # one that is written anew at this moment only seems so
        if found:
            time.sleep(0.05)
            found &= _seem_shortened(folder)
    return tuple(sorted(found))


def _seem_shortened(folder: Path) -> set[str]:
    with closing(sqlite_report.opened(folder / INDEX)) as db:
        known = db.execute("SELECT thread_id, size FROM threads WHERE size IS NOT NULL").fetchall()
    return {thread_id for thread_id, size in known if size > file_size(folder / file_name(thread_id))}


def _boot(index: Path) -> str | None:
    try:
        with closing(sqlite_report.opened(index)) as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'boot_id'").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:  # nobody has made one, or it may not be written: that is told by itself
        return False
    try:
        until = time.monotonic() + LOCK_SECONDS
        while not try_lock_file(fd):
            if time.monotonic() > until:
                return True
            time.sleep(0.01)
        return False
    finally:
        os.close(fd)
