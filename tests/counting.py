"""How much work something is, counted and not timed: the same on any machine, however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


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
