"""What a file store does to a thread as a whole: prune, rewrite, add, copy and check its file.

A file is never changed in place: its lines are computed here, written beside it, and put in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import msgspec

from perdure.errors import DamagedStore, PerdureError
from perdure.records import Commit, Damage, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.file.access import FileAccess
from perdure.stores.file.folder import LockedFile
from perdure.stores.file.index import first_line, pending_lines
from perdure.stores.file.lines import (
    VERSION,
    FileCommitLine,
    FileThreadLine,
    JournalLine,
    Line,
    LineContext,
    PendingLines,
    PostLine,
    commit_line,
    request_part,
)
from perdure.stores.file.schema import delete_if_empty, read_file_size, set_file_size
from perdure.stores.garbage import PackedCommit, prune_bodies
from perdure.stores.packing import Changes, pack_body, repack_body, unpack_body
from perdure.stores.sqlite.commits import move_to_end
from perdure.stores.sqlite.health import check_schema, find_orphans, list_all_thread_ids
from perdure.stores.sqlite.retention import choose_pruned, count_garbage, drop_events, note_collected
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import ensure_thread, find_thread
from perdure.stores.sqlite.transfer import refuse_known_checkpoint, reserve_thread


def prune_checkpoints(access: FileAccess, file: LockedFile, checkpoint_ids: set[str], events_before: int) -> int:
    """How many checkpoints were deleted. Raises ThreadBusy."""

    def choose(db: SqliteDatabase) -> tuple[set[int], bool]:
        numbers = choose_pruned(db, file.thread_id, checkpoint_ids)
        thread = find_thread(db, file.thread_id)
        return numbers, bool(numbers or events_before or (thread is not None and count_garbage(db, thread)))

    numbers, is_needed = access.index.read(choose)
    if is_needed and file.size:
        prune_file(access, file, numbers, events_before)
    else:
        access.remove_if_new(file)
    return len(numbers)


def prune_file(access: FileAccess, file: LockedFile, numbers: Collection[int], events_before: int = 0) -> None:
    """Rewrite the file without these checkpoints, and without all that was pruned before."""

    def work(db: SqliteDatabase) -> tuple[FileThreadLine, PendingLines]:
        if events_before:
            drop_events(db, ensure_thread(db, file.thread_id), events_before)
        return first_line(db, file.thread_id), pending_lines(db, file.thread_id)

    first, pending = access.index.transact(work)
    access.rewrite(file, _prune_lines(access.index.read_lines(file), numbers, first, pending))
    access.index.transact(lambda db: note_collected(db, ensure_thread(db, file.thread_id)))


def _prune_lines(
    lines: Sequence[Line], pruned: Collection[int], first: FileThreadLine, pending: PendingLines
) -> list[Line]:
    """The lines without these checkpoints.

    `first` describes the thread, and `pending` what is not settled in it: the lines that did so may be dropped.
    """
    commits = {line.number: line for line in lines if isinstance(line, FileCommitLine)}
    packed = [
        PackedCommit(line.number, line.parent, line.checkpoint_id is not None, unpack_body(bytes(line.body)))
        for line in commits.values()
    ]
    changed = {commit.number: commit for commit in prune_bodies(packed, pruned, first.events_dropped_before)}
    kept = [
        line if number not in changed else _change_line(line, changed[number])
        for number, line in commits.items()
        if number not in changed or not changed[number].is_empty
    ]
    head = max((line.number for line in kept if line.checkpoint_id is not None), default=0)
    is_moved = any(line.checkpoint_id is not None and line.number > head for line in commits.values())
    settled = [
        msgspec.structs.replace(
            line,
            unsettled=(),
            consumed=(),
            requests=None,
            due_at=line.due_at if line.number == head and not is_moved else None,
            prunes=(),
            events_dropped_before=0,
        )
        for line in kept
    ]
    first = msgspec.structs.replace(first, requests=() if is_moved else pending.requests)
    return [first, *settled, *pending.posts, *(() if is_moved else pending.journal)]


def _change_line(line: FileCommitLine, change: PackedCommit) -> FileCommitLine:
    return msgspec.structs.replace(
        line,
        body=msgspec.Raw(repack_body(change.body)),
        parent=change.parent,
        checkpoint_id=line.checkpoint_id if change.has_checkpoint else None,
        first_seq=line.first_seq if change.has_events else 0,
        events=line.events if change.has_events else 0,
    )


def rewrite_payloads(access: FileAccess, file: LockedFile, change: Rewrite) -> int:
    """How many payloads came back different."""
    if not file.size:
        access.remove_if_new(file)
        return 0
    first, pending = access.index.read(lambda db: (first_line(db, file.thread_id), pending_lines(db, file.thread_id)))
    changes = Changes(change)
    pruned = _prune_lines(access.index.read_lines(file), (), first, pending)
    lines = [_change_payloads(changes, line) for line in pruned]
    if changes.count:
        access.rewrite(file, lines)
        access.index.transact(lambda db: note_collected(db, ensure_thread(db, file.thread_id)))
    return changes.count


def _change_payloads(changes: Changes, line: Line) -> Line:
    """Put all payloads of a line through the changes."""
    if isinstance(line, FileCommitLine):
        body = changes.body(line.number, unpack_body(bytes(line.body)))
        return msgspec.structs.replace(line, body=msgspec.Raw(repack_body(body)))
    if isinstance(line, JournalLine):
        entries = [
            (delivery_id, changes.change_raw("journal", str(delivery_id), body)) for delivery_id, body in line.entries
        ]
        return msgspec.structs.replace(line, entries=entries)
    if isinstance(line, PostLine):
        return msgspec.structs.replace(line, body=changes.change_raw("inbox", line.item_id, line.body))
    return line


def add_thread(access: FileAccess, file: LockedFile, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
    """Write the file of a thread as another store had it. Raises ThreadExists."""
    thread_id = standing.thread_id

    def reserve(db: SqliteDatabase) -> None:
        reserve_thread(db, standing)
        set_file_size(db, thread_id, None)  # if this process dies in between, lists read the file first

    def refuse_known(commit: Commit) -> Commit:
        if commit.info is not None:
            access.index.read(partial(refuse_known_checkpoint, info=commit.info))
        return commit

    access.index.transact(reserve)
    try:
        lines = _lines_of_thread(standing, map(refuse_known, commits), _first_line_of(standing))
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


def _lines_of_thread(standing: ThreadHeader, commits: Iterable[Commit], first: FileThreadLine) -> Iterator[Line]:
    """The lines of a thread as another store had it."""
    yield first
    for commit in commits:
        line = commit_line(commit, pack_body(commit), LineContext(last_seq=-1))
        yield msgspec.structs.replace(line, due_at=standing.due_at) if commit.number == standing.head else line
    for item in standing.inbox:
        yield PostLine(item.item_id, item.kind, msgspec.Raw(item.body))
    for entry in standing.journal:
        yield JournalLine(standing.fence, [(entry.delivery_id, msgspec.Raw(entry.body))])


# ---------------------------------------------------------------- checks


def check_files(access: FileAccess) -> list[Damage]:
    """Damage of the index, and of files that cannot be read as a whole."""
    index = access.index
    index.make_ready()
    damage = [Damage(f"{name!r} is not the file of a thread") for name in access.files.list_foreign()]
    checks: list[Callable[[SqliteDatabase], list[str]]] = [find_orphans, check_schema]
    reasons = [*index.check_integrity(), *(reason for check in checks for reason in index.read(check))]
    damage += [Damage(f"{index.path.name}: {reason}. Delete it: the store rebuilds it") for reason in reasons]
    for thread_id in dict.fromkeys([*index.read(list_all_thread_ids), *access.files.thread_ids()]):
        damage += _check_file(access, thread_id)
    return damage


def _check_file(access: FileAccess, thread_id: str) -> list[Damage]:
    path = access.files.path_of(thread_id)
    if not path.exists():
        is_lost = access.index.read(lambda db: read_file_size(db, thread_id))
        return [Damage(f"its file {path.name!r} does not exist", thread_id)] if is_lost else []
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
