"""The work of one streamed turn over HTTP, counted and not timed: a regression fails on any machine."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.parsing import SOURCE
from tests.server.routes.calling import Called, turn
from tests.server.serving import project

from perdure.checkpoints import follow
from perdure.codecs.json_codec import JsonCodec
from perdure.server import create_app
from perdure.stores.sqlite.connection import Connection

BUDGETS = {"files": 103, "calls": 2600, "encodings": 8, "decodings": 2, "codecs": 0, "transactions": 4}
"""At most this many, for a turn that begins a thread. The transactions: claim, input, superstep, release."""


class Walk:
    """The calls inside the package, in every OS thread."""

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
            "transactions": self.count(Connection.transact),
        }


@contextmanager
def watched() -> Iterator[Walk]:
    walk = Walk()
    before = sys.getprofile()
    threading.setprofile(walk.watch)
    sys.setprofile(walk.watch)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def test_streamed_turn_stays_within_its_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(follow, "MIN_POLL_SECONDS", 60.0)  # a busy machine reads no more often
    with watched() as walk:
        app = create_app(str(folder / "perdure.json"))
        try:
            called = Called(app)
            async with called.stream("POST", "/v1/graph/stream", turn("My name is Ann", "warm")) as stream:
                await stream.all()
            await app.service.recovery.stop()
            walk.is_on = True
            async with called.stream("POST", "/v1/graph/stream", turn("My name is Ann", "t")) as stream:
                chunks = await stream.all()
        finally:
            walk.is_on = False
            await app.aclose()
    assert [chunk.id for chunk in chunks if chunk.id is not None] == list(range(1, 9)), "the turn did its work"
    counts = walk.counts
    assert not {name: count for name, count in counts.items() if count > BUDGETS[name]}, counts
