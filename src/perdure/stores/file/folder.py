"""The files of a file store, one for each thread: named safely, and locked during a check and an append."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from perdure.errors import DamagedStore, PerdureError
from perdure.stores.disk import Disk
from perdure.stores.file.lines import START, VERSION, FileCommitLine, FileThreadLine, Line, NotALine, from_line, to_line
from perdure.stores.sqlite.health import file_size

SUFFIX, BESIDE = ".jsonl", ".new"
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
"""Names of devices on Windows, with any suffix."""
_SAFE = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}")
PATIENCE_SECONDS = 0.005
"""How long the worker thread waits for a lock: all other threads of the store wait, too."""
MAX_LINES = 200
"""Lines in one write when a file is rewritten."""
MAX_OPEN_FILES = 64
"""Files that stay open, so that the next commit need not open its file again."""


def file_name(thread_id: str) -> str:
    """A name that any system accepts, unique also where case does not count, and never a path."""
    if _SAFE.fullmatch(thread_id) and not thread_id.endswith(".") and not _DEVICE.match(thread_id):
        return thread_id + SUFFIX
    readable = re.sub(r"[^a-z0-9_.-]+", "-", thread_id.lower()).strip(".-")[:60]
    return f"{readable or 'thread'}~{sha256(thread_id.encode()).hexdigest()[:32]}{SUFFIX}"


class LockedFile:
    """One thread's file, locked: no other thread or process appends to it."""

    def __init__(self, thread_id: str, path: Path, fd: int, disk: Disk, to_cut: dict[str, int]) -> None:
        self.thread_id = thread_id
        self.path = path
        self._fd = fd
        self._disk = disk
        self._to_cut = to_cut

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def is_open(self) -> bool:
        """False once the file was removed or rewritten."""
        return self._disk.is_same(self._fd, self.path)

    def append(self, line: Line) -> tuple[int, int]:
        """Append the line and sync it. Its place and size. If this raises, nothing was appended.

        One line at a time: after a power cut only the last line can be torn.
        """
        before = place = self.size
        data = to_line(self.thread_id, line)
        try:
            if not before:
                first = to_line(self.thread_id, FileThreadLine(self.thread_id, VERSION))
                self._disk.append(self._fd, first)
                self._disk.sync(self._fd)
                place = len(first)
            self._disk.append(self._fd, data)
            self._disk.sync(self._fd)
            if not before:
                self._disk.sync_folder(self.path.parent)
        except BaseException as error:
            try:
                self.cut(before)
            except OSError as second:
                error.add_note(f"While it was undone: {second!r}")
                self._to_cut[self.thread_id] = before
            raise
        return place, len(data)

    def sync(self) -> None:
        """Sync lines of another process, which may have died before it did."""
        self._disk.sync(self._fd)
        self._disk.sync_folder(self.path.parent)

    def cut(self, size: int) -> None:
        """Cut off what was never acknowledged."""
        self._disk.cut(self._fd, size)
        self._disk.sync(self._fd)

    def scan(self, start: int, *, may_cut: bool = False) -> Iterator[tuple[int, int, Line]]:
        """Place, size and content of each line from there on. Raises DamagedStore for a line that was changed.

        `may_cut`: cut off a torn last line, which was never acknowledged.
        """
        place, size = start, self.size
        while place < size:
            data = self._disk.read_line(self._fd, place)
            try:
                line = from_line(self.thread_id, data)
            except NotALine as problem:
                if may_cut and place + len(data) >= size and is_torn(data):
                    self.cut(place)
                    return
                reason = f"the line at byte {place}, of thread {self.thread_id!r}, is damaged: {problem}"
                raise DamagedStore(str(self.path), reason) from problem
            yield place, len(data), line
            place += len(data)


class ThreadFiles:
    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self.disk = disk
        self._open: OrderedDict[str, int] = OrderedDict()
        self._process_id = os.getpid()
        self.to_cut: dict[str, int] = {}
        """Files that this store could not cut after a failed write, and where they should end."""

    def path_of(self, thread_id: str) -> Path:
        return self.folder / file_name(thread_id)

    @contextmanager
    def lock(self, thread_id: str, seconds: float = PATIENCE_SECONDS) -> Iterator[LockedFile]:
        """Created if it is new. Raises FileLocked if another process has it locked for longer."""
        path = self.path_of(thread_id)
        while True:
            fd = self._fd(thread_id, path)
            self.disk.lock(fd, path, seconds)
            if self.disk.is_same(fd, path):
                break
            self._close(thread_id)  # another process has rewritten or removed it
        try:
            yield LockedFile(thread_id, path, fd, self.disk, self.to_cut)
        finally:
            if self._open.get(thread_id) == fd:
                self.disk.unlock(fd)

    def _fd(self, thread_id: str, path: Path) -> int:
        if self._process_id != os.getpid():
            self.close()  # a forked child shares open files with its parent, and with them their locks
            self._process_id = os.getpid()
        fd = self._open.pop(thread_id, None)
        if fd is None:
            fd = self.disk.open(path)
            if len(self._open) >= MAX_OPEN_FILES:
                _, oldest = self._open.popitem(last=False)
                os.close(oldest)
        self._open[thread_id] = fd
        return fd

    def _close(self, thread_id: str) -> None:
        os.close(self._open.pop(thread_id))

    def read_body(self, thread_id: str, number: int, place: int | None, size: int | None) -> bytes:
        """The payload of the commit whose line is there. Empty if no such line is."""
        path = self.path_of(thread_id)
        try:
            if place is None or size is None or not path.exists():
                return b""
            fd = self._fd(thread_id, path)
            if not self.disk.is_same(fd, path):
                self._close(thread_id)
                return self.read_body(thread_id, number, place, size)
            line = from_line(thread_id, self.disk.read(fd, place, size))
        except (NotALine, FileNotFoundError):
            return b""
        return bytes(line.body) if isinstance(line, FileCommitLine) and line.number == number else b""

    def thread_ids(self) -> Iterator[str]:
        """Of all files whose first line names a thread."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                with path.open("rb") as file:
                    thread_id = parse_thread_id(file.readline())
            except OSError:
                continue
            if thread_id is not None and self.path_of(thread_id) == path:
                yield thread_id

    def list_foreign(self) -> list[str]:
        """Names of files that are not a thread's. An empty file is of a thread that was only claimed."""
        names = {self.path_of(thread_id).name for thread_id in self.thread_ids()}
        others = [path for path in sorted(self.folder.glob(f"*{SUFFIX}")) if path.name not in names]
        return [path.name for path in others if path.stat().st_size]

    def total_size(self) -> int:
        return sum(map(file_size, self.folder.rglob("*")))

    def rewrite(self, file: LockedFile, lines: Iterable[Line]) -> None:
        """Replace the whole file by these lines, atomically."""
        beside = file.path.with_suffix(BESIDE)  # one for each thread: it overwrites what a killed process left
        fd = self.disk.open(beside)
        try:
            self.disk.cut(fd, 0)
            part: list[bytes] = []
            for line in lines:
                part.append(to_line(file.thread_id, line))
                if len(part) >= MAX_LINES:
                    self.disk.append(fd, b"".join(part))
                    part = []
            self.disk.append(fd, b"".join(part))
            self.disk.sync(fd)
        except BaseException:
            self.disk.remove(beside)
            raise
        finally:
            os.close(fd)
        self.disk.replace(beside, file.path)
        self.disk.sync_folder(self.folder)
        self._close(file.thread_id)

    def remove(self, file: LockedFile) -> None:
        self.disk.remove(file.path)
        self.disk.remove(file.path.with_suffix(BESIDE))
        self.disk.sync_folder(self.folder)
        self._close(file.thread_id)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def is_torn(data: bytes) -> bool:
    """Whether it could be a line that was not written whole: cut off, or with blocks that were never written."""
    has_start = all(byte in (0, expected) for byte, expected in zip(data, START, strict=False))
    return has_start and (not data.endswith(b"\n") or b"\0" in data)


def parse_thread_id(first_line: bytes) -> str | None:
    try:
        content = msgspec.json.decode(first_line)
        line = from_line(content["thread_id"], first_line)
    except (NotALine, PerdureError, ValueError, KeyError, TypeError):  # ValueError: not valid JSON or UTF-8
        return None
    return line.thread_id if isinstance(line, FileThreadLine) else None
