"""Pruning by hand: deletes the history of a storage by age, count, workflow and status.

Pruning reads lists, no payload. Threads may move meanwhile: a selected checkpoint is not the head, later commits only
push it further back, and checkpoints that continue from it keep their chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from perdure.checkpoints.history.retention import (
    Outdated,
    check_count,
    find_beyond_last,
    find_older,
    parse_time,
    select_outdated,
)
from perdure.errors import DamagedCheckpoint, DamagedStore, ThreadBusy, ThreadNotFound, did_you_mean
from perdure.errors.wording import format_count, format_size
from perdure.events import WorkflowRunState
from perdure.records import CheckpointInfo, ThreadInfo
from perdure.store import Store

if TYPE_CHECKING:
    from perdure.checkpoints.storage import StoreCheckpointStorage


@dataclass(frozen=True)
class PrunedThread:
    """The part of one thread that `prune` deleted."""

    thread_id: str
    workflow_name: str
    checkpoints: int
    """How many."""
    events_before: int = 0
    """Also the events of its commits before this number; 0: none."""
    is_whole: bool = False
    """Whether it deleted the whole thread."""

    @property
    def amounts(self) -> str:
        """How much, in words."""
        if self.is_whole:
            return f"the whole thread, with {format_count(self.checkpoints, 'checkpoint')}"
        events = f", events before commit {self.events_before}" if self.events_before > 1 else ""
        return format_count(self.checkpoints, "checkpoint") + events


@dataclass(frozen=True)
class SkippedThread:
    """A selected thread that `prune` left alone."""

    thread_id: str
    reason: str


@dataclass(frozen=True)
class PruneReport:
    """The report of `prune`: what it deleted, or would delete in a dry run. `str()` of it is for people."""

    threads: tuple[PrunedThread, ...] = ()
    """The threads with deletions."""
    skipped: tuple[SkippedThread, ...] = ()
    freed_bytes: int | None = None
    """By how much the store shrank; less if other processes wrote meanwhile. None for a dry run."""
    is_dry_run: bool = False

    @property
    def checkpoints(self) -> int:
        """How many checkpoints, of all threads together."""
        return sum(thread.checkpoints for thread in self.threads)

    @property
    def whole_threads(self) -> int:
        """How many threads were deleted as a whole."""
        return sum(thread.is_whole for thread in self.threads)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with the totals."""
        return {
            "is_dry_run": self.is_dry_run,
            "checkpoints": self.checkpoints,
            "whole_threads": self.whole_threads,
            "freed_bytes": self.freed_bytes,
            "threads": [asdict(thread) for thread in self.threads],
            "skipped": [asdict(thread) for thread in self.skipped],
        }

    def __str__(self) -> str:
        deleted = [f"{thread.thread_id}: {thread.amounts}" for thread in self.threads]
        skipped = [f"{thread.thread_id}: left alone, {thread.reason}" for thread in self.skipped]
        return "\n".join([self._total(), *deleted, *skipped])

    @property
    def amounts(self) -> str:
        """How much, in words."""
        total = f"{format_count(self.checkpoints, 'checkpoint')} of {format_count(len(self.threads), 'thread')}"
        return f"{format_count(self.whole_threads, 'whole thread')}, with {total}" if self.whole_threads else total

    def _total(self) -> str:
        if not self.threads:
            return "nothing would go" if self.is_dry_run else "nothing to prune"
        freed = f", {format_size(self.freed_bytes)} freed" if self.freed_bytes else ""
        return f"{self.amounts} {'would go' if self.is_dry_run else 'gone'}{freed}"


Status = WorkflowRunState | str

MAX_PAUSE_SECONDS = 0.1
"""The longest pause between two threads. Pruning pauses as long as the last thread took, up to this."""

_AT_REST = {WorkflowRunState.IDLE, WorkflowRunState.FAILED, WorkflowRunState.CANCELLED}


@dataclass(frozen=True)
class _Rule:
    """The checked options of `prune`."""

    keep_last: int | None
    older_than: timedelta | None
    states: frozenset[str] | None
    """None: threads of every status."""
    now: datetime

    def find_outdated(self, infos: list[CheckpointInfo], head: CheckpointInfo) -> Outdated:
        numbers = {info.number for info in infos}
        if self.keep_last is not None:
            numbers &= find_beyond_last(infos, head, self.keep_last)
        if self.older_than is not None:
            numbers &= find_older(infos, self.now, self.older_than)
        return select_outdated(infos, head, numbers)


async def prune(
    storage: StoreCheckpointStorage,
    *,
    keep_last: int | None = None,
    older_than: timedelta | datetime | None = None,
    workflow_name: str | None = None,
    thread_id: str | None = None,
    status: Status | Iterable[Status] | None = None,
    whole_threads: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PruneReport:
    """Delete checkpoints that are neither among the last `keep_last` of the line to their thread's head nor younger
    than `older_than`; a limit that is None does not count. Heads and pinned checkpoints stay. The store frees the
    space.

    `whole_threads=True` deletes threads instead: those whose last commit is older than `older_than`, at rest, with
    nothing pending and nothing pinned. `status` selects threads of these statuses; a status that it names may be
    deleted too. `dry_run=True` changes nothing and reports the same. Calls `progress(done, total)` after each thread.
    Raises ThreadNotFound for an unknown `thread_id`.
    """
    rule = _check_options(keep_last, older_than, status, whole_threads=whole_threads)
    async with storage.access("list threads"):
        threads = await storage.store.threads(workflow_name=workflow_name, thread_id=thread_id)
        if not threads and thread_id is not None and not await storage.store.threads(thread_id=thread_id):
            raise ThreadNotFound(thread_id)
    threads = [thread for thread in threads if rule.states is None or thread.status in rule.states]
    before = 0 if dry_run else await _size_of(storage)
    delete = _delete_thread if whole_threads else _delete_checkpoints
    outcomes: list[PrunedThread | SkippedThread | None] = []
    for done, thread in enumerate(threads, 1):
        started = monotonic()
        try:
            outcomes.append(await delete(storage, thread, rule, dry_run=dry_run))
        except ThreadBusy as busy:
            outcomes.append(SkippedThread(thread.thread_id, f"run {busy.run_id!r} owns it"))
        except (DamagedCheckpoint, DamagedStore) as damage:
            outcomes.append(SkippedThread(thread.thread_id, f"it is damaged: {damage.reason}"))
        if progress is not None:
            progress(done, len(threads))
        if not dry_run and done < len(threads):  # a long list must not keep other users of the store waiting
            await asyncio.sleep(min(monotonic() - started, MAX_PAUSE_SECONDS))
    freed = None if dry_run else max(0, before - await _size_of(storage))
    pruned = tuple(outcome for outcome in outcomes if isinstance(outcome, PrunedThread))
    return PruneReport(pruned, tuple(each for each in outcomes if isinstance(each, SkippedThread)), freed, dry_run)


async def _size_of(storage: StoreCheckpointStorage) -> int:
    async with storage.access("measure its size"):
        return await storage.store.size()


async def _delete_checkpoints(
    storage: StoreCheckpointStorage, thread: ThreadInfo, rule: _Rule, *, dry_run: bool
) -> PrunedThread | None:
    async with storage.access("prune a thread"):
        infos = list(await storage.store.infos(thread_id=thread.thread_id))
        outdated = rule.find_outdated(infos, infos[-1]) if infos else Outdated()  # the newest is the head
        count = len(outdated.checkpoints)
        if not dry_run:  # even for none: the store may still have to free the space of earlier ones
            checkpoint_ids = [info.checkpoint_id for info in outdated.checkpoints]
            events_before = outdated.events_before if checkpoint_ids else 0
            count = await storage.store.prune(thread.thread_id, checkpoint_ids, events_before=events_before)
            storage._recent.changes += count > 0
    return PrunedThread(thread.thread_id, thread.workflow_name, count, outdated.events_before) if count else None


async def _delete_thread(
    storage: StoreCheckpointStorage, thread: ThreadInfo, rule: _Rule, *, dry_run: bool
) -> PrunedThread | SkippedThread | None:
    updated_at = parse_time(thread.updated_at)
    if updated_at is None or rule.older_than is None or rule.now - updated_at <= rule.older_than:
        return None
    async with storage.access("delete a thread"):
        reason = await _reason_to_stay(storage.store, thread, rule)
        infos = await storage.store.infos(thread_id=thread.thread_id)
        if reason is None and not dry_run:
            is_deleted = await storage.store.delete_thread(thread.thread_id, if_unmoved_since=thread.number)
            reason = None if is_deleted else "it was moved, sent to or pinned meanwhile, or is gone already"
    if reason is not None:
        return SkippedThread(thread.thread_id, reason)
    return PrunedThread(thread.thread_id, thread.workflow_name, len(infos), is_whole=True)


async def _reason_to_stay(store: Store, thread: ThreadInfo, rule: _Rule) -> str | None:
    if thread.run_id is not None:
        return f"run {thread.run_id!r} owns it"
    header = await store.thread_header(thread.thread_id)
    if header is None:
        return "it is gone already"
    is_named = rule.states is not None and thread.status in rule.states
    reasons = {
        f"it has pinned checkpoints: {len(header.pins)}": header.pins,
        f"messages wait in its inbox: {len(header.inbox)}": header.inbox,
        f"requests are pending: {len(header.requests)}": header.requests and not is_named,
        f"it is not at rest ({thread.status or 'without a status'})": thread.status not in _AT_REST and not is_named,
        f"it resumes by itself at {header.due_at and header.due_at.isoformat()}": header.due_at and not is_named,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _check_options(
    keep_last: int | None,
    older_than: timedelta | datetime | None,
    status: Status | Iterable[Status] | None,
    *,
    whole_threads: bool,
) -> _Rule:
    now = datetime.now(UTC)
    if keep_last is not None:
        check_count(keep_last, "keep_last")
    age = None if older_than is None else _check_age(older_than, now)
    if whole_threads and (age is None or keep_last is not None):
        raise ValueError(
            "prune(whole_threads=True) deletes threads by the time of their last commit: pass older_than, and not "
            "keep_last. Nothing was removed."
        )
    if keep_last is None and age is None:
        raise ValueError(
            "prune() needs keep_last (how many checkpoints of each thread stay), older_than (a timedelta), or both. "
            "Nothing was removed."
        )
    return _Rule(keep_last, age, _check_states(status), now)


def _check_age(older_than: object, now: datetime) -> timedelta:
    if isinstance(older_than, datetime):
        if older_than.tzinfo is None:
            raise ValueError(f"older_than expects a time with a zone, such as datetime.now(UTC), got {older_than!r}.")
        older_than = now - older_than
    if not isinstance(older_than, timedelta):
        raise TypeError(f"older_than expects a timedelta, such as timedelta(days=30), or a time, got {older_than!r}.")
    if older_than < timedelta(0):
        raise ValueError(f"older_than expects a time that has passed, got one {-older_than} from now.")
    return older_than


def _check_states(status: Status | Iterable[Status] | None) -> frozenset[str] | None:
    if status is None:
        return None
    states = [status] if isinstance(status, str) else list(status)
    valid = {state.value for state in WorkflowRunState}
    for state in states:
        if state not in valid:
            hint = did_you_mean(str(state), sorted(valid))
            raise ValueError(f"status expects run states such as 'IDLE' or 'FAILED', got {state!r}{hint}.")
    return frozenset(WorkflowRunState(state).value for state in states)
