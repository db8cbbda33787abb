"""Threads in files: each locked while it is used, and the index in step with it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar
from weakref import finalize

import msgspec

from perdure.errors import DamagedCheckpoint, DamagedStore, PerdureError, StorageFailed
from perdure.log import get_logger
from perdure.stores.disk import Disk, FileLocked, locked_for_long
from perdure.stores.file.folder import ThreadFile, ThreadFiles
from perdure.stores.file.index import FileIndex
from perdure.stores.file.lines import FileCommitLine, FileThreadLine, Line, NotALine
from perdure.stores.sqlite.indexed import IndexedStore
from perdure.stores.sqlite.rows import Payload
from perdure.stores.sqlite.tables import Tables

logger = get_logger("stores")
LOCK_POLL_SECONDS = 0.01
READ_TIMES = 4
"""How often something is read before its file is locked for it, and it may be called damaged."""
T = TypeVar("T")


class FileThreads(IndexedStore):
    """What the parts of a file store have in common."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        self._busy_seconds = busy_seconds
        self.path = Path(path).absolute()  # the program may change its folder
        self._files = ThreadFiles(self.path, disk or Disk(syncs=fsync))
        self._index = FileIndex(self._files, busy_seconds)
        super().__init__("perdure-files", self._index)
        self._end_of_files = finalize(self, self._files.close)
        self._end_of_files.atexit = False  # the system closes them

    def _payload(self, thread_id: str, payload: Payload) -> bytes:
        """Empty for what is not there any more, or is not what was written."""
        if payload.place is None or payload.size is None:
            return b""
        try:
            line = self._files.read(thread_id, payload.place, payload.size)
        except (NotALine, FileNotFoundError):
            return b""
        if not isinstance(line, FileCommitLine) or line.number != payload.number:
            return b""
        return bytes(line.body)

    async def _with_file(self, thread_id: str, work: Callable[[ThreadFile], T]) -> T:
        return await self._patiently(lambda: self._thread.do(lambda: self._locked(thread_id, work)))

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """A file that another process has locked is waited for here, not in the store's own thread: it may have been
        stopped, and others are not to wait for it."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return await attempt()
            except FileLocked as error:
                if time.monotonic() >= until:
                    raise locked_for_long(error, self._busy_seconds) from error
            await asyncio.sleep(LOCK_POLL_SECONDS)

    def _locked(self, thread_id: str, work: Callable[[ThreadFile], T]) -> T:
        """With the thread's file locked, and the index in step with it."""
        return self._guarded(lambda: self._locked_once(thread_id, work))

    def _locked_once(self, thread_id: str, work: Callable[[ThreadFile], T]) -> T:
        while True:
            self._index.make_ready()
            with self._files.locked(thread_id) as file:
                if not self._index.is_current:  # made anew while this one waited: other owners, other fences
                    continue
                try:
                    self._index.catch_up(file)
                    return work(file)
                except PerdureError:
                    self._remove_if_new(file)
                    raise

    def _guarded(self, work: Callable[[], T]) -> T:
        """An index that turns out to be damaged is made anew from the files, once; then the work is tried again."""
        try:
            try:
                return work()
            except DamagedStore as error:
                if error.path != str(self._index.path):
                    raise
                logger.warning("the index of %s is damaged, and made anew: %s", self.path, error)
                self._index.make_ready(is_damaged=True)
                return work()
        except OSError as error:
            raise StorageFailed("FileStore", f"use {str(self.path)!r}", str(error)) from error

    async def _do(self, work: Callable[[Tables], T], *, writes: bool = True, syncs: bool = True) -> T:
        if writes:
            return await self._thread.do(lambda: self._guarded(lambda: self._index.transact(work)))
        return await self._thread.do(lambda: self._guarded(lambda: self._read(work)))

    def _read(self, work: Callable[[Tables], T]) -> T:
        """Places and lines are not read in one step: where they do not fit, a file may have been written anew."""
        thread_id = None
        for _ in range(READ_TIMES):
            self._index.make_ready()
            try:
                return self._index.transact(work, writes=False)
            except DamagedCheckpoint as error:
                thread_id = error.thread_id
                self._index.settle()
        if thread_id is None or not self._files.path_of(thread_id).exists():
            return self._index.transact(work, writes=False)
        with self._files.locked_at_last(thread_id, self._busy_seconds) as file:  # now nobody writes it anew
            self._index.catch_up(file)
            return self._index.transact(work, writes=False)

    async def _list(self, work: Callable[[Tables], T]) -> T:
        def do() -> T:
            self._index.make_ready()
            self._index.settle()
            return self._read(work)

        return await self._patiently(lambda: self._thread.do(lambda: self._guarded(do)))

    def _append(self, file: ThreadFile, line: Line) -> None:
        place, size = file.append(line)
        self._tell_index(file, lambda tables: self._index.take_in(tables, file, place, size, line))

    def _say_version(self, file: ThreadFile) -> None:
        """In a file of an older format, before the first line that its perdure would not understand."""

        def first_line(tables: Tables) -> FileThreadLine:
            line = self._index.first_line(tables, file.thread_id)
            return msgspec.structs.replace(line, written=tables.written(file.thread_id))

        self._append(file, self._index.transact(first_line))

    def _tell_index(self, file: ThreadFile, work: Callable[[Tables], None]) -> None:
        """Once a line is on the disk it has happened, whatever becomes of the index."""
        try:
            self._index.transact(work)
        except PerdureError as error:
            logger.warning("thread %s: its index is behind its file, and follows later: %s", file.thread_id, error)

    async def close(self) -> None:
        await self._thread.do(self._files.close)
        await super().close()

    # ------------------------------------------------------------ written anew

    def _rewrite(self, file: ThreadFile, lines: Iterable[Line]) -> None:
        # Should this process die in between, the places in the index are wrong: so it is told before that they are.
        self._index.transact(lambda tables: tables.set_size(file.thread_id, None))
        self._files.rewrite(file, lines)
        self._catch_up_now(file.thread_id)

    def _catch_up_now(self, thread_id: str) -> None:
        """After the point of no return. Should another process have the file, it is read anew by whoever comes next."""
        try:
            with self._files.locked_at_last(thread_id, self._busy_seconds) as file:
                self._index.catch_up(file)
        except FileLocked:
            logger.warning("thread %s: its index follows later, another process has its file locked", thread_id)

    def _remove_if_new(self, file: ThreadFile) -> None:
        """A thread that never got anything leaves no file behind."""
        if file.is_open and file.size == 0:
            self._files.remove(file)
