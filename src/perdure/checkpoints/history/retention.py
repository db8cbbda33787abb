"""How much of a thread's history stays. Pure: retention selects checkpoints from a list, without a payload.

It never selects the head or a pinned checkpoint. A store deletes with a checkpoint only the chunks that no other needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from perdure.records import CheckpointInfo

T = TypeVar("T", bound=Any)
"""A checkpoint, or its info."""


class Outdated(NamedTuple):
    """The part of a thread that a store deletes."""

    checkpoints: tuple[CheckpointInfo, ...] = ()
    """Oldest first."""
    events_before: int = 0
    """Also the events of all commits before this number; 0: none."""


@dataclass(frozen=True)
class FullHistory:
    """Keeps everything, until the user prunes or deletes it. The default."""


@dataclass(frozen=True)
class LatestOnly:
    """Keeps the head of a thread: enough to resume it, without checkpoints to go back to."""


@dataclass(frozen=True)
class KeepLast:
    """Keeps so many checkpoints of the line that leads to the head. Deletes branches that a rewind left."""

    count: int

    def __post_init__(self) -> None:
        check_count(self.count, "KeepLast")


@dataclass(frozen=True)
class KeepFor:
    """Keeps checkpoints for so long, on any branch. The next commit deletes older ones."""

    duration: timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.duration, timedelta):
            raise TypeError(f"KeepFor expects a timedelta, such as timedelta(days=30), got {self.duration!r}.")
        if self.duration <= timedelta(0):
            raise ValueError(f"KeepFor expects a timedelta above zero, got {self.duration!r}. See also LatestOnly().")


Retention: TypeAlias = FullHistory | LatestOnly | KeepLast | KeepFor


def as_retention(argument: Any) -> Retention:
    """The retention of an argument; a class without arguments stands for its instance. Raises TypeError."""
    if argument is None:
        return FullHistory()
    if isinstance(argument, FullHistory | LatestOnly | KeepLast | KeepFor):
        return argument
    if argument is FullHistory or argument is LatestOnly:
        retention: Retention = argument()
        return retention
    raise TypeError(
        "retention expects FullHistory(), LatestOnly(), KeepLast(n) or KeepFor(timedelta), "
        f"got {getattr(argument, '__name__', None) or repr(argument)}.{_suggest(argument)}"
    )


def _suggest(argument: object) -> str:
    if argument is KeepLast or (isinstance(argument, int) and not isinstance(argument, bool)):
        return f" Did you mean KeepLast({argument if isinstance(argument, int) else 10})?"
    if argument is KeepFor or isinstance(argument, timedelta):
        return f" Did you mean KeepFor({argument if isinstance(argument, timedelta) else timedelta(days=30)!r})?"
    return ""


def check_count(count: object, what: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{what} expects a number of checkpoints, got {count!r}.")
    if count < 1:
        raise ValueError(f"{what} expects 1 checkpoint or more, got {count!r}: the head of a thread always stays.")


def find_outdated(
    retention: Retention, infos: Sequence[CheckpointInfo], head: CheckpointInfo, now: datetime | None
) -> Outdated:
    """`infos`: the checkpoints of a thread, oldest first, its head among them."""
    if isinstance(retention, FullHistory):
        return Outdated()
    if isinstance(retention, KeepFor):
        return select_outdated(infos, head, find_older(infos, now, retention.duration))
    return select_outdated(infos, head, find_beyond_last(infos, head, _kept_count(retention)))


def _kept_count(retention: Retention) -> int:
    return retention.count if isinstance(retention, KeepLast) else 1


def find_beyond_last(infos: Sequence[CheckpointInfo], head: CheckpointInfo, count: int) -> set[int]:
    """Numbers of the checkpoints that are not among the last `count` of the line to the head."""
    return {info.number for info in infos} - {info.number for info in line_to(infos, head, count)}


def find_older(infos: Iterable[CheckpointInfo], now: datetime | None, age: timedelta) -> set[int]:
    """Numbers of the checkpoints older than `age`, without those whose timestamp is not a time."""
    if now is None:
        return set()
    return {info.number for info in infos if (time := parse_time(info.timestamp)) is not None and now - time > age}


def select_outdated(infos: Sequence[CheckpointInfo], head: CheckpointInfo, numbers: set[int]) -> Outdated:
    """These checkpoints, without the head and pinned ones; and the events that only they need."""
    deleted = {info.number for info in infos if info.number in numbers and not info.is_pinned} - {head.number}
    kept = [info.number for info in infos if info.number not in deleted and not info.is_pinned]
    events_before = min(min(kept, default=head.number), find_entry(line_to(infos, head)))
    return Outdated(tuple(info for info in infos if info.number in deleted), events_before)


def line_to(infos: Iterable[T], head: T, count: int | None = None) -> list[T]:
    """The checkpoints that lead to the head, newest first, the head included; at most `count` of them."""
    by_id = {info.checkpoint_id: info for info in infos if info.number != head.number}
    line: list[T] = []
    current: T | None = head
    while current is not None and (count is None or len(line) < count):
        line.append(current)
        current = by_id.pop(current.previous_checkpoint_id or "", None)  # each once: a saved id may make a loop
    return line


def find_entry(line: Sequence[CheckpointInfo]) -> int:
    """The first commit of the thread's current or last work, where its log must begin: the one after the last
    checkpoint of the work before. 0 if unknown.

    Checkpoints of consecutive inputs, and of progress within the first superstep, have iteration 0, and the first of
    them may be pruned. So the checkpoint before them counts.
    """
    has_entry = False
    for info in line:
        if info.iteration_count == 0:
            has_entry = True
        elif has_entry:
            return info.number + 1
    return 0


def parse_time(timestamp: str) -> datetime | None:
    """None for a text that is not a time, which users may save. A time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


MAX_LIST_AGE = timedelta(seconds=60)
"""How long pins of other processes may stay unnoticed. Those of this storage object are noticed at once."""
MAX_CARRIED_ENTRIES = 10_000
"""A run does not pass longer lists to the next run."""


class RetentionIndex(msgspec.Struct):
    """The stored checkpoints of one thread, and which of them retention deletes next."""

    _retention: Retention
    _listed: Sequence[CheckpointInfo] | None
    """The list from the store, until the first checkpoint after it."""
    _changes: int
    _head: CheckpointInfo | None = None
    _listed_at: datetime | None = None
    _queue: list[tuple[datetime | int, int, bool]] = []
    """A heap, next to delete first: time or number; number; whether it is pinned."""
    _numbers: deque[int] = msgspec.field(default_factory=deque)
    """Of checkpoints that are not pinned, oldest first; some are deleted already."""
    _deleted: set[int] = set()
    _entry: int = 0
    """The result of `find_entry`."""
    _events_before: int = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def is_current(self, info: CheckpointInfo, retention: Retention, changes: int) -> bool:
        """Whether the list is still valid for a checkpoint: it follows the head, and the list did not change."""
        now = parse_time(info.timestamp)
        return (
            self._head is not None
            and info.previous_checkpoint_id == self._head.checkpoint_id
            and changes == self._changes
            and retention == self._retention
            and now is not None
            and self._listed_at is not None
            and abs(now - self._listed_at) < MAX_LIST_AGE
        )

    def add(self, info: CheckpointInfo) -> tuple[Sequence[int], int]:
        """Add the thread's next checkpoint. Returns the numbers of the checkpoints that its commit deletes, and before
        which commit it deletes events (0: no change)."""
        now = parse_time(info.timestamp)
        deleted = self._append(info, now) if self._listed is None else self._start(self._listed, info, now)
        self._head = info
        while self._numbers[0] in self._deleted:
            self._deleted.discard(self._numbers.popleft())
        before = min(self._numbers[0], self._entry)
        if before <= max(self._events_before, 1):
            return deleted, 0
        self._events_before = before
        return deleted, before

    def _start(self, listed: Sequence[CheckpointInfo], info: CheckpointInfo, now: datetime | None) -> list[int]:
        infos = [each for each in listed if each.checkpoint_id != info.checkpoint_id]  # a saved one replaces it
        infos.append(info)
        self._listed, self._listed_at = None, now
        numbers = [each.number for each in find_outdated(self._retention, infos, info, now).checkpoints]
        deleted = set(numbers)
        line = line_to(infos, info)
        self._entry = find_entry(line)
        self._numbers.extend(each.number for each in infos if each.number not in deleted and not each.is_pinned)
        counted = infos if isinstance(self._retention, KeepFor) else line[: _kept_count(self._retention)]
        for each in counted:
            if each.number not in deleted:
                self._push(each)
        return numbers

    def _append(self, info: CheckpointInfo, now: datetime | None) -> list[int]:
        if info.iteration_count == 0 and self._head is not None and self._head.iteration_count:
            self._entry = self._head.number + 1
        self._numbers.append(info.number)
        self._push(info)
        deleted = []
        while self._is_over(now):
            _, number, is_pinned = heappop(self._queue)
            if not is_pinned:
                deleted.append(number)
        self._deleted.update(deleted)
        return deleted

    def _push(self, info: CheckpointInfo) -> None:
        key = parse_time(info.timestamp) if isinstance(self._retention, KeepFor) else info.number
        if key is not None:  # else it never is outdated
            heappush(self._queue, (key, info.number, info.is_pinned))

    def _is_over(self, now: datetime | None) -> bool:
        if not isinstance(self._retention, KeepFor):
            return len(self._queue) > _kept_count(self._retention)
        if not self._queue or now is None:
            return False
        oldest = self._queue[0][0]
        return isinstance(oldest, datetime) and now - oldest > self._retention.duration
