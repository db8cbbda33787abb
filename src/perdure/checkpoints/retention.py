"""How much of a thread's history stays. Pure: what goes is told from a list of checkpoints, without a payload.

The head and what is pinned never go. A checkpoint that goes takes with it only what no other needs: stores see to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
