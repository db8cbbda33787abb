"""How much of a thread's history stays. Pure: what goes is told from a list of checkpoints, without a payload.

The head and what is pinned never go. A checkpoint that goes takes with it only what no other needs: stores see to that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from perdure.records import CheckpointInfo


class Outdated(NamedTuple):
    """What is no longer to be kept of a thread."""

    checkpoints: tuple[CheckpointInfo, ...] = ()
    """Oldest first."""
    events_before: int = 0
    """The events of all commits before this number go; 0: none."""


@dataclass(frozen=True)
class FullHistory:
    """Keeps everything, until it is pruned or deleted. The default."""

    def outdated(self, infos: Sequence[CheckpointInfo], head: CheckpointInfo, at: datetime | None) -> Outdated:
        return Outdated()


@dataclass(frozen=True)
class LatestOnly:
    """Keeps the head of a thread: enough to resume it, and nothing to go back to."""

    def outdated(self, infos: Sequence[CheckpointInfo], head: CheckpointInfo, at: datetime | None) -> Outdated:
        return all_but(infos, head, beyond_last(infos, head, 1))


@dataclass(frozen=True)
class KeepLast:
    """Keeps so many checkpoints of the line that leads to the head. Branches that a rewind left go."""

    count: int

    def __post_init__(self) -> None:
        check_count(self.count, "KeepLast")

    def outdated(self, infos: Sequence[CheckpointInfo], head: CheckpointInfo, at: datetime | None) -> Outdated:
        return all_but(infos, head, beyond_last(infos, head, self.count))


@dataclass(frozen=True)
class KeepFor:
    """Keeps checkpoints for so long, on whatever branch they are. What is older goes with the next commit."""

    duration: timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.duration, timedelta):
            raise TypeError(f"KeepFor expects a timedelta, such as timedelta(days=30), got {self.duration!r}.")
        if self.duration <= timedelta(0):
            raise ValueError(f"KeepFor expects a timedelta above zero, got {self.duration!r}. See also LatestOnly().")

    def outdated(self, infos: Sequence[CheckpointInfo], head: CheckpointInfo, at: datetime | None) -> Outdated:
        return all_but(infos, head, made_before(infos, at, self.duration))


Retention: TypeAlias = FullHistory | LatestOnly | KeepLast | KeepFor
"""`outdated` takes the checkpoints of a thread, oldest first, its head among them, and the time that it is."""


def as_retention(given: Any) -> Retention:
    """Raises TypeError for anything but one of the four. A class that needs no arguments stands for its instance."""
    if given is None:
        return FullHistory()
    if isinstance(given, FullHistory | LatestOnly | KeepLast | KeepFor):
        return given
    if given is FullHistory or given is LatestOnly:
        made: Retention = given()
        return made
    raise TypeError(
        "retention expects FullHistory(), LatestOnly(), KeepLast(n) or KeepFor(timedelta), "
        f"got {getattr(given, '__name__', None) or repr(given)}.{_meant(given)}"
    )


def _meant(given: object) -> str:
    if given is KeepLast or (isinstance(given, int) and not isinstance(given, bool)):
        return f" Did you mean KeepLast({given if isinstance(given, int) else 10})?"
    if given is KeepFor or isinstance(given, timedelta):
        return f" Did you mean KeepFor({given if isinstance(given, timedelta) else timedelta(days=30)!r})?"
    return ""


def check_count(count: object, what: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{what} expects a number of checkpoints, got {count!r}.")
    if count < 1:
        raise ValueError(f"{what} expects 1 checkpoint or more, got {count!r}: the head of a thread always stays.")


# ---------------------------------------------------------------- which go, and which stay


def beyond_last(infos: Sequence[CheckpointInfo], head: CheckpointInfo, count: int) -> set[int]:
    """Numbers of those that are not among the last ones of the line that leads to the head."""
    kept = {one.number for one in line_to(infos, head, count)}
    return {one.number for one in infos if one.number not in kept}


def made_before(infos: Iterable[CheckpointInfo], at: datetime | None, age: timedelta) -> set[int]:
    """Numbers of those that are older. One without a time that can be read is not."""
    if at is None:
        return set()
    return {one.number for one in infos if (made := moment(one.timestamp)) is not None and at - made > age}


def all_but(infos: Sequence[CheckpointInfo], head: CheckpointInfo, going: set[int]) -> Outdated:
    """These, but never the head nor what is pinned; and the events that nobody needs without them."""
    going = {one.number for one in infos if one.number in going and not one.is_pinned} - {head.number}
    kept = [one.number for one in infos if one.number not in going and not one.is_pinned]
    oldest = min(kept, default=head.number)
    return Outdated(tuple(one for one in infos if one.number in going), min(oldest, entry_of(line_to(infos, head))))


def line_to(infos: Iterable[CheckpointInfo], head: CheckpointInfo, count: int | None = None) -> list[CheckpointInfo]:
    """The checkpoints that lead to the head, newest first, the head included; at most so many of them."""
    known = {one.checkpoint_id: one for one in infos if one.number != head.number}
    line: list[CheckpointInfo] = []
    at: CheckpointInfo | None = head
    while at is not None and (count is None or len(line) < count):
        line.append(at)
        at = known.pop(at.previous_checkpoint_id or "", None)  # never twice, whatever ids somebody saved by hand
    return line


def entry_of(line: Sequence[CheckpointInfo]) -> int:
    """Where the log of what the thread works on, or worked on last, begins: the commit after the last checkpoint that
    belongs to what was before. 0 if it is not known.

    Checkpoints of inputs that came one after the other, and of progress within the first superstep, have no iteration
    behind them; the first of them may be gone. So what counts is the one before.
    """
    has_begun = False
    for one in line:
        if one.iteration_count == 0:
            has_begun = True
        elif has_begun:
            return one.number + 1
    return 0


def moment(timestamp: str) -> datetime | None:
    """None for what somebody saved by hand with a time that is none. Without a zone it is taken to be UTC."""
    try:
        time = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


# ---------------------------------------------------------------- kept


TRUSTED = timedelta(seconds=60)
"""How long pins that other processes set or took away may stay unnoticed. Those of this storage object are noticed at
once."""
MAX_CARRIED_ENTRIES = 10_000
"""Longer lists are not carried from one run to the next."""


class RetentionIndex:
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
