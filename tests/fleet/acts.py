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
    """That somebody has claimed the thread."""

    by: str
    asked_at: int
    fence: int
    inbox: list[str]


@dataclass
class Told:
    """All that was said of one thread."""

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
        """Whether of some act it was not said what came of it."""
        return not set(self.begun) <= set(self.done) | self.refused


def read_logs(folder: Path) -> dict[str, Told]:
    """By thread id, what all processes said."""
    threads: dict[str, Told] = defaultdict(Told)
    for file in sorted(folder.glob("acts-*")):
        for line in file.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            _take(threads[one["thread_id"]], one)
    return dict(threads)


def _take(told: Told, one: dict[str, Any]) -> None:
    what, act = one["what"], one["act"]
    if what == "opened":
        told.opened.append(Opened(act, one["asked_at"], one["fence"], one["inbox"]))
    elif what == "begun":
        told.begun[act] = one["fence"]
        told.begun_at[act] = one["at"]
    elif what == "done":
        told.done[act] = one["number"]
        told.done_at[act] = one["at"]
        told.repeated += [item for item in one["consumed"] if item in told.consumed]
        told.consumed.update(dict.fromkeys(one["consumed"], act))
    elif what == "refused":
        told.refused.add(act)
    elif what == "posting":
        told.tried_posts.add(act)
    elif what == "posted":
        told.posted[act] = one["at"]
