"""Durability: what a kill can take is what was chosen, measured with real kills; and `async` really overlaps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chance import SOAK
from tests.crash import notes
from tests.crash.loss_windows import PAUSE_AFTER, ROUNDS, THREAD, measure, rounds
from tests.crash.zygote import Zygote

from perdure import InMemoryCheckpointStorage
from perdure.testing import Faults

KILLS = 30 if SOAK else 3
STORES = ["file", "sqlite", "postgres"]


@pytest.mark.parametrize("place", STORES)
async def test_sync_loses_nothing_but_the_superstep_in_flight(
    place: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    window = await measure(zygote, tmp_path, place, {"durability": "sync"}, KILLS, seed)
    assert window.most <= 0
    assert window.tally.problems == []


@pytest.mark.parametrize("max_lag", [1, 3, 8])
@pytest.mark.parametrize("place", STORES)
async def test_async_never_loses_more_supersteps_than_max_lag(
    place: str, max_lag: int, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    window = await measure(zygote, tmp_path, place, {"durability": "async", "max_lag": max_lag}, KILLS, seed)
    assert window.most <= max_lag
    assert window.tally.problems == []


@pytest.mark.parametrize("place", STORES)
async def test_exit_goes_back_to_the_input_or_to_the_last_pause(
    place: str, zygote: Zygote, seed: int, tmp_path: Path
) -> None:
    window = await measure(zygote, tmp_path, place, {"durability": "exit"}, KILLS, seed)
    assert window.saved is not None and window.saved <= {0, PAUSE_AFTER, ROUNDS}
    assert window.tally.problems == []


# ---------------------------------------------------------------- in one process


@pytest.fixture
def _work_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(notes, "pace", 0)
    notes.begin_notes()
    yield
    notes.begin_notes()


def begins(number: int) -> asyncio.Event:
    """Set when that round begins."""
    event, write_line = asyncio.Event(), notes.current.write_line

    def notice(line: str) -> None:
        write_line(line)
        if line == f"begin {THREAD}.{number}":
            event.set()

    notes.current.write_line = notice
    return event


@pytest.mark.usefixtures("_work_takes_no_time")
async def test_next_superstep_begins_during_a_commit_with_async_durability(faults: Faults) -> None:
    second = begins(2)
    with faults.pause("commit", nth=2) as pause:
        storage = faults.wrap(InMemoryCheckpointStorage())
        run = asyncio.create_task(rounds(storage).run(1, thread_id=THREAD, durability="async"))
        await pause
        await second.wait()
        assert faults.counts["commit"] == 2 and not run.done()
    assert (await run).get_request_info_events()


@pytest.mark.usefixtures("_work_takes_no_time")
async def test_next_superstep_waits_for_the_commit_with_sync_durability(faults: Faults) -> None:
    second = begins(2)
    with faults.pause("commit", nth=2) as pause:
        run = asyncio.create_task(rounds(faults.wrap(InMemoryCheckpointStorage())).run(1, thread_id=THREAD))
        await pause
        await many_turns()
        assert not second.is_set()
    await run
    assert second.is_set()


@pytest.mark.usefixtures("_work_takes_no_time")
@pytest.mark.parametrize("max_lag", [1, 2, 4])
async def test_the_engine_waits_rather_than_exceed_max_lag(max_lag: int, faults: Faults) -> None:
    last_allowed, first_refused = begins(max_lag + 1), begins(max_lag + 2)
    with faults.pause("commit", nth=2) as pause:
        storage = faults.wrap(InMemoryCheckpointStorage())
        run = asyncio.create_task(rounds(storage).run(1, thread_id=THREAD, durability="async", max_lag=max_lag))
        await pause
        await last_allowed.wait()  # as many before it are unsaved as may be
        await many_turns()
        assert not first_refused.is_set()
    await run
    assert first_refused.is_set()


async def many_turns() -> None:
    """More than a superstep needs that waits for nothing but its turn."""
    for _ in range(1000):
        await asyncio.sleep(0)
