"""Owners of threads are processes: the identity of this one, and whether another is alive.

For a process of this host and container the system answers at once. For any other only its lease counts: a living
process renews it, and one whose lease has expired counts as dead.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache

import msgspec

from perdure.errors import ThreadConflict
from perdure.platform import ProcessIdentity, is_process_alive, process_identity
from perdure.records import Lease

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
"""How often a process renews its lease: three times before it would expire."""


@lru_cache(maxsize=1)
def own_identity(pid: int) -> str:
    """The identity of this process, as a store keeps it: `own_identity(os.getpid())`, which differs after a fork."""
    return msgspec.json.encode(replace(process_identity(pid), token=os.urandom(8).hex())).decode()


def fence_conflict(lease: Lease, fence: int | None) -> ThreadConflict:
    """The error for a lease that is not that of the thread, whose fence this is; None for an unknown thread."""
    return ThreadConflict(lease.thread_id, f"with fence {lease.fence} of run {lease.owner!r}", f"fence {fence or 0}")


def is_owner_dead(identity: str | None, is_leased: bool) -> bool:
    """Whether the process of an owner, as a store keeps it, has ended; or lost its lease, where that cannot be seen."""
    if identity is None:
        return True
    if identity == own_identity(os.getpid()):
        return False
    try:
        process = msgspec.json.decode(identity, type=ProcessIdentity)
    except (msgspec.DecodeError, TypeError):  # an unreadable identity: only the lease counts
        return not is_leased
    alive = is_process_alive(process)
    return not is_leased if alive is None else not alive
