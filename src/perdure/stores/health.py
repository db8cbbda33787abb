"""What is told of any store to whoever looks after it: counts, without a judgement."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from perdure.platform import is_process_alive
from perdure.stores.process_identity import from_json, this_process


@dataclass(frozen=True)
class StoreContents:
    """What is in a store."""

    threads: int = 0
    owned: int = 0
    """Threads that a run holds now."""
    left_behind: int = 0
    """Threads whose owner is gone: its process is dead, or its lease has run out."""
    overdue: int = 0
    """Threads without an owner that should have gone on by themselves more than a minute ago."""
    commits: int = 0
    checkpoints: int = 0
    is_estimated: bool = False
    """Whether commits and checkpoints were too many to be counted."""
    requests: int = 0
    late_requests: int = 0
    """Requests whose deadline has passed."""
    inbox: int = 0
    """What was sent to threads, and not taken in yet."""
    processes: int = 0
    """Those that live and may own threads."""
    is_encrypted: bool = False


def is_gone(identity: str | None, is_leased: bool) -> bool:
    """Whether an owner, as a store keeps it, moves nothing any more."""
    if identity is None:
        return True
    try:
        who = from_json(identity)
    except (msgspec.DecodeError, TypeError):
        return not is_leased
    alive = True if who == this_process() else is_process_alive(who.identity)
    return not is_leased if alive is None else not alive
