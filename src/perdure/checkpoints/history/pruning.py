"""Pruning by hand: the part of a storage that removes history by age, count, workflow and status.

Only lists are read, no payload. Threads may move meanwhile: what is chosen is not the head, later commits only push it
further back, and whatever continues from it keeps what it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from perdure.checkpoints.access import Access
from perdure.checkpoints.history.retention import Outdated, all_but, beyond_last, check_count, made_before, moment
from perdure.checkpoints.recent import RecentThreads
from perdure.errors import DamagedCheckpoint, DamagedStore, ThreadBusy, ThreadNotFound, did_you_mean
from perdure.events import WorkflowRunState
from perdure.records import CheckpointInfo, ThreadInfo

# ---------------------------------------------------------------- prune report


@dataclass(frozen=True)
class PrunedThread:
    """What goes of one thread."""

    thread_id: str
    workflow_name: str
    checkpoints: int
    """How many of them."""
    events_before: int = 0
    """The events of its commits before this number go too; 0: none."""
    is_whole: bool = False
    """Whether nothing is left of it."""


@dataclass(frozen=True)
class SkippedThread:
    """A thread that was left alone although it was asked for."""

    thread_id: str
    reason: str


@dataclass(frozen=True)
class PruneReport:
    """What `prune` removed; for a dry run, what it would. `str()` of it is for people."""

    threads: tuple[PrunedThread, ...] = ()
    """Those that something goes of."""
    skipped: tuple[SkippedThread, ...] = ()
    freed_bytes: int | None = None
    """By how much the store became smaller; less than what went if others wrote meanwhile. None for a dry run."""
    is_dry_run: bool = False

    @property
    def checkpoints(self) -> int:
        """How many go, of all threads together."""
        return sum(one.checkpoints for one in self.threads)

    @property
    def whole_threads(self) -> int:
        """How many threads nothing is left of."""
        return sum(one.is_whole for one in self.threads)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with the totals."""
        return {
            "is_dry_run": self.is_dry_run,
            "checkpoints": self.checkpoints,
            "whole_threads": self.whole_threads,
            "freed_bytes": self.freed_bytes,
            "threads": [asdict(one) for one in self.threads],
            "skipped": [asdict(one) for one in self.skipped],
        }

    def __str__(self) -> str:
        left = [f"{one.thread_id}: left alone, {one.reason}" for one in self.skipped]
        return "\n".join([self._total(), *(f"{one.thread_id}: {_going(one)}" for one in self.threads), *left])

    def _total(self) -> str:
        verb = "would go" if self.is_dry_run else "gone"
        if not self.threads:
            return f"nothing {verb}" if self.is_dry_run else "nothing to prune"
        total = f"{_count(self.checkpoints, 'checkpoint')} of {_count(len(self.threads), 'thread')} {verb}"
        if self.whole_threads:
            total += f", {_count(self.whole_threads, 'thread')} as a whole"
        return f"{total}, {_size(self.freed_bytes)} freed" if self.freed_bytes else total


def _going(one: PrunedThread) -> str:
    if one.is_whole:
        return f"the whole thread, with {_count(one.checkpoints, 'checkpoint')}"
    events = f", events before commit {one.events_before}" if one.events_before > 1 else ""
    return _count(one.checkpoints, "checkpoint") + events


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _size(count: int) -> str:
    if count < 1024:
        return _count(count, "byte")
    units = ["KB", "MB", "GB", "TB"]
    size = count / 1024
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}"


Status = WorkflowRunState | str

LONGEST_PAUSE_SECONDS = 0.1
"""Between two threads. Otherwise it is as long as pruning the last one took."""

_AT_REST = {WorkflowRunState.IDLE, WorkflowRunState.FAILED, WorkflowRunState.CANCELLED}


@dataclass(frozen=True)
class _Wish:
    """What the caller asked for, checked."""

    keep_last: int | None
    older_than: timedelta | None
    states: frozenset[str] | None
    """None: threads of every status."""
    now: datetime

    def outdated(self, infos: list[CheckpointInfo], head: CheckpointInfo) -> Outdated:
        going = {one.number for one in infos}
        if self.keep_last is not None:
            going &= beyond_last(infos, head, self.keep_last)
        if self.older_than is not None:
            going &= made_before(infos, self.now, self.older_than)
        return all_but(infos, head, going)

    def is_old(self, thread: ThreadInfo) -> bool:
        moved = moment(thread.updated_at)
        return moved is not None and self.older_than is not None and self.now - moved > self.older_than


class PruningMethods(Access):
    """Of every storage over a store."""

    _recent: RecentThreads

    async def prune(
        self,
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
        """Forget checkpoints that are neither among the last `keep_last` of the line that leads to their thread's head
        nor younger than `older_than`; with one of the two given, that one decides. Heads and what is pinned stay. The
        space is given back.

        `whole_threads=True` deletes threads instead: those that moved last before `older_than` and are at rest, with
        nothing pending and nothing pinned. `status` narrows what is looked at to threads that stand so; a state that it
        names may also be deleted. `dry_run=True` changes nothing and reports the same. `progress` is called with how
        many threads are done, and how many there are. Raises ThreadNotFound for a `thread_id` that there is not.
        """
        wish = _checked(keep_last, older_than, status, whole_threads=whole_threads)
        found = await self._matching(wish, workflow_name, thread_id)
        before = 0 if dry_run else await self._size()
        pruned: list[PrunedThread] = []
        skipped: list[SkippedThread] = []
        for done, thread in enumerate(found, 1):
            began = monotonic()
            try:
                if whole_threads:
                    one = await self._prune_whole(thread, wish, dry_run=dry_run)
                else:
                    one = await self._prune_some(thread, wish, dry_run=dry_run)
            except ThreadBusy as busy:
                one = SkippedThread(thread.thread_id, f"run {busy.run_id!r} owns it")
            except (DamagedCheckpoint, DamagedStore) as damage:
                one = SkippedThread(thread.thread_id, f"it is damaged: {damage.reason}")
            if isinstance(one, PrunedThread):
                pruned.append(one)
            elif one is not None:
                skipped.append(one)
            if progress is not None:
                progress(done, len(found))
            if not dry_run and done < len(found):  # others may wait for the store: a long list must not keep them out
                await asyncio.sleep(min(monotonic() - began, LONGEST_PAUSE_SECONDS))
        freed = None if dry_run else max(0, before - await self._size())
        return PruneReport(tuple(pruned), tuple(skipped), freed, dry_run)

    async def _size(self) -> int:
        async with self.access("tell its size"):
            return await self.store.size()

    async def _matching(self, wish: _Wish, workflow_name: str | None, thread_id: str | None) -> list[ThreadInfo]:
        async with self.access("list threads"):
            found = await self.store.threads(workflow_name=workflow_name, thread_id=thread_id)
            if not found and thread_id is not None and not await self.store.threads(thread_id=thread_id):
                raise ThreadNotFound(thread_id)
        return [one for one in found if wish.states is None or one.status in wish.states]

    async def _prune_some(self, thread: ThreadInfo, wish: _Wish, *, dry_run: bool) -> PrunedThread | None:
        async with self.access("prune a thread"):
            infos = list(await self.store.infos(thread_id=thread.thread_id))
            outdated = wish.outdated(infos, infos[-1]) if infos else Outdated()  # the newest is the head
            count = len(outdated.checkpoints)
            if not dry_run:  # also where nothing goes: what was forgotten before may still take space
                going = [one.checkpoint_id for one in outdated.checkpoints]
                events_before = outdated.events_before if going else 0
                count = await self.store.prune(thread.thread_id, going, events_before=events_before)
                self._recent.changes += count > 0
        if not count:
            return None
        return PrunedThread(thread.thread_id, thread.workflow_name, count, outdated.events_before)

    async def _prune_whole(
        self, thread: ThreadInfo, wish: _Wish, *, dry_run: bool
    ) -> PrunedThread | SkippedThread | None:
        if not wish.is_old(thread):
            return None
        async with self.access("delete a thread"):
            reason = await self._reason_to_stay(thread, wish)
            infos = await self.store.infos(thread_id=thread.thread_id)
            if reason is None and not dry_run:
                is_gone = await self.store.delete_thread(thread.thread_id, if_unmoved_since=thread.number)
                reason = None if is_gone else "it was moved, sent to or pinned meanwhile, or is gone already"
        if reason is not None:
            return SkippedThread(thread.thread_id, reason)
        return PrunedThread(thread.thread_id, thread.workflow_name, len(infos), is_whole=True)

    async def _reason_to_stay(self, thread: ThreadInfo, wish: _Wish) -> str | None:
        if thread.run_id is not None:
            return f"run {thread.run_id!r} owns it"
        named = wish.states or frozenset()
        standing = await self.store.standing(thread.thread_id)
        if standing is None:
            return "it is gone already"
        if standing.pins:
            return f"it has pinned checkpoints: {len(standing.pins)}"
        if standing.inbox:
            return f"messages wait in its inbox: {len(standing.inbox)}"
        if thread.status in named:
            return None
        if standing.requests:
            return f"requests are pending: {len(standing.requests)}"
        if thread.status not in _AT_REST:
            return f"it is not at rest ({thread.status or 'without a status'})"
        if standing.due_at is not None:
            return f"it goes on by itself at {standing.due_at.isoformat()}"
        return None


# ---------------------------------------------------------------- what may be asked for


def _checked(
    keep_last: int | None,
    older_than: timedelta | datetime | None,
    status: Status | Iterable[Status] | None,
    *,
    whole_threads: bool,
) -> _Wish:
    now = datetime.now(UTC)
    if keep_last is not None:
        check_count(keep_last, "keep_last")
    age = None if older_than is None else _age(older_than, now)
    if whole_threads and (age is None or keep_last is not None):
        raise ValueError(
            "prune(whole_threads=True) deletes threads by the time of their last commit: give it older_than, and not "
            "keep_last. Nothing was removed."
        )
    if keep_last is None and age is None:
        raise ValueError(
            "prune() needs keep_last (how many checkpoints of each thread stay), older_than (a timedelta), or both. "
            "Nothing was removed."
        )
    return _Wish(keep_last, age, _states(status), now)


def _age(older_than: object, now: datetime) -> timedelta:
    if isinstance(older_than, datetime):
        if older_than.tzinfo is None:
            raise ValueError(f"older_than expects a time with a zone, such as datetime.now(UTC), got {older_than!r}.")
        older_than = now - older_than
    if not isinstance(older_than, timedelta):
        raise TypeError(f"older_than expects a timedelta, such as timedelta(days=30), or a time, got {older_than!r}.")
    if older_than < timedelta(0):
        raise ValueError(f"older_than expects a time that has passed, got one {-older_than} from now.")
    return older_than


def _states(status: Status | Iterable[Status] | None) -> frozenset[str] | None:
    if status is None:
        return None
    given = [status] if isinstance(status, str) else list(status)
    known = {one.value for one in WorkflowRunState}
    for one in given:
        if one not in known:
            hint = did_you_mean(str(one), sorted(known))
            raise ValueError(f"status expects run states such as 'IDLE' or 'FAILED', got {one!r}{hint}.")
    return frozenset(WorkflowRunState(one).value for one in given)
