"""Commits that lag behind the run: in order, never too many, and none after one that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from perdure.checkpoints.thread import AsyncCommits


class Writes:
    """Writes that end on request, with lists of those that began and ended."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self._gates: dict[int, asyncio.Future[None]] = {}

    def write(self, number: int) -> Callable[[], Coroutine[Any, Any, None]]:
        gate = self._gates[number] = asyncio.get_running_loop().create_future()

        async def write() -> None:
            self.begun.append(number)
            await gate
            self.ended.append(number)

        return write

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self._gates[number].set_result(None)

    def fail(self, number: int, error: Exception) -> None:
        self._gates[number].set_exception(error)


async def turns(count: int = 20) -> None:
    """Give the event loop time for all pending steps."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_writes_are_made_one_after_the_other_in_order() -> None:
    lagging, writes = AsyncCommits(8), Writes()
    for number in range(5):
        await lagging.add(writes.write(number))
    writes.end(4, 3, 1)
    await turns()
    assert writes.begun == [0]
    writes.end(0)
    await turns()
    assert (writes.begun, writes.ended) == ([0, 1, 2], [0, 1])
    writes.end(2)
    await lagging.settle()
    assert writes.ended == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("most", [1, 2, 8])
async def test_unsaved_commits_never_exceed_the_limit(most: int) -> None:
    lagging, writes = AsyncCommits(most), Writes()
    for number in range(most):
        await lagging.add(writes.write(number))
    adding = asyncio.create_task(lagging.add(writes.write(most)))
    await turns()
    assert not adding.done()
    writes.end(0)
    await adding
    again = asyncio.create_task(lagging.add(writes.write(most + 1)))
    await turns()
    assert not again.done()
    writes.end(*range(1, most + 2))
    await again
    await lagging.settle()
    assert writes.ended == list(range(most + 2))


async def test_two_waiting_adds_proceed_one_by_one() -> None:
    lagging, writes = AsyncCommits(1), Writes()
    await lagging.add(writes.write(0))
    both = [asyncio.create_task(lagging.add(writes.write(number))) for number in (1, 2)]
    await turns()
    writes.end(0)
    await turns()
    assert [task.done() for task in both] == [True, False]
    writes.end(1, 2)
    await asyncio.gather(*both)
    await lagging.settle()
    assert writes.ended == [0, 1, 2]


async def test_settle_waits_for_all_writes_and_ends_at_once_without_writes() -> None:
    lagging, writes = AsyncCommits(8), Writes()
    await lagging.settle()
    for number in range(3):
        await lagging.add(writes.write(number))
    settling = asyncio.create_task(lagging.settle())
    writes.end(0, 1)
    await turns()
    assert not settling.done()
    writes.end(2)
    await settling


async def test_nothing_is_written_after_a_write_that_failed() -> None:
    lagging, writes = AsyncCommits(8), Writes()
    for number in range(4):
        await lagging.add(writes.write(number))
    writes.end(0, 2, 3)
    writes.fail(1, OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await lagging.settle()
    await lagging.settle()
    assert (writes.begun, writes.ended) == ([0, 1], [0])


async def test_every_add_after_a_failure_raises() -> None:
    lagging, writes = AsyncCommits(8), Writes()
    await lagging.add(writes.write(0))
    writes.fail(0, OSError("disk full"))
    await turns()
    for number in (1, 2):
        with pytest.raises(OSError, match="disk full"):
            await lagging.add(writes.write(number))
    await lagging.settle()
    assert writes.begun == [0]


async def test_add_that_waits_for_room_raises_the_failure() -> None:
    lagging, writes = AsyncCommits(1), Writes()
    await lagging.add(writes.write(0))
    adding = asyncio.create_task(lagging.add(writes.write(1)))
    await turns()
    writes.fail(0, OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await adding
    await lagging.settle()
    assert writes.begun == [0]


async def test_all_adds_that_wait_for_room_raise_the_failure() -> None:
    lagging, writes = AsyncCommits(1), Writes()
    await lagging.add(writes.write(0))
    both = [asyncio.create_task(lagging.add(writes.write(number))) for number in (1, 2)]
    await turns()
    writes.fail(0, OSError("disk full"))
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    await lagging.settle()
    assert [type(outcome) for outcome in outcomes] == [OSError, OSError]
    assert writes.begun == [0]


async def test_cancelling_a_waiter_cancels_no_write() -> None:
    lagging, writes = AsyncCommits(2), Writes()
    for number in range(2):
        await lagging.add(writes.write(number))
    waiting = [asyncio.create_task(lagging.add(writes.write(2))), asyncio.create_task(lagging.settle())]
    await turns()
    for task in waiting:
        task.cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, asyncio.CancelledError]
    writes.end(0, 1)
    await lagging.settle()
    assert writes.ended == [0, 1]


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_no_write_begins_after_a_cancelled_write(which: int) -> None:
    lagging, writes = AsyncCommits(8), Writes()
    before = asyncio.all_tasks()
    for number in range(4):
        await lagging.add(writes.write(number))
        await turns()
    made = asyncio.all_tasks() - before
    lines = sorted(made, key=lambda task: int(task.get_name().rpartition("-")[2]))
    lines[which].cancel()
    await turns()
    writes.end(*[number for number in range(4) if number != which or which])
    with pytest.raises(asyncio.CancelledError):
        await lagging.settle()
    await lagging.settle()
    assert writes.ended == list(range(len(writes.ended)))  # without a gap
    assert len(writes.ended) <= which
