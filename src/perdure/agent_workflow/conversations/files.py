"""Sessions in a folder: one file of JSON lines for each, locked during reads and appends."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from perdure.agent_workflow.conversations.encryption import Sealing, SessionEncryption
from perdure.agent_workflow.conversations.log import (
    Line,
    NotASessionLine,
    SessionLine,
    SessionLog,
    from_bytes,
    is_torn,
)
from perdure.agent_workflow.conversations.store import LoggedSessionStore
from perdure.errors import DamagedStore, NewerFormat, StorageFailed
from perdure.log import get_logger
from perdure.platform import fsync_file, fsync_folder, try_lock_file

SUFFIX = ".jsonl"
PATIENCE_SECONDS = 30.0
"""How long a call waits for the lock of another process, which may be stopped."""
KNOWN_SESSIONS = 64
"""How many sessions are cached, so that only their new lines are read."""
logger = get_logger("agent_workflow")


def file_name(session_id: str) -> str:
    """A name that every file system accepts, and that no other session has, even if case is ignored."""
    readable = re.sub(r"[^a-z0-9_-]+", "-", session_id.lower()).strip("-")[:60]
    return f"{readable or 'session'}~{sha256(session_id.encode()).hexdigest()[:16]}{SUFFIX}"


@dataclass
class _KnownFile:
    """The lines that were read of a file."""

    log: SessionLog
    end: int = 0
    """The offset after the last complete line."""
    lines: int = 0
    is_listed: bool = False
    """Whether the folder was synced since the file was created."""


class SessionFile:
    """One session's file, locked: no other thread or process appends to it."""

    def __init__(self, path: Path, fd: int, known: _KnownFile) -> None:
        self._path = path
        self._fd = fd
        self._known = known

    @property
    def log(self) -> SessionLog:
        return self._known.log

    def catch_up(self) -> None:
        """Read new lines. Raises DamagedStore, with the line, NewerFormat, MissingKey and PlaintextRefused."""
        known, size = self._known, os.fstat(self._fd).st_size
        first = _read_line(self._fd, 0) if known.end else b""
        if known.end > size or (known.end and known.log.created.encode() not in first):  # a new session
            self._known = known = _KnownFile(SessionLog(known.log.session_id, known.log.seal))
        for data in BytesIO(_read(self._fd, known.end, size - known.end)):
            number = known.lines + 1
            try:
                self._take(from_bytes(data, str(self._path)), len(data))
            except NotASessionLine as problem:
                if known.end + len(data) >= size and is_torn(data):
                    return
                raise DamagedStore(str(self._path), f"line {number} is damaged: {problem}") from problem

    def _take(self, line: Line, size: int) -> None:
        self._known.log.add(line)
        self._known.end += size
        self._known.lines += 1

    @property
    def known_file(self) -> _KnownFile:
        return self._known

    def append(self, line: Line) -> None:
        """The line is durable when this returns; if it raises, the log does not have it."""
        data = self.log.to_stored(line)
        try:
            if os.fstat(self._fd).st_size > self._known.end:
                os.ftruncate(self._fd, self._known.end)  # an incomplete line was never acknowledged
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            self.sync()
        except OSError as error:
            raise StorageFailed("JsonSessionStore", f"append to {str(self._path)!r}", str(error)) from error
        self._take(from_bytes(data, str(self._path)), len(data))

    def sync(self) -> None:
        """Sync the file, including lines that another process appended without a sync."""
        fsync_file(self._fd)
        if not self._known.is_listed:
            fsync_folder(self._path.parent)
            self._known.is_listed = True


class SessionFiles:
    """All sessions of a folder. Many threads may use one object."""

    def __init__(self, folder: str | os.PathLike[str], encryption: SessionEncryption | None = None) -> None:
        self.folder = Path(folder)
        self.sealing = Sealing(encryption, str(self.folder))
        self._remembered: OrderedDict[str, _KnownFile] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def open(self, session_id: str, *, writes: bool) -> Iterator[SessionFile | None]:
        """None if no file exists and `writes` is false."""
        path = self.folder / file_name(session_id)
        self.sealing.check(self._first_lines())
        if writes:
            _make_folder(self.folder)
        fd = _open_locked(path, creates=writes)
        if fd is None:
            yield None
            return
        try:
            with self._lock:
                known = self._remembered.pop(session_id, None) or self._new_file(session_id)
            file = SessionFile(path, fd, known)
            file.catch_up()
            yield file
            with self._lock:  # after an error the file is read again
                self._remembered[session_id] = file.known_file
                while len(self._remembered) > KNOWN_SESSIONS:
                    self._remembered.popitem(last=False)
        finally:
            os.close(fd)  # releases the lock

    def _new_file(self, session_id: str) -> _KnownFile:
        return _KnownFile(SessionLog(session_id, self.sealing.seal_for(session_id)))

    def remove(self, session_id: str) -> None:
        self.sealing.check(self._first_lines())
        path = self.folder / file_name(session_id)
        fd = _open_locked(path, creates=False)
        if fd is None:
            return
        try:
            path.unlink(missing_ok=True)
            fsync_folder(self.folder)
        finally:
            os.close(fd)

    def session_ids(self) -> list[str]:
        """From the first lines of the files. An unreadable file is left out and logged."""
        self.sealing.check(self._first_lines())
        return [line.session_id for line in self._first_lines(logs=True)]

    def _first_lines(self, *, logs: bool = False) -> Iterator[SessionLine]:
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                with path.open("rb") as file:
                    data = file.readline()
            except FileNotFoundError:
                continue  # it was deleted meanwhile
            try:
                line = from_bytes(data, str(path))
            except (NotASessionLine, NewerFormat) as problem:
                if logs and (isinstance(problem, NewerFormat) or not is_torn(data)):
                    logger.warning("line 1 of %s cannot be read: %s", path, problem)
                continue
            if isinstance(line, SessionLine):
                yield line


def _open_locked(path: Path, *, creates: bool) -> int | None:
    flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | (os.O_CREAT if creates else 0)
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fd = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if creates:
                raise
            return None
        try:
            while not try_lock_file(fd):
                if time.monotonic() > until:
                    reason = f"another process has held its lock for more than {PATIENCE_SECONDS:g} seconds"
                    raise StorageFailed("JsonSessionStore", f"use {str(path)!r}", reason)
                time.sleep(0.0005)
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was deleted meanwhile


def _make_folder(path: Path) -> None:
    """With missing parent folders."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(exist_ok=True)
        fsync_folder(path.parent)


def _read(fd: int, offset: int, size: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    parts = []
    while size > 0 and (part := os.read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _read_line(fd: int, offset: int) -> bytes:
    return _read(fd, offset, 4096).partition(b"\n")[0]


class JsonSessionStore(LoggedSessionStore):
    """Stores conversations in a folder, one file of JSON lines for each session, for any number of processes of one
    machine. The first entry creates the folder.

    With `encryption=AesGcm(key)`, only a process with the key can read messages and the state of agents.
    """

    def __init__(self, root_directory: str | os.PathLike[str], *, encryption: SessionEncryption | None = None) -> None:
        super().__init__(SessionFiles(root_directory, encryption), blocks=True)
