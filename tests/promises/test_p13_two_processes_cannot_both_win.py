"""Promise 13: of two processes that move one thread the loser gets ThreadConflict, and nothing of it is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.promises.processes import FarStage, Other, Place, Raised
from tests.promises.stages import Boom, Stage, entries, fan, ledger

from perdure import ThreadConflict
from perdure.checkpoints.storage import StoreCheckpointStorage


async def everything(storage: StoreCheckpointStorage) -> Any:
    """All that the store holds of thread `t`, except its owner."""
    events = await storage.store.events_after("t", 0)
    opened = await storage.store.open("t", "onlooker", takeover=True)
    await storage.store.release(opened.lease)
    return await storage.list_checkpoint_infos(), opened.number, opened.journal, opened.inbox, events


async def loses(other: Other) -> str:
    with pytest.raises(Raised, match="was changed by another owner") as raised:
        await other.result()
    assert raised.value.name == "ThreadConflict"
    return str(raised.value)


async def test_a_process_that_was_taken_over_stores_nothing(place: Place) -> None:
    slow = place.run(ledger, "first", held=["ledger"])
    await slow.wait_for("entered", "ledger")
    assert await place.run(ledger, takeover=True).result() == [["first"]]
    async with place.storage() as storage:
        before = await everything(storage)
        slow.open_gate("ledger")
        assert "Nothing was stored" in await loses(slow)
        assert await everything(storage) == before


async def test_takeover_wins_before_it_has_written_anything(place: Place) -> None:
    """The number of the commit is the next one for both of them: only the fence distinguishes them."""
    slow = place.run(ledger, "first", held=["ledger"])
    await slow.wait_for("entered", "ledger")
    winner = place.run(ledger, takeover=True, held=["ledger"])
    await winner.wait_for("entered", "ledger")
    slow.open_gate("ledger")
    await loses(slow)
    winner.open_gate("ledger")
    assert await winner.result() == [["first"]]


async def test_stopped_process_that_was_taken_over_stores_nothing_when_it_wakes(place: Place) -> None:
    stopped = place.run(ledger, "first", held=["ledger"])
    await stopped.wait_for("entered", "ledger")
    stopped.stop()
    assert await place.run(ledger, takeover=True).result() == [["first"]]
    async with place.storage() as storage:
        before = await everything(storage)
        stopped.open_gate("ledger")
        stopped.resume()
        await loses(stopped)
        assert await everything(storage) == before


async def test_a_process_that_was_taken_over_puts_nothing_into_the_journal(place: Place) -> None:
    """The winner is still at work when the loser finishes a delivery: that one must run in the winner all the same."""
    loser = place.run(fan, "x", held=["a", "b"])
    await loser.wait_for("recorded", 1)
    winner = place.run(fan, takeover=True, held=["a", "b"])
    await winner.wait_for("entered", "b")
    loser.open_gate("a")
    await loses(loser)
    await winner.kill()
    last = place.run(fan)
    assert await last.result() == ["x-source-a+x-source-b+x-source-c"]
    assert sorted(last.calls) == ["a(x-source)", "b(x-source)", "join(x-source-a+x-source-b+x-source-c)"]


async def contend(stage: FarStage, storage: StoreCheckpointStorage, name: str) -> list[str]:
    """Take the thread from the others again and again; the messages of runs that came to their end."""
    won = []
    stage.report("ready")
    await stage.play("start", name)
    for number in range(6):
        try:
            await ledger(Stage(), storage).run(f"{name}{number}", thread_id="t", on_busy="interrupt")
            won.append(f"{name}{number}")
        except ThreadConflict:
            pass
    return won


async def test_processes_that_take_over_all_the_time_leave_one_line_of_commits(place: Place) -> None:
    contenders = [place.start(contend, name, held=["start"]) for name in "abc"]
    for contender in contenders:
        await contender.wait_for("ready")
    for contender in contenders:
        contender.open_gate("start")
    won = [
        message
        for messages in await asyncio.gather(*(contender.result() for contender in contenders))
        for message in messages
    ]
    async with place.storage() as storage:
        await ledger(Stage(), storage).run("last", thread_id="t")
        written = await entries(storage)
        infos = await storage.list_checkpoint_infos(thread_id="t")
        moved = [message.data for message in await ledger(Stage(), storage).messages("t")]
    assert len(set(written)) == len(written), "none was delivered twice"
    assert set(won) <= set(written), "what a winner wrote is there"
    assert [info.previous_checkpoint_id for info in infos] == [None, *[info.checkpoint_id for info in infos[:-1]]]
    assert [info.number for info in infos] == sorted({info.number for info in infos})
    assert moved == written, "every message was delivered by the line that won"


async def test_loser_can_return_and_continues_from_the_winner(place: Place) -> None:
    slow = place.run(fan, "x", held=["b"])
    await slow.wait_for("recorded", 2)
    assert len(await place.run(fan, takeover=True).result()) == 1
    slow.open_gate("b")
    await loses(slow)
    again = place.run(fan)
    assert await again.result() == ["x-source-a+x-source-b+x-source-c"]
    assert again.calls == []


async def test_within_one_process_two_storages_on_one_place_are_two_owners(place: Place) -> None:
    """As a web server with several workers has it."""
    stage = Stage()
    stage.close("ledger")
    async with place.storage() as first_storage, place.storage() as second_storage:
        slow = asyncio.create_task(ledger(stage, first_storage).run("first", thread_id="t"))
        await stage.entered["ledger"].wait()
        gate = stage.gates.pop("ledger")
        await ledger(stage, second_storage).run("second", thread_id="t", on_busy="interrupt")
        gate.set()
        with pytest.raises(ThreadConflict):
            await slow
        assert await entries(first_storage) == await entries(second_storage) == ["first", "second"]


async def test_two_objects_on_one_storage_cannot_both_win(storage: StoreCheckpointStorage) -> None:
    """On every store, also where the winner has not written anything when the loser tries to."""
    stage = Stage()
    stage.close("ledger")
    slow = asyncio.create_task(ledger(stage, storage).run("first", thread_id="t"))
    await stage.entered["ledger"].wait()
    slow_gate = stage.gates["ledger"]
    stage.close("ledger")
    winner = asyncio.create_task(ledger(stage, storage).run(thread_id="t", takeover=True))
    await stage.entered["ledger"].wait()
    slow_gate.set()
    with pytest.raises(ThreadConflict, match="Nothing was stored"):
        await slow
    stage.gates["ledger"].set()
    assert (await winner).get_outputs() == [["first"]]
    assert await entries(storage) == ["first"]


async def test_failed_run_that_was_taken_over_raises_and_stores_nothing(place: Place) -> None:
    stage = Stage()
    stage.close("ledger")
    async with place.storage() as first_storage, place.storage() as second_storage:
        slow = asyncio.create_task(ledger(stage, first_storage).run("first", thread_id="t"))
        await stage.entered["ledger"].wait()
        gate = stage.gates.pop("ledger")
        await ledger(stage, second_storage).run(thread_id="t", takeover=True)
        before = await everything(second_storage)
        stage.failing = {"ledger"}
        gate.set()
        with pytest.raises(Boom):
            await slow
        assert await everything(second_storage) == before
