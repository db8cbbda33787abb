"""Promise 14 across processes: a dead owner is noticed at once, one that lives is respected until its lease ends."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.promises.processes import Other, Place, Raised
from tests.promises.stages import Does, Stage, alone, entries, ledger

from perdure import ThreadBusy, Workflow, WorkflowContext
from perdure.stores.process_identity import LEASE_SECONDS


async def held(place: Place) -> Other:
    """A process that owns thread `t`, in its handler."""
    owner = place.run(ledger, "first", held=["ledger"])
    await owner.wait_for("entered", "ledger")
    return owner


async def written(place: Place) -> list[str]:
    async with place.storage() as storage:
        return await entries(storage)


async def refused(place: Place) -> None:
    """A run meets ThreadBusy, and writes nothing."""
    async with place.storage() as storage:
        before = await storage.list_checkpoint_ids()
        with pytest.raises(ThreadBusy, match="Thread 't' is being run by run 'run-"):
            await ledger(Stage(), storage).run("refused", thread_id="t")
        assert await storage.list_checkpoint_ids() == before


HOUR = 3600.0
"""Longer than any test."""


def change_owner(place: Place, leased_seconds: float = LEASE_SECONDS, **changes: Any) -> None:
    """Change the stored identity of the owner directly in the tables."""
    query = "SELECT p.process, p.identity FROM {s}processes p JOIN {s}threads t ON t.process = p.process"
    ((process, identity),) = place.read(query)
    place.change(
        json.dumps({**json.loads(identity), **changes}),
        time.time() + leased_seconds,
        process,
        sqlite="UPDATE processes SET identity = ?, leased_until = ? WHERE process = ?",
        postgres="UPDATE {s}.processes SET identity = $1, leased_until = to_timestamp($2) WHERE process = $3",
    )


# ---------------------------------------------------------------- dead, alive, invisible


async def test_an_owner_that_was_killed_is_noticed_at_once(place: Place) -> None:
    owner = await held(place)
    await owner.kill()
    change_owner(place, HOUR)
    assert await place.run(ledger).result() == [["first"]], "no run waits so long for the lease"


async def test_a_killed_owner_is_noticed_by_an_object_that_was_busy_before(place: Place) -> None:
    owner = await held(place)
    async with place.storage() as storage:
        workflow = ledger(Stage(), storage)
        with pytest.raises(ThreadBusy):
            await workflow.run(thread_id="t")
        await owner.kill()
        assert (await workflow.run(thread_id="t")).get_outputs() == [["first"]]


async def test_an_owner_that_was_stopped_is_alive(place: Place) -> None:
    """It may wake and continue at any time: only the caller can decide to take over."""
    owner = await held(place)
    owner.stop()
    await refused(place)
    assert await place.run(ledger, takeover=True).result() == [["first"]]
    owner.resume()
    owner.open_gate("ledger")
    with pytest.raises(Raised, match="ThreadConflict"):
        await owner.result()
    assert await written(place) == ["first"]


async def test_process_that_reuses_the_pid_of_a_dead_owner_is_not_the_owner(place: Place) -> None:
    owner = await held(place)
    await owner.kill()
    change_owner(place, pid=os.getpid())
    assert await place.run(ledger).result() == [["first"]], "a process that began at another time is another one"


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another machine"}, {"pid_namespace": "pid:[1]"}])
async def test_invisible_owner_is_respected_until_its_lease_expires(place: Place, elsewhere: dict[str, Any]) -> None:
    owner = await held(place)
    await owner.kill()
    change_owner(place, **elsewhere)
    await refused(place)
    change_owner(place, leased_seconds=-0.001)
    assert await place.run(ledger).result() == [["first"]]


async def test_takeover_does_not_wait_for_the_lease_of_an_invisible_owner(place: Place) -> None:
    owner = await held(place)
    change_owner(place, boot_id="another machine")
    assert await place.run(ledger, takeover=True).result() == [["first"]]
    owner.open_gate("ledger")
    with pytest.raises(Raised, match="ThreadConflict"):
        await owner.result()


def dozing(stage: Stage, storage: Any) -> Workflow:
    async def doze(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.sleep(timedelta(days=1))

    return alone(Does("doze", doze), storage)


async def test_thread_of_a_killed_owner_is_listed_without_owner_and_is_due(place: Place) -> None:
    """A process that looks for work finds the thread."""
    owner = place.run(dozing, "x")
    await owner.wait_for("waits")
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    async with place.storage() as storage:
        assert [str(thread.run_id)[:4] for thread in await storage.list_threads()] == ["run-"]
        assert await storage.store.due(tomorrow) == []
        await owner.kill()
        assert [thread.run_id for thread in await storage.list_threads()] == [None]
        assert [thread.thread_id for thread in await storage.store.due(tomorrow)] == ["t"]


# ---------------------------------------------------------------- on_busy


async def test_reject_leaves_the_owner_in_another_process_alone(place: Place) -> None:
    owner = await held(place)
    rejected = place.run(ledger, "second")
    with pytest.raises(Raised, match=r"ThreadBusy: .*Thread 't' is being run by run 'run-.*on_busy="):
        await rejected.result()
    owner.open_gate("ledger")
    assert await owner.result() == [["first"]]
    assert await place.run(ledger, "third").result() == [["first", "third"]]


async def test_enqueue_waits_for_owners_in_other_processes(place: Place) -> None:
    owner = await held(place)
    waiting = [place.run(ledger, f"{number}", on_busy="enqueue") for number in range(3)]
    for other in waiting:
        await other.wait_for("busy", "t")
    owner.open_gate("ledger")
    assert await owner.result() == [["first"]]
    lists = [(await other.result())[-1] for other in waiting]
    assert sorted(map(len, lists)) == [2, 3, 4], "one after the other"
    assert sorted(await written(place)) == ["0", "1", "2", "first"]


async def test_waiting_process_gets_the_thread_when_its_owner_is_killed(place: Place) -> None:
    """And what the owner had accepted comes first."""
    owner = await held(place)
    waiting = place.run(ledger, "second", on_busy="enqueue")
    await waiting.wait_for("busy", "t")
    change_owner(place, HOUR)  # no run waits so long
    await owner.kill()
    assert (await waiting.result())[-1] == ["first", "second"]


async def test_process_killed_while_it_waits_leaves_no_trace(place: Place) -> None:
    owner = await held(place)
    waiting = place.run(ledger, "never accepted", on_busy="enqueue")
    await waiting.wait_for("busy", "t")
    await waiting.kill()
    owner.open_gate("ledger")
    assert await owner.result() == [["first"]]
    assert await place.run(ledger, "third").result() == [["first", "third"]]


async def test_interrupt_takes_a_thread_of_another_process_and_keeps_its_message(place: Place) -> None:
    owner = await held(place)
    assert (await place.run(ledger, "second", on_busy="interrupt").result())[-1] == ["first", "second"]
    owner.open_gate("ledger")
    with pytest.raises(Raised, match=r"ThreadConflict.*Nothing was stored"):
        await owner.result()
    assert await written(place) == ["first", "second"]


async def test_a_busy_thread_of_another_process_does_not_hold_up_the_others(place: Place) -> None:
    owner = await held(place)
    assert await place.run(ledger, "x", thread_id="other").result() == [["x"]]
    owner.open_gate("ledger")
    assert await owner.result() == [["first"]]
