"""What `perdure doctor` reports of any store: counts, without a judgement."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from perdure.platform import is_process_alive
from perdure.stores.process_identity import from_json, this_process


@dataclass(frozen=True)
class StoreContents:
    """The content of a store, counted."""

    threads: int = 0
    owned: int = 0
    """Threads that a living run owns."""
    left_behind: int = 0
    """Threads whose owner is dead: its process has ended, or its lease has expired."""
    overdue: int = 0
    """Threads without an owner that have been due for more than a minute."""
    commits: int = 0
    checkpoints: int = 0
    is_estimated: bool = False
    """Whether commits and checkpoints were too many to be counted."""
    requests: int = 0
    late_requests: int = 0
    """Requests whose deadline has passed."""
    inbox: int = 0
    """Items that were posted to threads, and not consumed yet."""
    processes: int = 0
    """Living processes that may own threads."""
    is_encrypted: bool = False


def is_owner_dead(identity: str | None, is_leased: bool) -> bool:
    """Whether the process of an owner, as a store keeps it, has ended or lost its lease."""
    if identity is None:
        return True
    try:
        process = from_json(identity)
    except (msgspec.DecodeError, TypeError):
        return not is_leased
    alive = True if process == this_process() else is_process_alive(process.identity)
    return not is_leased if alive is None else not alive
