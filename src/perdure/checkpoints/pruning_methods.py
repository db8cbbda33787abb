"""Pruning by hand: the part of a storage that removes history by age, count, workflow and status.

Only lists are read, no payload. Threads may move meanwhile: what is chosen is not the head, later commits only push it
further back, and whatever continues from it keeps what it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

from perdure.checkpoints.locked import Access
from perdure.checkpoints.prune_report import PrunedThread, PruneReport, SkippedThread
from perdure.checkpoints.recent import RecentThreads
from perdure.checkpoints.retention import Outdated, all_but, beyond_last, check_count, made_before, moment
from perdure.errors import DamagedCheckpoint, DamagedStore, ThreadBusy, ThreadNotFound, did_you_mean
from perdure.events import WorkflowRunState
from perdure.records import CheckpointInfo, ThreadInfo

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
