"""Fault points: something happens at the call that was named, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.six_methods import SixMethods
from tests.unit.testing.flows import fan_out, two_steps

from perdure import InMemoryCheckpointStorage, StorageFailed, ThreadBusy, Workflow
from perdure.testing import Faults, FaultyStorage, InjectedFault, ProcessGone

COMMITS = 3
"""Of an undisturbed run of `two_steps`: the input, and two supersteps."""


def faulty(faults: Faults) -> tuple[Workflow, InMemoryCheckpointStorage]:
    storage = InMemoryCheckpointStorage()
    return two_steps(faults.wrap(storage)), storage


async def head(storage: InMemoryCheckpointStorage) -> int:
    infos = await storage.list_checkpoint_infos()
    return infos[-1].number if infos else 0


async def test_without_faults_a_wrapped_storage_is_the_storage() -> None:
    faults = Faults()
    workflow, storage = faulty(faults)
    result = await workflow.run("hi", thread_id="t")
    assert result.get_outputs() == ["<HI>"]
    assert faults.counts == {"open": 1, "commit": COMMITS, "release": 1}
    assert await head(storage) == COMMITS
    latest = await workflow.run(thread_id="t", checkpoint_storage=storage)
    assert latest.get_outputs() == ["<HI>"]


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@pytest.mark.parametrize(("when", "stored"), [("before", -1), ("after", 0)])
async def test_the_named_commit_fails_and_only_after_means_that_it_is_stored(nth: int, when: Any, stored: int) -> None:
    faults = Faults()
    workflow, storage = faulty(faults)
    faults.fail("commit", nth=nth, when=when)
    with pytest.raises(StorageFailed, match=f"failed commit {when} call {nth}") as raised:
        await workflow.run("hi", thread_id="t")
    assert isinstance(raised.value.__cause__, InjectedFault)
    assert await head(storage) == nth + stored


async def test_the_error_can_be_chosen_and_comes_once() -> None:
    faults = Faults()
    storage = faults.wrap(InMemoryCheckpointStorage())
    faults.fail("journal", error=OSError("the disk is full"))
    with pytest.raises(StorageFailed, match="the disk is full"):
        await fan_out(storage).run("hi", thread_id="t")
    result = await fan_out(storage).run(thread_id="t")
    assert sorted(result.get_outputs()) == ["left hi", "right hi"]


async def test_calls_are_counted_from_the_moment_of_asking() -> None:
    faults = Faults()
    workflow, _ = faulty(faults)
    await workflow.run("hi")
    faults.fail("commit", nth=2)
    with pytest.raises(StorageFailed):
        await workflow.run("again")
    assert faults.counts["commit"] >= COMMITS + 2


async def test_pause_holds_one_call_and_notifies_when_it_is_reached() -> None:
    faults = Faults()
    workflow, storage = faulty(faults)
    with faults.pause("commit", nth=2) as pause:
        run = asyncio.create_task(workflow.run("hi", thread_id="t"))
        await pause
        assert pause.is_reached and not run.done() and await head(storage) == 1
        with pytest.raises(ThreadBusy):
            await two_steps(storage).run(thread_id="t")
        pause.resume()
        assert (await run).get_outputs() == ["<HI>"]


async def test_a_pause_after_a_commit_finds_it_stored() -> None:
    faults = Faults()
    workflow, storage = faulty(faults)
    with faults.pause("commit", when="after") as pause:
        run = asyncio.create_task(workflow.run("hi", thread_id="t"))
        await pause
        assert await head(storage) == 1
    await run


async def test_a_paused_run_that_is_cancelled_ends_when_the_pause_does() -> None:
    faults = Faults()
    workflow, storage = faulty(faults)
    with faults.pause("commit", nth=2) as pause:
        run = asyncio.create_task(workflow.run("hi", thread_id="t"))
        await pause
        run.cancel()
        await asyncio.sleep(0)
        assert not run.done()  # it waits for the write that it has begun
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await two_steps(storage).run(thread_id="t")).get_outputs() == ["<HI>"]


async def test_all_pauses_can_be_ended_at_once() -> None:
    faults = Faults()
    workflow, _ = faulty(faults)
    pauses = [faults.pause("commit", nth=nth) for nth in (1, 3)]
    run = asyncio.create_task(workflow.run("hi"))
    await pauses[0]
    faults.resume_all()
    assert (await run).get_outputs() == ["<HI>"]


async def test_a_pause_that_is_resumed_beforehand_holds_nothing() -> None:
    faults = Faults()
    workflow, _ = faulty(faults)
    pause = faults.pause("release")
    pause.resume()
    await workflow.run("hi")
    assert pause.is_reached


async def test_after_a_crash_every_call_raises_and_stored_state_can_be_resumed() -> None:
    faults = Faults()
    storage = InMemoryCheckpointStorage()
    dying = faults.wrap(storage)
    faults.crash("commit", nth=2, when="after")
    with pytest.raises(ProcessGone):
        await two_steps(dying).run("hi", thread_id="t")
    with pytest.raises(ProcessGone):
        await dying.list_checkpoint_infos()
    with pytest.raises(ProcessGone):
        await two_steps(dying).run(thread_id="other")
    assert faults.is_crashed and await head(storage) == 2
    with pytest.raises(ThreadBusy):
        await two_steps(storage).run(thread_id="t")  # the dead owner did not release it
    assert (await two_steps(storage).run(thread_id="t", takeover=True)).get_outputs() == ["<HI>"]


async def test_a_handler_that_catches_everything_does_not_outlive_its_crash() -> None:
    faults = Faults()
    lives: list[str] = []
    faults.crash("journal")
    with pytest.raises(ProcessGone):
        await fan_out(faults.wrap(InMemoryCheckpointStorage()), lives).run("hi")
    assert lives == []


async def test_post_and_open_are_points_too() -> None:
    faults = Faults()
    workflow, _ = faulty(faults)
    async with workflow.open(thread_id="t") as handle:
        await handle.send("hi")
        async for event in handle.events():
            if event.type == "output":
                break
    assert (faults.counts["post"], faults.counts["open"] > 0) == (1, True)


async def test_saves_of_a_third_party_storage_are_its_commits() -> None:
    faults, storage = Faults(), SixMethods()
    wrapped = faults.wrap(storage)
    faults.fail("commit", nth=2, when="after")
    with pytest.raises(StorageFailed, match="save"):
        await two_steps(wrapped).run("hi", thread_id="t")
    assert (faults.counts["commit"], len(storage.kept)) == (2, 2)
    assert (await two_steps(wrapped).run(thread_id="t")).get_outputs() == ["<HI>"]


async def test_third_party_storage_crashes_as_a_whole() -> None:
    faults, storage = Faults(), SixMethods()
    dying = faults.wrap(storage)
    faults.crash("commit", nth=2)
    with pytest.raises(ProcessGone):
        await two_steps(dying).run("hi", thread_id="t")
    for method, arguments in (("get_latest", {"workflow_name": "two"}), ("load", {}), ("delete", {})):
        with pytest.raises(ProcessGone):
            await getattr(dying, method)(**arguments)
    assert (await two_steps(storage).run(thread_id="t")).get_outputs() == ["<HI>"]


async def test_watcher_receives_only_what_the_store_has_done() -> None:
    faults = Faults()
    workflow, _ = faulty(faults)
    seen: list[str] = []
    faults.watch(lambda point, written: seen.append(f"{point} {getattr(written, 'number', '')}".strip()))
    faults.fail("commit", nth=2)
    with pytest.raises(StorageFailed):
        await workflow.run("hi")
    assert seen[:2] == ["open", "commit 1"] and "commit 2" not in seen[:2]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"point": "comit"}, "No point 'comit' exists .*did you mean 'commit'"),
        ({"point": "commit", "nth": 0}, "nth= expects a positive integer"),
        ({"point": "commit", "when": "during"}, "when= expects 'before' or 'after', got 'during'"),
    ],
)
def test_a_point_that_does_not_exist_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Faults().fail(**wrong)


def test_two_plans_for_one_call_are_refused() -> None:
    faults = Faults()
    faults.fail("commit")
    with pytest.raises(ValueError, match="before call 1 of commit is planned already"):
        _ = faults.pause("commit")


def test_the_class_takes_only_storages_that_have_a_store() -> None:
    with pytest.raises(TypeError, match=r"use faults\.wrap"):
        FaultyStorage(SixMethods(), Faults())  # type: ignore[arg-type]  # refused at run time, too
