"""What a file store does to a thread as a whole: prune, rewrite, add, copy and check its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from functools import partial

import msgspec

from perdure.errors import DamagedStore, PerdureError, ThreadBusy, ThreadNotFound
from perdure.records import Commit, Damage, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.file.access import FileAccess
from perdure.stores.file.folder import ThreadFile
from perdure.stores.file.index import first_line, pending_lines
from perdure.stores.file.lines import VERSION, FileThreadLine, request_part
from perdure.stores.file.rewriting import PendingLines, change_payloads, copy_lines, lines_of_thread, prune_lines
from perdure.stores.file.schema import delete_if_empty, read_file_size, set_file_size
from perdure.stores.packing import Changes
from perdure.stores.sqlite.commits import move_to_end
from perdure.stores.sqlite.integrity import check_schema, find_orphans, list_all_thread_ids
from perdure.stores.sqlite.owners import ensure_thread, find_owner, find_thread
from perdure.stores.sqlite.retention import choose_pruned, count_garbage, drop_events, note_collected
from perdure.stores.sqlite.schema import Database
from perdure.stores.sqlite.transfer import has_thread, refuse_known_checkpoint, reserve_thread


def prune_checkpoints(access: FileAccess, file: ThreadFile, checkpoint_ids: set[str], events_before: int) -> int:
    """How many checkpoints were deleted. Raises ThreadBusy."""

    def choose(db: Database) -> tuple[set[int], bool]:
        numbers = choose_pruned(db, file.thread_id, checkpoint_ids)
        thread = find_thread(db, file.thread_id)
        return numbers, bool(numbers or events_before or (thread is not None and count_garbage(db, thread)))

    numbers, is_needed = access.index.read(choose)
    if is_needed and file.size:
        prune_file(access, file, numbers, events_before)
    else:
        access.remove_if_new(file)
    return len(numbers)


def prune_file(access: FileAccess, file: ThreadFile, numbers: Collection[int], events_before: int = 0) -> None:
    """Rewrite the file without these checkpoints, and without all that was pruned before."""

    def work(db: Database) -> tuple[FileThreadLine, PendingLines]:
        if events_before:
            drop_events(db, ensure_thread(db, file.thread_id), events_before)
        return first_line(db, file.thread_id), pending_lines(db, file.thread_id)

    first, pending = access.index.transact(work)
    access.rewrite(file, prune_lines(access.index.read_lines(file), numbers, first, pending))
    access.index.transact(lambda db: note_collected(db, ensure_thread(db, file.thread_id)))


def rewrite_payloads(access: FileAccess, file: ThreadFile, change: Rewrite) -> int:
    """How many payloads came back different."""
    if not file.size:
        access.remove_if_new(file)
        return 0
    first, pending = access.index.read(lambda db: (first_line(db, file.thread_id), pending_lines(db, file.thread_id)))
    changes = Changes(change)
    pruned = prune_lines(access.index.read_lines(file), (), first, pending)
    lines = [change_payloads(changes, line) for line in pruned]
    if changes.count:
        access.rewrite(file, lines)
        access.index.transact(lambda db: note_collected(db, ensure_thread(db, file.thread_id)))
    return changes.count


def add_thread(access: FileAccess, file: ThreadFile, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
    """Write the file of a thread as another store had it. Raises ThreadExists."""
    thread_id = standing.thread_id

    def reserve(db: Database) -> None:
        reserve_thread(db, standing)
        set_file_size(db, thread_id, None)  # if this process dies in between, lists read the file first

    def refuse_known(commit: Commit) -> Commit:
        if commit.info is not None:
            access.index.read(partial(refuse_known_checkpoint, info=commit.info))
        return commit

    access.index.transact(reserve)
    try:
        lines = lines_of_thread(standing, map(refuse_known, commits), _first_line_of(standing))
        access.files.rewrite(file, lines)
    except BaseException as error:
        access.index.transact(lambda db: set_file_size(db, thread_id, file.size))
        access.index.transact(lambda db: delete_if_empty(db, thread_id))
        if not isinstance(error, PerdureError):  # else `FileAccess.lock` removes it
            access.remove_if_new(file)
        raise
    access.catch_up_now(thread_id)
    access.index.transact(lambda db: move_to_end(db, ensure_thread(db, thread_id)))


def _first_line_of(standing: ThreadHeader) -> FileThreadLine:
    return FileThreadLine(
        standing.thread_id,
        VERSION,
        standing.number,
        standing.fence,
        standing.last_seq,
        os.urandom(8).hex(),
        standing.workflow_name,
        standing.status,
        standing.updated_at,
        standing.consumed,
        standing.first_seq,
        0,
        standing.pins,
        [request_part(request) for request in standing.requests],
        garbage=1,  # the commits may hold what the other store had pruned
    )


def copy_thread(access: FileAccess, file: ThreadFile, to: str) -> None:
    """Write the file of a copy. Raises ThreadNotFound or ThreadBusy."""

    def reserve(db: Database) -> None:
        if find_thread(db, file.thread_id) is None:
            raise ThreadNotFound(file.thread_id)
        if has_thread(db, to):
            raise ThreadBusy(to, find_owner(db, to))
        ensure_thread(db, to)
        set_file_size(db, to, None)  # as in `add_thread`

    access.index.transact(reserve)
    source = access.index.transact(lambda db: first_line(db, file.thread_id))
    first = msgspec.structs.replace(source, thread_id=to, fence=0, consumed=(), pins=(), garbage=1)
    lines = copy_lines(access.index.read_lines(file), first)
    with access.files.lock(to) as target:
        access.files.rewrite(target, lines)
    access.catch_up_now(to)
    access.index.transact(lambda db: move_to_end(db, ensure_thread(db, to)))


# ---------------------------------------------------------------- checks


def check_files(access: FileAccess) -> list[Damage]:
    """Damage of the index, and of files that cannot be read as a whole."""
    index = access.index
    index.make_ready()
    damage = [Damage(f"{name!r} is no file of a thread") for name in access.files.list_foreign()]
    checks: list[Callable[[Database], list[str]]] = [find_orphans, check_schema]
    reasons = [*index.check_integrity(), *(reason for check in checks for reason in index.read(check))]
    damage += [Damage(f"{index.path.name}: {reason}. Delete it: the store rebuilds it") for reason in reasons]
    for thread_id in dict.fromkeys([*index.read(list_all_thread_ids), *access.files.thread_ids()]):
        damage += _check_file(access, thread_id)
    return damage


def _check_file(access: FileAccess, thread_id: str) -> list[Damage]:
    row = access.index.read(lambda db: read_file_size(db, thread_id))
    path = access.files.path_of(thread_id)
    if not path.exists():
        return [Damage(f"its file {path.name!r} does not exist", thread_id)] if row is not None and row[0] else []
    try:
        with access.files.lock(thread_id) as file:
            access.index.catch_up(file)
            differences = access.index.find_differences(file)
    except DamagedStore as error:
        return [Damage(error.reason, thread_id)]
    name = access.index.path.name
    return [
        Damage(f"{name!r} differs from the file in commit {number}: delete {name!r}", thread_id, checkpoint_id)
        for number, checkpoint_id in differences
    ]
