"""What a file store does to a thread as a whole: prune, rewrite and add it, and check its file.

A file is never changed in place. It is written anew from the thread's header and commits, and put in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

import msgspec

from perdure.errors import DamagedStore
from perdure.records import Commit, Damage, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.file.access import FileAccess
from perdure.stores.file.folder import LockedFile
from perdure.stores.file.lines import lines_of_thread
from perdure.stores.garbage import prune_commits
from perdure.stores.packing import Changes
from perdure.stores.sqlite.commits import move_to_end
from perdure.stores.sqlite.health import check_schema, find_orphans, list_all_thread_ids
from perdure.stores.sqlite.payloads import read_commits
from perdure.stores.sqlite.retention import choose_pruned, count_garbage, drop_events, read_kept_events
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import ensure_thread, find_thread
from perdure.stores.sqlite.transfer import read_standing, refuse_known_checkpoint, reserve_thread


def prune_checkpoints(access: FileAccess, file: LockedFile, checkpoint_ids: set[str], events_before: int) -> int:
    """How many checkpoints were deleted. Raises ThreadBusy."""

    def choose(db: SqliteDatabase) -> tuple[set[int], bool]:
        thread, numbers = find_thread(db, file.thread_id), choose_pruned(db, file.thread_id, checkpoint_ids)
        if thread is not None and events_before:
            drop_events(db, thread, events_before)
        return numbers, bool(numbers or events_before or (thread is not None and count_garbage(db, thread)))

    numbers, is_needed = access.index.transact(choose)
    if is_needed and file.size:
        write_anew(access, file, numbers)
    else:
        access.remove_if_new(file)
    return len(numbers)


def write_anew(
    access: FileAccess, file: LockedFile, pruned: Collection[int] = (), change: Rewrite | None = None
) -> int:
    """Rewrite the file without these checkpoints, and without all that was pruned before; with changed payloads, if
    any changes. How many did."""

    def read(db: SqliteDatabase) -> tuple[ThreadHeader | None, list[Commit], int]:
        thread_id = file.thread_id
        dropped_before = read_kept_events(db, ensure_thread(db, thread_id))[1]
        return read_standing(db, thread_id), read_commits(db, thread_id, with_garbage=True), dropped_before

    header, commits, dropped_before = access.index.read(read)
    if header is None:
        access.remove_if_new(file)
        return 0
    left = {commit.number: commit for commit in commits} | dict(prune_commits(commits, pruned, dropped_before))
    commits = [commit for commit in left.values() if commit is not None]
    head = max((commit.number for commit in commits if commit.info is not None), default=None)
    if head != header.head:
        header = msgspec.structs.replace(header, head=head, due_at=None, requests=(), journal=())
    changes = Changes(change or (lambda kind, name, data: data))
    header, commits = changes.header(header), [changes.commit(commit) for commit in commits]
    if change is None or changes.count:
        access.rewrite(file, lines_of_thread(header, commits, dropped_before, has_garbage=False))
    return changes.count


def add_thread(access: FileAccess, file: LockedFile, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
    """Write the file of a thread as another store had it. Raises ThreadExists."""

    def refuse_known() -> Iterator[Commit]:
        for commit in commits:
            if commit.info is not None:
                access.index.read(partial(refuse_known_checkpoint, info=commit.info))
            yield commit

    access.index.transact(lambda db: reserve_thread(db, standing))
    access.rewrite(file, lines_of_thread(standing, refuse_known(), 0, has_garbage=True))
    access.index.transact(lambda db: move_to_end(db, ensure_thread(db, file.thread_id)))


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
        is_lost = access.index.read_file_size(thread_id)
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
