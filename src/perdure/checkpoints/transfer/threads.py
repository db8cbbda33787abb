"""Export of a thread from a store to a file, and import from a file into a store.

Others may move a thread during its export. The file holds one moment of it: its header, and the commits up to there.
Only pruning changes these, so the export checks at its end that none is missing, and otherwise starts again. It
verifies every commit: a complete file is an undamaged thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import BinaryIO, TypeVar

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import new_checkpoint_id
from perdure.checkpoints.thread import size_of
from perdure.checkpoints.transfer.dump import DumpReader, DumpWriter
from perdure.checkpoints.transfer.integrity import ROW_ERRORS, ThreadIntegrity
from perdure.clock import complete
from perdure.errors import DamagedCheckpoint, NoThreadFile, PerdureError, ThreadBusy, ThreadNotFound
from perdure.names import check_identifier
from perdure.platform import fsync_file, fsync_folder
from perdure.records import CheckpointInfo, Commit, Damage, ThreadHeader, ThreadInfo
from perdure.store import Store, rename_commit, rename_header

MAX_TRIES = 20
"""How often an export reads a thread that is pruned meanwhile."""
PAUSE_SECONDS = 0.005
"""The pause before the second try; it grows by as much with each try."""
PAGE_BYTES = 1 << 20
"""About how much one read fetches."""
MAX_PAGE_COMMITS = 256
T = TypeVar("T")


class ExportReport(msgspec.Struct, frozen=True):
    """The content of an exported thread's file."""

    thread_id: str
    path: str
    number: int
    """The thread's last commit."""
    commits: int
    checkpoints: int
    size_bytes: int


class ThreadFile(msgspec.Struct, frozen=True):
    """A verified thread in a file."""

    header: ThreadHeader
    digest: str
    checkpoint_ids: Sequence[str]
    commits: int
    size: int


async def export_thread(
    store: Store, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False
) -> ExportReport:
    """`StoreCheckpointStorage.export_thread`."""
    target = os.fspath(path)
    file = _open_beside(target, overwrite=overwrite)
    try:
        with file:
            written = await write_thread(store, thread_id, file)
            await run_in_thread(fsync_file, file.fileno())
        await run_in_thread(_put_in_place, file.name, target, overwrite)
    finally:
        with suppress(FileNotFoundError):  # it was renamed to the target
            os.unlink(file.name)
    count = len(written.checkpoint_ids)
    return ExportReport(thread_id, target, written.header.number, written.commits, count, written.size)


def _open_beside(target: str, *, overwrite: bool) -> BinaryIO:
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "The target of an export is a file, but this is a folder", target)
    if os.path.exists(target) and not overwrite:
        raise _file_exists(target)
    folder, name = os.path.split(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "The folder of the exported file does not exist", folder)
    return open(os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part"), "xb")


def _put_in_place(beside: str, target: str, overwrite: bool) -> None:
    if overwrite:
        os.replace(beside, target)
    else:
        try:
            os.link(beside, target)  # unlike a rename, this does not replace a new file
        except FileExistsError:
            raise _file_exists(target) from None
        except OSError:  # a file system without links
            if os.path.exists(target):
                raise _file_exists(target) from None
            os.replace(beside, target)
    fsync_folder(os.path.dirname(os.path.abspath(target)))


def _file_exists(path: str) -> FileExistsError:
    what = "The file exists and was not overwritten: name another file, or pass overwrite=True"
    return FileExistsError(errno.EEXIST, what, path)


async def write_thread(store: Store, thread_id: str, file: BinaryIO) -> ThreadFile:
    """Write one moment of the thread. Raises like `export_thread`."""
    for attempt in range(MAX_TRIES):
        if attempt:
            await asyncio.sleep(attempt * PAUSE_SECONDS)
        header = await read_header(store, thread_id)
        if header is None:
            raise ThreadNotFound(thread_id)
        before = await list_infos(store, thread_id)
        outcome: ThreadFile | PerdureError
        try:
            outcome = await _write_moment(store, header, file)
        except PerdureError as error:
            outcome = error
        except ROW_ERRORS as error:
            outcome = DamagedCheckpoint("of its head", f"its commits cannot be read: {error!r}", thread_id)
        if await is_unchanged(store, header, before):
            if isinstance(outcome, ThreadFile):
                return outcome
            raise outcome
    with storage_errors(store, "list threads"):
        threads = await store.threads(thread_id=thread_id)
    raise ThreadBusy(thread_id, threads[0].run_id if threads else None)


async def read_header(store: Store, thread_id: str) -> ThreadHeader | None:
    with storage_errors(store, "read a thread"):
        return await store.thread_header(thread_id)


async def list_infos(store: Store, thread_id: str) -> Sequence[CheckpointInfo]:
    with storage_errors(store, "list checkpoints"):
        return await store.infos(thread_id=thread_id)


async def is_unchanged(store: Store, header: ThreadHeader, before: Sequence[CheckpointInfo]) -> bool:
    """Whether the commits up to this header are still the same. `before` was listed after the header was read."""
    if header.head is not None and header.head not in {info.number for info in before}:
        return False
    now = await read_header(store, header.thread_id)
    if now is None or now.first_seq != header.first_seq or now.number < header.number:
        return False
    after = await list_infos(store, header.thread_id)
    return _ids(before, header.number) == _ids(after, header.number)


def _ids(infos: Sequence[CheckpointInfo], number: int) -> list[tuple[int, str, str | None]]:
    return [(info.number, info.checkpoint_id, info.previous_checkpoint_id) for info in infos if info.number <= number]


async def _write_moment(store: Store, header: ThreadHeader, file: BinaryIO) -> ThreadFile:
    integrity = ThreadIntegrity(header)

    def start() -> DumpWriter:
        file.seek(0)
        file.truncate()
        _raise_first(integrity.check_header())
        return DumpWriter(file, header)

    def write(page: Sequence[Commit]) -> None:
        for commit in page:
            _raise_first(integrity.add(commit))
            writer.add(commit)

    def end() -> str:
        _raise_first(integrity.end())
        return writer.end()

    writer = await run_in_thread(start)
    async for page in read_commits(store, header):
        await run_in_thread(write, page)
    digest = await run_in_thread(end)
    return ThreadFile(header, digest, [*integrity.checkpoints.values()], writer.count, writer.size)


def _raise_first(damages: Iterable[Damage]) -> None:
    for damage in damages:
        raise DamagedCheckpoint(damage.checkpoint_id or "of its head", damage.reason, damage.thread_id)


async def read_commits(
    store: Store, header: ThreadHeader, on_damage: Callable[[DamagedCheckpoint], None] | None = None
) -> AsyncIterator[Sequence[Commit]]:
    """The commits of a thread up to its header, in pages of limited size.

    `on_damage` gets the error of each commit that the store cannot read; without it the error is raised.
    """
    after, limit = 0, 8
    while after < header.number:
        try:
            with storage_errors(store, "read commits"):
                commits = await store.commits(header.thread_id, after=after, limit=limit)
        except DamagedCheckpoint as error:
            if on_damage is None:
                raise
            if limit == 1:
                on_damage(error)
                after += 1  # a later commit may be the damaged one, which is then reported again
            limit = 1
            continue
        page = [commit for commit in commits if commit.number <= header.number]
        if not page:
            return
        after = page[-1].number
        count = max(1, len(page) * PAGE_BYTES // max(sum(map(size_of, page)), 1))
        limit = min(count, 4 * limit, MAX_PAGE_COMMITS)
        yield page


async def run_in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Run the work outside of the event loop. Completes it even if cancelled: its file must stay open."""
    return await complete(asyncio.to_thread(work, *arguments))


async def import_thread(store: Store, path: str | os.PathLike[str], *, thread_id: str | None = None) -> ThreadInfo:
    """Add the thread of a file, all of it or nothing. Raises NoThreadFile, NewerFormat, or ThreadExists."""
    check_identifier("thread_id", thread_id)
    name = os.fspath(path)
    with _open(name) as file:
        written = await run_in_thread(check_file, file, name)
        header = await add_thread(store, file, name, written, thread_id)
    with storage_errors(store, "list threads"):
        threads = await store.threads(thread_id=header.thread_id)
    if not threads:
        raise ThreadNotFound(header.thread_id)  # deleted right after the import
    return threads[0]


def _open(name: str) -> BinaryIO:
    if os.path.isdir(name):
        raise NoThreadFile(name, "it is a folder")
    try:
        return open(name, "rb")
    except FileNotFoundError:
        raise NoThreadFile(name, "the file does not exist") from None
    except OSError as error:
        raise NoThreadFile(name, f"it cannot be opened ({error.strerror or error})") from error


def check_file(file: BinaryIO, name: str) -> ThreadFile:
    """Verify the whole file. Raises NoThreadFile or NewerFormat."""
    reader = DumpReader(file, name)
    integrity = ThreadIntegrity(reader.header)
    count = 0
    for problem in integrity.check_header():
        raise reader.error(problem.reason)
    for commit in reader.commits():
        count += 1
        for problem in integrity.add(commit):
            raise reader.error(problem.reason)
    for problem in integrity.end():
        raise NoThreadFile(name, f"its lines do not fit together: {problem.reason}")
    return ThreadFile(reader.header, reader.digest, [*integrity.checkpoints.values()], count, file.tell())


async def add_thread(
    store: Store, file: BinaryIO, name: str, written: ThreadFile, thread_id: str | None = None
) -> ThreadHeader:
    """Add a verified file to the store. A new `thread_id` gives its checkpoints new ids, too."""
    reader = DumpReader(file, name)
    header, commits = reader.header, _verify_again(reader, name, written)
    if thread_id is not None and thread_id != header.thread_id:
        header = rename_header(header, thread_id)
        ids = {checkpoint_id: new_checkpoint_id() for checkpoint_id in written.checkpoint_ids}
        commits = (rename_commit(commit, header.thread_id, ids) for commit in commits)
    with storage_errors(store, "add a thread"):
        await complete(store.add_thread(header, commits))  # the store reads the file, which must stay open
    return header


def _verify_again(reader: DumpReader, name: str, written: ThreadFile) -> Iterable[Commit]:
    """The commits. Raises NoThreadFile if the file changed since its check; then the store adds nothing."""
    yield from reader.commits()
    if reader.digest != written.digest:
        raise NoThreadFile(name, "it was changed while it was imported")
