"""What processes say that they did, written down before and after each act, so that even a killed one has said it."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Log:
    """One process's file of acts."""

    def __init__(self, file: Path) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def put(self, what: str, thread_id: str, act: str, **more: Any) -> None:
        """`begun`, then `done` (acknowledged), `refused` (an error that says that nothing was written) or neither."""
        # This clock is the same for all processes of a machine.
        line = json.dumps({"what": what, "thread_id": thread_id, "act": act, "at": time.monotonic_ns(), **more})
        os.write(self._fd, line.encode() + b"\n")


@dataclass(frozen=True)
class Opened:
    """A claim of the thread by an owner."""

    by: str
    asked_at: int
    fence: int
    inbox: list[str]


@dataclass
class ThreadLog:
    """All acts that the processes logged for one thread."""

    opened: list[Opened] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    """Its fence, by act."""
    done: dict[str, int] = field(default_factory=dict)
    """Number of the commit, by act."""
    begun_at: dict[str, int] = field(default_factory=dict)
    done_at: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    posted: dict[str, int] = field(default_factory=dict)
    """When the posting was acknowledged, by item."""
    tried_posts: set[str] = field(default_factory=set)
    consumed: dict[str, str] = field(default_factory=dict)
    """By item, the acknowledged act that took it in."""
    repeated: list[str] = field(default_factory=list)
    """Items that were handed out to be taken in although that had been done."""

    @property
    def has_unknown(self) -> bool:
        """Whether the outcome of some act is not in the log."""
        return not set(self.begun) <= set(self.done) | self.refused


def read_logs(folder: Path) -> dict[str, ThreadLog]:
    """Return the log entries of all processes, by thread id."""
    threads: dict[str, ThreadLog] = defaultdict(ThreadLog)
    for file in sorted(folder.glob("acts-*")):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            _take(threads[entry["thread_id"]], entry)
    return dict(threads)


def _take(log: ThreadLog, entry: dict[str, Any]) -> None:
    what, act = entry["what"], entry["act"]
    if what == "opened":
        log.opened.append(Opened(act, entry["asked_at"], entry["fence"], entry["inbox"]))
    elif what == "begun":
        log.begun[act] = entry["fence"]
        log.begun_at[act] = entry["at"]
    elif what == "done":
        log.done[act] = entry["number"]
        log.done_at[act] = entry["at"]
        log.repeated += [item for item in entry["consumed"] if item in log.consumed]
        log.consumed.update(dict.fromkeys(entry["consumed"], act))
    elif what == "refused":
        log.refused.add(act)
    elif what == "posting":
        log.tried_posts.add(act)
    elif what == "posted":
        log.posted[act] = entry["at"]
