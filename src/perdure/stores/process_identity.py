"""Owners of threads are processes: who this one is, and whether another still lives.

A process that can be seen from here, on this host and in this container, is alive or dead, and that is known at once.
Of one that cannot be seen only its lease is known: it renews that while it lives, and is taken for dead when it runs
out.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from perdure.platform import ProcessIdentity, is_process_alive, process_identity

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
"""How often a process says that it lives; three times before anybody would take it for dead."""


@dataclass(frozen=True)
class Process:
    """One that owns threads, as a store keeps it."""

    boot_id: str
    pid_namespace: str
    pid: int
    started: str
    token: str
    """Tells two apart that nothing else does: hosts without a boot id."""

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.boot_id, self.pid_namespace, self.pid, self.started)


def this_process() -> Process:
    return _this_process(os.getpid())


@lru_cache(maxsize=1)
def _this_process(pid: int) -> Process:
    who = process_identity(pid)
    return Process(who.boot_id, who.pid_namespace, who.pid, who.started, os.urandom(8).hex())


def to_json(process: Process) -> str:
    return msgspec.json.encode(process).decode()


def from_json(text: str) -> Process:
    return msgspec.json.decode(text, type=Process)


def is_gone(process: Process, leased_until: float) -> bool:
    """Whether it is sure that the process moves nothing any more, or it may be taken for dead."""
    alive = True if process == this_process() else is_process_alive(process.identity)
    return time.time() > leased_until if alive is None else not alive
