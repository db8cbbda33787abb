"""What handlers and steps note as they work, in a file that outlives them, and how a test reads that file."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TOKEN = re.compile(rb"#([\w.-]+)#")


class Notes:
    """Appends lines to a file, each with one `write`: what was written is the system's, so a kill cannot take it."""

    def __init__(self, path: Path | None = None) -> None:
        self.lines: list[str] = []
        """Where there is no file: for a test that needs no other process."""
        self.write_line: Callable[[str], object] = self.lines.append
        self.on_begin: Callable[[int], object] = lambda number: None
        """Called when work has begun, with how much of it by now."""
        self.begun = 0
        self._fd = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def put(self, *words: object) -> None:
        line = " ".join(map(str, words))
        if self._fd is None:
            self.write_line(line)
        else:
            os.write(self._fd, line.encode() + b"\n")


current = Notes()
"""Of this process."""

pace = 0.001
"""Seconds that a piece of work takes on average."""


def begin_notes(path: Path | None = None) -> Notes:
    global current
    current = Notes(path)
    return current


async def work(what: str) -> str:
    """Something that happens in the world, noted at its begin and end. Its result can be found in what is stored."""
    current.put("begin", what)
    current.begun += 1
    current.on_begin(current.begun)
    await asyncio.sleep(random.uniform(0, 2 * pace))
    current.put("end", what)
    return f"#{what}#"


def works_in(stored: bytes) -> list[str]:
    """Whose results are in there."""
    return [token.decode() for token in _TOKEN.findall(stored)]


# ---------------------------------------------------------------- reading the notes


@dataclass
class Story:
    """All lives of the threads of one trial, in the order of what happened. Threads are the first part of a name."""

    lives: int = 0
    begun: Counter[str] = field(default_factory=Counter)
    recorded: set[str] = field(default_factory=set)
    """What a store has acknowledged: by itself, or with its superstep."""
    recorded_repeated: list[str] = field(default_factory=list)
    unrecorded_repeated: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Threads that were found behind what was acknowledged."""
    in_flight: list[list[str]] = field(default_factory=list)
    """At the end of each life: what was begun, and is not recorded."""
    endings: dict[str, Any] = field(default_factory=dict)
    """By thread."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Number of the last commit, by thread."""
    _begun_now: set[str] = field(default_factory=set)
    _ended_now: set[str] = field(default_factory=set)

    def take(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        getattr(self, f"_{kind}")(rest)

    def _life(self, _: str) -> None:
        self.close_life()
        self.lives += 1

    def close_life(self) -> None:
        if self.lives:
            self.in_flight.append(sorted(self._begun_now - self.recorded))
        self._begun_now, self._ended_now = set(), set()

    def _begin(self, what: str) -> None:
        if what in self.recorded:
            self.recorded_repeated.append(what)
        elif self.begun[what]:
            self.unrecorded_repeated.append(what)
        self.begun[what] += 1
        self._begun_now.add(what)

    def _end(self, what: str) -> None:
        self._ended_now.add(what)

    def _recorded(self, what: str) -> None:
        self.recorded.update(what.split())

    def _committed(self, rest: str) -> None:
        thread_id, number, what = rest.split()
        self.acknowledged[thread_id] = int(number)
        if what == "superstep":
            self.recorded.update(work for work in self._ended_now if work.startswith(f"{thread_id}."))

    def _found(self, rest: str) -> None:
        thread_id, number = rest.split()
        if int(number) < self.acknowledged.get(thread_id, 0):
            self.lost.append(f"{thread_id}: commit {self.acknowledged[thread_id]} was acknowledged, found {number}")

    def _ended(self, rest: str) -> None:
        thread_id, _, ending = rest.partition(" ")
        self.endings[thread_id] = json.loads(ending)


def read_story(path: Path) -> Story:
    story = Story()
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):  # else its writer was killed in the middle of it
            story.take(line[:-1])
    story.close_life()
    return story
