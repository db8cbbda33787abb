"""All threads of one store in another, of whatever kind. Can be ended at any time, and begun again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.access import refuse_missing_key, storage_errors
from perdure.checkpoints.transfer.dump_lines import visible_part
from perdure.checkpoints.transfer.threads import CommitPages, add_thread, aside, standing_of, write_thread
from perdure.errors import DamagedCheckpoint, PerdureError, ThreadExists
from perdure.records import Commit, ThreadHeader
from perdure.store import Store

if TYPE_CHECKING:
    from perdure.checkpoints.storage import StoreCheckpointStorage


Progress = Callable[[int, int, str], None]
"""Told of each thread that is done with: how many were, how many there are, and its id."""


class NotCopied(msgspec.Struct, frozen=True):
    """A thread that `copy_store` left alone, and why."""

    thread_id: str
    reason: str


class CopyReport(msgspec.Struct, frozen=True):
    """What became of each thread that `copy_store` was to copy."""

    copied: Sequence[str] = ()
    already_there: Sequence[str] = ()
    """The target has them as they are."""
    conflicts: Sequence[NotCopied] = ()
    """The target has something else in their place, and it was left alone."""
    failed: Sequence[NotCopied] = ()
    """Damaged in the source, gone from it, or pruned there without a pause."""

    @property
    def is_complete(self) -> bool:
        """Whether the target now has all of them."""
        return not self.conflicts and not self.failed


async def copy_store(
    source: StoreCheckpointStorage,
    target: StoreCheckpointStorage,
    *,
    workflow_name: str | None = None,
    thread_ids: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy threads, with their history, from one storage to another: all, those of a workflow, or those that are named.

    Each is copied wholly or not at all, those that moved last at the end. One that is there already is left as it is,
    so a copy that was cut short is completed by calling this again. The source is not changed. What the target fails
    at is raised; what is wrong with a thread of the source is reported, and the others go on. Each side may be
    encrypted, with keys of its own: what is copied is decrypted, and encrypted again.
    """
    _check_storages(source, target)
    for one in (source, target):
        await refuse_missing_key(one.store)
    if isinstance(thread_ids, str):
        raise TypeError(f"thread_ids expects several ids, got the text {thread_ids!r}.")
    wanted, unknown = await _thread_ids(source, workflow_name, None if thread_ids is None else [*thread_ids])
    copied: list[str] = []
    already_there: list[str] = []
    conflicts: list[NotCopied] = []
    of_workflow = "" if workflow_name is None else f" of workflow {workflow_name!r}"
    failed = [NotCopied(one, f"there is no thread {one!r}{of_workflow} in the source") for one in unknown]
    for done, thread_id in enumerate(wanted, 1):
        try:
            is_new = await _copy_thread(source.store, target.store, thread_id)
        except _Conflict as conflict:
            conflicts.append(NotCopied(thread_id, str(conflict)))
        except _Unreadable as problem:
            failed.append(NotCopied(thread_id, str(problem)))
        else:
            (copied if is_new else already_there).append(thread_id)
        if progress is not None:
            progress(done, len(wanted), thread_id)
    return CopyReport(copied, already_there, conflicts, failed)


class _Conflict(Exception):
    """The target has something else."""


class _Unreadable(Exception):
    """The source does not give the thread."""


def _check_storages(source: object, target: object) -> None:
    for name, one in (("source", source), ("target", target)):
        if not hasattr(one, "store"):
            raise TypeError(f"{name} expects a storage of perdure, such as SqliteCheckpointStorage, got {one!r}.")
    if _place(source) == _place(target):
        raise ValueError("source and target are the same store: there is nothing to copy.")


def _place(storage: Any) -> object:
    store = storage.store
    while (inner := getattr(store, "inner", None)) is not None:  # encrypted, or with something beside it
        store = inner
    path = getattr(store, "path", None)
    return getattr(store, "place", store) if path is None else os.path.realpath(path)


async def _thread_ids(
    source: StoreCheckpointStorage, workflow_name: str | None, named: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """In the order in which they moved last, after those that were only posted to; and those that are named and not
    there."""
    listed = [one.thread_id for one in await source.list_threads(workflow_name=workflow_name)]
    if workflow_name is None:
        moved = set(listed)
        with storage_errors(source.store, "list threads"):
            listed = [*(one for one in await source.store.thread_ids() if one not in moved), *listed]
    if named is None:
        return listed, []
    known, chosen = set(listed), set(named)
    return [one for one in listed if one in chosen], [one for one in dict.fromkeys(named) if one not in known]


async def _copy_thread(source: Store, target: Store, thread_id: str) -> bool:
    """Whether it is new there. Raises _Conflict or _Unreadable, or what the target fails at."""
    try:
        if await standing_of(target, thread_id) is not None:
            await _check_same(source, target, thread_id)
            return False
    except DamagedCheckpoint as error:
        raise _Conflict(f"the target has it already, and damaged: {error.reason}") from error
    with tempfile.TemporaryFile(prefix="perdure-") as spool:  # it has no name: a kill leaves nothing behind
        try:
            written = await write_thread(source, thread_id, spool)
        except PerdureError as error:
            raise _Unreadable(str(error)) from error
        try:
            await add_thread(target, spool, f"the copy of thread {thread_id!r}", written)
        except ThreadExists as error:
            raise _Conflict(error.reason) from error
    return True


async def _check_same(source: Store, target: Store, thread_id: str) -> None:
    """Raises like `_copy_thread`."""
    try:
        ours = await standing_of(source, thread_id)
        seen = None if ours is None else await _visible(source, ours)
    except PerdureError as error:
        raise _Unreadable(str(error)) from error
    if ours is None:
        raise _Unreadable(f"There is no thread {thread_id!r} in the source.")
    theirs = await standing_of(target, thread_id)
    if theirs is None or (theirs.number, theirs.head) != (ours.number, ours.head):
        there = "nothing any more" if theirs is None else f"commit {theirs.number} with its head at {theirs.head}"
        raise _Conflict(f"it stands at commit {ours.number} with its head at {ours.head}, and in the target at {there}")
    if not ours.number and _waiting(theirs) != _waiting(ours):
        raise _Conflict("it was only posted to, and the target has another inbox or journal of it")
    if await _visible(target, theirs) != seen:
        raise _Conflict(f"the target has another thread of that id, which stands at commit {theirs.number} too")


def _waiting(standing: ThreadHeader) -> tuple[list[object], list[object]]:
    return [*standing.inbox], [*standing.journal]


async def _visible(store: Store, standing: ThreadHeader) -> bytes:
    """A digest of all that can be read of the thread's commits."""
    digest = sha256()
    pages = CommitPages(store, standing)

    def add(commits: Sequence[Commit]) -> None:
        for one in commits:
            digest.update(visible_part(one, standing))

    while page := await pages.next():
        await aside(add, page)
    return digest.digest()
