"""What pruning came to, or would come to: for people, and as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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
