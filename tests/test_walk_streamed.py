"""The work of one streamed turn over HTTP, counted and not timed: a regression fails on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.counting import watched
from tests.server.routes.calling import Called, turn
from tests.server.serving import project

from perdure import isolation
from perdure.checkpoints import follow
from perdure.observing import observers
from perdure.server import create_app

BUDGETS = {"files": 89, "calls": 2300, "encodings": 7, "decodings": 1, "codecs": 0, "transactions": 4}
"""At most this many, for a turn that begins a thread. The transactions: claim, input, superstep, release."""


@pytest.fixture
def unobserved() -> Iterator[None]:
    """Apps that other tests left would count this engine's work too."""
    others = observers[:]
    observers.clear()
    yield
    observers.extend(others)


@pytest.mark.usefixtures("unobserved")
async def test_streamed_turn_stays_within_its_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(isolation, "_copied_otherwise", False)  # as in a new process: other tests have users' values
    monkeypatch.setattr(follow, "MIN_POLL_SECONDS", 60.0)  # a busy machine reads no more often
    with watched() as walk:
        app = create_app(str(folder / "perdure.json"))
        try:
            called = Called(app)
            async with called.stream("POST", "/v1/graph/stream", turn("My name is Ann", "warm")) as stream:
                await stream.all()
            await app.service.recovery.stop()
            with walk.on():
                async with called.stream("POST", "/v1/graph/stream", turn("My name is Ann", "t")) as stream:
                    chunks = await stream.all()
        finally:
            await app.aclose()
    assert [chunk.id for chunk in chunks if chunk.id is not None] == list(range(1, 9)), "the turn did its work"
    counts = walk.counts
    assert not {name: count for name, count in counts.items() if count > BUDGETS[name]}, counts
