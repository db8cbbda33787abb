"""What a store keeps of one thread, as retention sees it: read once, then kept in step with the thread's commits.

A commit costs what goes with it, not what is there. Others may pin, unpin and prune meanwhile, and a store leaves alone
what is pinned whatever it is told. So a list that is a little old does no harm; it is read again before it is very old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

from perdure.checkpoints.retention import KeepFor, KeepLast, Retention, entry_of, line_to, moment
from perdure.records import CheckpointInfo

TRUSTED = timedelta(seconds=60)
"""How long pins that other processes set or took away may stay unnoticed. Those of this storage object are noticed at
once."""
KEPT_ENTRIES = 10_000
"""Longer lists are not carried from one run to the next."""


class KeptHistory:
    """The checkpoints of one thread, and which of them is the next to go."""

    def __init__(self, retention: Retention, infos: Sequence[CheckpointInfo], changes: int) -> None:
        self._retention = retention
        self._listed: Sequence[CheckpointInfo] | None = infos
        """As read, until the first checkpoint after it."""
        self._changes = changes
        self._head: CheckpointInfo | None = None
        self._read_at: datetime | None = None
        self._queue: list[tuple[datetime | int, int, bool]] = []
        """A heap, next to go first: when it was made, or else its number; its number; whether it is pinned."""
        self._numbers: deque[int] = deque()
        """Of those that are not pinned, oldest first; with some that are gone."""
        self._gone: set[int] = set()
        self._entry = 0
        """The commit that the log of the present work begins with; 0 if it is not known."""
        self._events_before = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def is_current(self, info: CheckpointInfo, retention: Retention, changes: int) -> bool:
        """Whether the list need not be read again for a checkpoint: nobody changed it, and it is the head's next."""
        at = moment(info.timestamp)
        return (
            self._head is not None
            and info.previous_checkpoint_id == self._head.checkpoint_id
            and changes == self._changes
            and retention == self._retention
            and at is not None
            and self._read_at is not None
            and abs(at - self._read_at) < TRUSTED
        )

    def add(self, info: CheckpointInfo) -> tuple[Sequence[int], int]:
        """The thread's next checkpoint: numbers of those that go with it, and before which commit events do (0: as
        before)."""
        at = moment(info.timestamp)
        gone = self._follow(info, at) if self._listed is None else self._begin(self._listed, info, at)
        self._head = info
        while self._numbers[0] in self._gone:
            self._gone.discard(self._numbers.popleft())
        before = min(self._numbers[0], self._entry)
        if before <= max(self._events_before, 1):
            return gone, 0
        self._events_before = before
        return gone, before

    def _begin(self, listed: Sequence[CheckpointInfo], info: CheckpointInfo, at: datetime | None) -> list[int]:
        infos = [one for one in listed if one.checkpoint_id != info.checkpoint_id]  # else it takes that one's place
        infos.append(info)
        self._listed, self._read_at = None, at
        gone = [one.number for one in self._retention.outdated(infos, info, at).checkpoints]
        going = set(gone)
        line = line_to(infos, info)
        self._entry = entry_of(line)
        self._numbers.extend(one.number for one in infos if one.number not in going and not one.is_pinned)
        counted = infos if isinstance(self._retention, KeepFor) else line[: self._count]
        self._queue = [entry for one in counted if one.number not in going and (entry := self._place(one)) is not None]
        heapify(self._queue)
        return gone

    def _follow(self, info: CheckpointInfo, at: datetime | None) -> list[int]:
        if info.iteration_count == 0 and self._head is not None and self._head.iteration_count:
            self._entry = self._head.number + 1
        self._numbers.append(info.number)
        place = self._place(info)
        if place is not None:
            heappush(self._queue, place)
        gone = []
        while self._is_over(at):
            _, number, is_pinned = heappop(self._queue)
            if not is_pinned:
                gone.append(number)
        self._gone.update(gone)
        return gone

    @property
    def _count(self) -> int:
        return self._retention.count if isinstance(self._retention, KeepLast) else 1

    def _place(self, info: CheckpointInfo) -> tuple[datetime | int, int, bool] | None:
        """In the queue; None for what cannot be outdated."""
        place = moment(info.timestamp) if isinstance(self._retention, KeepFor) else info.number
        return None if place is None else (place, info.number, info.is_pinned)

    def _is_over(self, at: datetime | None) -> bool:
        if not isinstance(self._retention, KeepFor):
            return len(self._queue) > self._count
        if not self._queue or at is None:
            return False
        made = self._queue[0][0]
        return isinstance(made, datetime) and at - made > self._retention.duration
