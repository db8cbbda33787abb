"""Threads that move: out of a store into a file, and from a file into a store.

A thread is read while others may move it. What is taken is one moment of it: where it stood, and the commits up to
there. Only pruning changes these, so at the end it is looked whether one of them is gone; if so, it is tried again. All
of it is proved on the way: a file that is whole is a thread that is whole.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, TypeVar

import msgspec

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.integrity.commits import MISFITS, IntegrityProblem, ThreadIntegrity
from perdure.checkpoints.transfer.dump import DumpReader, DumpWriter, renamed_commits, renamed_standing
from perdure.errors import DamagedCheckpoint, NoThreadFile, PerdureError, ThreadBusy, ThreadNotFound
from perdure.names import check_identifier
from perdure.platform import fsync_file, fsync_folder
from perdure.records import CheckpointInfo, Commit, ThreadHeader, ThreadInfo
from perdure.store import Store

TRIES = 20
"""How often a thread is read that is pruned meanwhile."""
PAUSE_SECONDS = 0.005
"""Before it is read again; each time as much longer."""
PAGE_BYTES = 1 << 20
"""About as much is read at once."""
MOST_AT_ONCE = 256
"""Commits."""
T = TypeVar("T")


class ExportReport(msgspec.Struct, frozen=True):
    """What the file of an exported thread holds."""

    thread_id: str
    path: str
    number: int
    """The thread's last commit."""
    commits: int
    checkpoints: int
    size_bytes: int


class Written(msgspec.Struct, frozen=True):
    """A thread in a file, proved."""

    standing: ThreadHeader
    digest: str
    checkpoint_ids: Sequence[str]
    commits: int
    size: int


# ---------------------------------------------------------------- out of a store


async def export_thread(
    store: Store, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False
) -> ExportReport:
    """Write the thread to a file, which is there when all of it is.

    Raises FileExistsError, ThreadNotFound, DamagedCheckpoint, or ThreadBusy for one that is pruned again and again
    while it is read.
    """
    target = os.fspath(path)
    file = _opened_beside(target, overwrite=overwrite)
    try:
        with file:
            written = await write_thread(store, thread_id, file)
            await aside(fsync_file, file.fileno())
        await aside(_put_in_place, file.name, target, overwrite)
    finally:
        _remove(file.name)
    found = len(written.checkpoint_ids)
    return ExportReport(thread_id, target, written.standing.number, written.commits, found, written.size)


def _opened_beside(target: str, *, overwrite: bool) -> BinaryIO:
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "A thread is exported to a file, and this is a folder", target)
    if os.path.exists(target) and not overwrite:
        raise _file_exists(target)
    folder, name = os.path.split(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "There is no such folder to export a thread to", folder)
    return open(os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part"), "xb")


def _put_in_place(beside: str, target: str, overwrite: bool) -> None:
    if overwrite:
        os.replace(beside, target)
    else:
        try:
            os.link(beside, target)  # unlike a rename, this does not replace what came to be there meanwhile
        except FileExistsError:
            raise _file_exists(target) from None
        except OSError:  # a file system without links
            if os.path.exists(target):
                raise _file_exists(target) from None
            os.replace(beside, target)
    fsync_folder(os.path.dirname(os.path.abspath(target)))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # it is in its place


def _file_exists(path: str) -> FileExistsError:
    what = "It is there already, and was not overwritten: name another file, or pass overwrite=True"
    return FileExistsError(errno.EEXIST, what, path)


async def write_thread(store: Store, thread_id: str, file: BinaryIO) -> Written:
    """One moment of the thread. Raises like `export_thread`."""
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(attempt * PAUSE_SECONDS)
        standing = await standing_of(store, thread_id)
        if standing is None:
            raise ThreadNotFound(thread_id)
        before = await infos_of(store, thread_id)
        outcome: Written | PerdureError
        try:
            outcome = await _write_moment(store, standing, file)
        except PerdureError as error:
            outcome = error
        except MISFITS as error:
            outcome = DamagedCheckpoint("of its head", f"what is kept of it cannot be read: {error!r}", thread_id)
        if await is_as_before(store, standing, before):
            if isinstance(outcome, Written):
                return outcome
            raise outcome
    with storage_errors(store, "list threads"):
        threads = await store.threads(thread_id=thread_id)
    raise ThreadBusy(thread_id, threads[0].run_id if threads else None)


async def standing_of(store: Store, thread_id: str) -> ThreadHeader | None:
    with storage_errors(store, "read a thread"):
        return await store.standing(thread_id)


async def infos_of(store: Store, thread_id: str) -> Sequence[CheckpointInfo]:
    with storage_errors(store, "list checkpoints"):
        return await store.infos(thread_id=thread_id)


async def is_as_before(store: Store, standing: ThreadHeader, before: Sequence[CheckpointInfo]) -> bool:
    """Whether the commits that were read are those of the moment when the thread stood there. What was listed, it was
    listed after that."""
    if standing.head is not None and standing.head not in {one.number for one in before}:
        return False
    now = await standing_of(store, standing.thread_id)
    if now is None or now.first_seq != standing.first_seq or now.number < standing.number:
        return False
    after = await infos_of(store, standing.thread_id)
    return _names(before, standing.number) == _names(after, standing.number)


def _names(infos: Sequence[CheckpointInfo], number: int) -> list[tuple[int, str, str | None]]:
    return [(one.number, one.checkpoint_id, one.previous_checkpoint_id) for one in infos if one.number <= number]


async def _write_moment(store: Store, standing: ThreadHeader, file: BinaryIO) -> Written:
    integrity = ThreadIntegrity(standing)

    def begin() -> DumpWriter:
        file.seek(0)
        file.truncate()
        _refuse(integrity.check_standing(), standing.thread_id)
        return DumpWriter(file, standing)

    def write(page: Sequence[Commit]) -> None:
        for commit in page:
            _refuse(integrity.add(commit), standing.thread_id)
            writer.add(commit)

    def end() -> str:
        _refuse(integrity.end(), standing.thread_id)
        return writer.end()

    writer = await aside(begin)
    pages = CommitPages(store, standing)
    while page := await pages.next():
        await aside(write, page)
    digest = await aside(end)
    return Written(standing, digest, [*integrity.checkpoints.values()], writer.count, writer.size)


def _refuse(problems: Iterable[IntegrityProblem], thread_id: str) -> None:
    for one in problems:
        raise DamagedCheckpoint(one.checkpoint_id or "of its head", one.reason, thread_id)


class CommitPages:
    """The commits up to where a thread stands, some at a time: by their size, so that they fit into memory."""

    def __init__(self, store: Store, standing: ThreadHeader) -> None:
        self._store = store
        self._standing = standing
        self._after = 0
        self._limit = 8

    async def next(self) -> Sequence[Commit]:
        """Empty when there are no more."""
        with storage_errors(self._store, "read commits"):
            found = await self._store.commits(self._standing.thread_id, after=self._after, limit=self._limit)
        page = [one for one in found if one.number <= self._standing.number]
        if page:
            self._after = page[-1].number
            size = sum(map(_size, page))
            fitting = max(1, len(page) * PAGE_BYTES // max(size, 1))
            self._limit = min(fitting, 4 * self._limit, MOST_AT_ONCE)
        return page


def _size(commit: Commit) -> int:
    body = 0 if commit.events is None else len(commit.events.body)
    return len(commit.root or b"") + body + sum(map(len, commit.chunks.values()))


async def aside(work: Callable[..., T], *given: object) -> T:
    """Not in the event loop, which others need; and to its end, since a file must not be closed under it."""
    result, cancelled = await await_uncancelled(asyncio.to_thread(work, *given))
    if cancelled is not None:
        raise cancelled
    return result


# ---------------------------------------------------------------- into a store


async def import_thread(store: Store, path: str | os.PathLike[str], *, thread_id: str | None = None) -> ThreadInfo:
    """Keep the thread of a file, all of it or nothing.

    Raises NoThreadFile, NewerFormat, or ThreadExists.
    """
    check_identifier("thread_id", thread_id)
    name = os.fspath(path)
    with _opened(name) as file:
        written = await aside(check_file, file, name)
        standing = await add_thread(store, file, name, written, thread_id)
    with storage_errors(store, "list threads"):
        threads = await store.threads(thread_id=standing.thread_id)
    if not threads:
        raise ThreadNotFound(standing.thread_id)  # deleted as soon as it was there
    return threads[0]


def _opened(name: str) -> BinaryIO:
    if os.path.isdir(name):
        raise NoThreadFile(name, "it is a folder")
    try:
        return open(name, "rb")
    except FileNotFoundError:
        raise NoThreadFile(name, "there is no such file") from None
    except OSError as error:
        raise NoThreadFile(name, f"it cannot be opened ({error.strerror or error})") from error


def check_file(file: BinaryIO, name: str) -> Written:
    """Look at all of it. Raises NoThreadFile or NewerFormat."""
    reader = DumpReader(file, name)
    integrity = ThreadIntegrity(reader.standing)
    count = 0
    for one in integrity.check_standing():
        raise reader.wrong(one.reason)
    for commit in reader.commits():
        count += 1
        for one in integrity.add(commit):
            raise reader.wrong(one.reason)
    for one in integrity.end():
        raise NoThreadFile(name, f"its lines do not fit together: {one.reason}")
    return Written(reader.standing, reader.digest, [*integrity.checkpoints.values()], count, file.tell())


async def add_thread(
    store: Store, file: BinaryIO, name: str, written: Written, thread_id: str | None = None
) -> ThreadHeader:
    """Put what was written and proved into the store. Under another id its checkpoints get other ids, too."""
    reader = DumpReader(file, name)
    standing, commits = reader.standing, _proved_again(reader, name, written)
    if thread_id is not None and thread_id != standing.thread_id:
        standing = renamed_standing(standing, thread_id)
        commits = renamed_commits(commits, thread_id, written.checkpoint_ids)
    with storage_errors(store, "add a thread"):
        _, cancelled = await await_uncancelled(
            store.add_thread(standing, commits)
        )  # it reads a file that is closed then
    if cancelled is not None:
        raise cancelled
    return standing


def _proved_again(reader: DumpReader, name: str, written: Written) -> Iterable[Commit]:
    """The file may have been changed since it was looked at; then the store keeps nothing of it."""
    yield from reader.commits()
    if reader.digest != written.digest:
        raise NoThreadFile(name, "it was changed while it was imported")
