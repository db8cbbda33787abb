"""How much work something is, counted and not timed: the same on any machine, however busy it is."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tests.parsing import SOURCE

from perdure.codecs.json_codec import JsonCodec
from perdure.stores.sqlite.connection import SqliteConnection


class Walk:
    """The calls inside the package, in every OS thread. A coroutine that resumes counts once more."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.is_on = False

    def watch(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            file = frame.f_code.co_filename[len(str(SOURCE)) + 1 :]
            self.calls[file, frame.f_code.co_qualname] += 1

    def count(self, function: Any) -> int:
        file = function.__code__.co_filename[len(str(SOURCE)) + 1 :]
        return self.calls[file, function.__qualname__]

    @property
    def counts(self) -> dict[str, int]:
        return {
            "files": len({file for file, _ in self.calls}),
            "calls": self.calls.total(),
            "encodings": self.count(JsonCodec.encode),
            "decodings": self.count(JsonCodec.decode),
            "codecs": self.count(JsonCodec.__init__),
            "transactions": self.count(SqliteConnection.transact),
        }

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count inside of `with`, from zero."""
        self.calls.clear()
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


@contextmanager
def watched() -> Iterator[Walk]:
    """Open it before the store: OS threads that start earlier are not watched."""
    walk = Walk()
    before = sys.getprofile()
    threading.setprofile(walk.watch)
    sys.setprofile(walk.watch)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@dataclass
class Lines:
    """Lines of Python that were executed; a turn of a loop or of a comprehension is one at least."""

    count: int = 0


@contextmanager
def counted_lines() -> Iterator[Lines]:
    """Those that this OS thread executes inside of `with`."""
    lines = Lines()

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        lines.count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def without_waiting(coroutine: Any) -> Any:
    """The result of a coroutine that never gives up the event loop; AssertionError if it does."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise AssertionError("it waited for something")
