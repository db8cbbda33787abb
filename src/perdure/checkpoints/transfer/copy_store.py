"""Copies threads from one store to another of any kind. After an interruption, call it again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.transfer.dump import visible_part
from perdure.checkpoints.transfer.threads import add_thread, read_commits, read_header, run_in_thread, write_thread
from perdure.errors import DamagedCheckpoint, PerdureError, ThreadExists
from perdure.records import Commit, ThreadHeader
from perdure.store import Progress, Store

if TYPE_CHECKING:
    from perdure.checkpoints.storage import StoreCheckpointStorage


class NotCopied(msgspec.Struct, frozen=True):
    """A thread that `copy_store` did not copy, and why."""

    thread_id: str
    reason: str


class CopyReport(msgspec.Struct, frozen=True):
    """The outcome of `copy_store` for each thread."""

    copied: Sequence[str] = ()
    already_there: Sequence[str] = ()
    """The target has the same threads already."""
    conflicts: Sequence[NotCopied] = ()
    """The target has other threads of these ids, which stay."""
    failed: Sequence[NotCopied] = ()
    """Damaged in the source, deleted there, or pruned without a pause."""

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
    """Copy threads with their history from one storage to another: all, those of a workflow, or those of `thread_ids`.

    It copies each thread wholly or not at all, the one with the latest commit last, and skips a thread that the target
    has. After an interruption, call it again. The source does not change. It raises errors of the target, and reports
    damaged threads of the source. Each side may be encrypted with its own keys: the copy is encrypted again.
    """
    for name, storage in (("source", source), ("target", target)):
        if not hasattr(storage, "store"):
            raise TypeError(f"{name} expects a storage of perdure, such as SqliteCheckpointStorage, got {storage!r}.")
    if location_of(source) == location_of(target):
        raise ValueError("source and target are the same store: there is nothing to copy.")
    for storage in (source, target):
        await storage.refuse_missing_key()
    if isinstance(thread_ids, str):
        raise TypeError(f"thread_ids expects several ids, got the string {thread_ids!r}.")
    wanted, unknown = await _thread_ids(source, workflow_name, None if thread_ids is None else [*thread_ids])
    of_workflow = "" if workflow_name is None else f" of workflow {workflow_name!r}"
    failed = [NotCopied(each, f"the source has no thread {each!r}{of_workflow}") for each in unknown]
    outcomes: dict[str, list[Any]] = {"copied": [], "already_there": [], "conflicts": [], "failed": failed}
    for done, thread_id in enumerate(wanted, 1):
        outcome, reason = await _copy_thread(source.store, target.store, thread_id)
        outcomes[outcome].append(NotCopied(thread_id, reason) if reason else thread_id)
        if progress is not None:
            progress(done, len(wanted), thread_id)
    return CopyReport(**outcomes)


def location_of(storage: Any) -> object:
    """Equal for two storages of one store."""
    store = storage.store
    while (inner := getattr(store, "inner", None)) is not None:  # an encrypted or accelerated store
        store = inner
    path = getattr(store, "path", None)
    return getattr(store, "location", store) if path is None else os.path.realpath(path)


async def _thread_ids(
    source: StoreCheckpointStorage, workflow_name: str | None, named: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """The threads to copy, the one with the latest commit last and those without a commit first; and the named ones
    that do not exist."""
    listed = [thread.thread_id for thread in await source.list_threads(workflow_name=workflow_name)]
    if workflow_name is None:
        committed = set(listed)
        with storage_errors(source.store, "list threads"):
            listed = [*(each for each in await source.store.thread_ids() if each not in committed), *listed]
    if named is None:
        return listed, []
    existing, chosen = set(listed), set(named)
    missing = [each for each in dict.fromkeys(named) if each not in existing]
    return [each for each in listed if each in chosen], missing


_Outcome = tuple[Literal["copied", "already_there", "conflicts", "failed"], str]
"""The list of the report, and the reason if the thread was not copied."""


async def _copy_thread(source: Store, target: Store, thread_id: str) -> _Outcome:
    """Raises the target's error."""
    try:
        if await read_header(target, thread_id) is not None:
            return await _compare(source, target, thread_id)
    except DamagedCheckpoint as error:
        return "conflicts", f"the target has it already, but damaged: {error.reason}"
    with tempfile.TemporaryFile(prefix="perdure-") as spool:  # without a name: a killed process leaves no file
        try:
            written = await write_thread(source, thread_id, spool)
        except PerdureError as error:
            return "failed", str(error)
        try:
            await add_thread(target, spool, f"the copy of thread {thread_id!r}", written)
        except ThreadExists as error:
            return "conflicts", error.reason
    return "copied", ""


async def _compare(source: Store, target: Store, thread_id: str) -> _Outcome:
    try:
        ours = await read_header(source, thread_id)
        digest = None if ours is None else await _digest_visible(source, ours)
    except PerdureError as error:
        return "failed", str(error)
    if ours is None:
        return "failed", f"The source has no thread {thread_id!r}."
    theirs = await read_header(target, thread_id)
    if theirs is None or (theirs.number, theirs.head) != (ours.number, ours.head):
        there = "is deleted" if theirs is None else f"is at commit {theirs.number} with its head at {theirs.head}"
        return "conflicts", f"it is at commit {ours.number} with its head at {ours.head}, but in the target it {there}"
    waiting = [([*header.inbox], [*header.journal]) for header in (ours, theirs)]
    if not ours.number and waiting[0] != waiting[1]:
        return "conflicts", "it has no commit, and the target has another inbox or journal of it"
    if await _digest_visible(target, theirs) != digest:
        return "conflicts", f"the target has another thread of that id, which is at commit {theirs.number} too"
    return "already_there", ""


async def _digest_visible(store: Store, header: ThreadHeader) -> bytes:
    digest = sha256()

    def add(commits: Sequence[Commit]) -> None:
        for commit in commits:
            digest.update(visible_part(commit, header))

    async for page in read_commits(store, header):
        await run_in_thread(add, page)
    return digest.digest()
