"""Function workflows that fail or are cancelled: a resume repeats the failed steps and no recorded step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, Cancelling, answer, begin, questions, resume

from perdure import InMemoryCheckpointStorage, RunContext, WorkflowRunState, workflow
from perdure.checkpoints.storage import StoreCheckpointStorage


class Bridge:
    """A step that fails while the bridge is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = Calls()
        self.error: Exception | None = error or ConnectionError("closed")
        self.note = self.calls.step(name="note")
        self.cross = self.calls.step(self._cross, name="cross")

    def _cross(self, value: Any) -> str:
        if self.error is not None:
            raise self.error
        return f"crossed {value}"


@pytest.mark.parametrize("is_stored", [True, False], ids=["new object", "no storage"])
async def test_a_failed_function_is_resumed_at_the_step_that_failed(is_stored: bool) -> None:
    bridge = Bridge()

    @workflow
    async def flow(_: str) -> list[Any]:
        return [await bridge.note(1), await bridge.cross(2), await bridge.note(3)]

    storage = InMemoryCheckpointStorage() if is_stored else None
    built = flow.build(storage)
    with pytest.raises(ConnectionError, match="closed"):
        await built.run("go", thread_id=THREAD)
    bridge.error = None
    again = flow.build(storage) if is_stored else built
    assert (await again.run(thread_id=THREAD)).get_outputs() == [[1, "crossed 2", 3]]
    assert bridge.calls == [1, 2, 2, 3]


async def test_steps_that_ended_beside_a_failed_step_are_not_repeated() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str) -> list[Any]:
        return list(await asyncio.gather(bridge.note(1), bridge.note(2), bridge.cross(3)))

    with pytest.raises(ConnectionError):
        await begin(flow, storage)
    bridge.error = None
    assert (await resume(flow, storage)).get_outputs() == [[1, 2, "crossed 3"]]
    assert bridge.calls == [1, 2, 3, 3]


async def test_function_resumes_at_every_failed_step_of_a_task_group() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in (bridge.note(1), bridge.cross(2), bridge.cross(3))]
        return [task.result() for task in tasks]

    with pytest.raises(ExceptionGroup):
        await begin(flow, storage)
    bridge.error = None
    assert (await resume(flow, storage)).get_outputs() == [[1, "crossed 2", "crossed 3"]]
    assert bridge.calls.count(1) == 1


async def test_step_cancelled_by_a_failing_task_group_is_called_again_on_resume() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()
    slow = bridge.calls.step(name="slow")

    async def hang_once(name: str) -> str:
        bridge.calls.append(name)
        if bridge.error is not None:
            await asyncio.Event().wait()
        return name

    slow.function = hang_once

    @workflow
    async def flow(_: str) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(slow("slow")), group.create_task(bridge.cross(1))]
        return [task.result() for task in tasks]

    with pytest.raises(ExceptionGroup):
        await begin(flow, storage)
    bridge.error = None
    assert (await resume(flow, storage)).get_outputs() == [["slow", "crossed 1"]]
    assert bridge.calls == ["slow", 1, "slow", 1]


async def test_a_step_whose_error_was_raised_as_another_is_tried_again() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str) -> Any:
        try:
            return await bridge.cross(1)
        except ConnectionError as error:
            raise LookupError("no way over") from error

    with pytest.raises(LookupError):
        await begin(flow, storage)
    bridge.error = None
    assert (await resume(flow, storage)).get_outputs() == ["crossed 1"]


async def test_caught_error_stays_recorded_when_another_error_fails_the_function() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()
    detour = bridge.calls.step(lambda _: raise_if(bridge.error), name="detour")

    @workflow
    async def flow(_: str) -> str:
        try:
            await bridge.cross(1)
        except ConnectionError:
            await detour(2)
            return "came by the detour"
        return "came over the bridge"

    with pytest.raises(ConnectionError):
        await begin(flow, storage)
    bridge.error = None
    assert (await resume(flow, storage)).get_outputs() == ["came by the detour"]
    assert bridge.calls == [1, 2, 2]


def raise_if(error: Exception | None) -> None:
    if error is not None:
        raise ConnectionError("flooded")


async def test_an_error_of_the_function_itself_repeats_no_step() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()
    bridge.error = None
    is_fixed = False

    @workflow
    async def flow(_: str) -> Any:
        crossed = await bridge.cross(1)
        if not is_fixed:
            raise ZeroDivisionError
        return crossed

    with pytest.raises(ZeroDivisionError):
        await begin(flow, storage)
    is_fixed = True
    assert (await resume(flow, storage)).get_outputs() == ["crossed 1"]
    assert bridge.calls == [1]


async def test_a_function_that_fails_after_an_answer_keeps_the_answer() -> None:
    bridge, storage = Bridge(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[Any]:
        return [await ctx.request_info("where to?", str), await bridge.cross(1)]

    asked = await begin(flow, storage)
    with pytest.raises(ConnectionError):
        await answer(flow, storage, asked, {"where to?": "york"})
    bridge.error = None
    result = await resume(flow, storage)
    assert (result.get_outputs(), questions(result)) == ([["york", "crossed 1"]], {})


# ---------------------------------------------------------------- cancelled


async def test_function_cancelled_in_a_step_repeats_only_that_step() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    entered, never, cancelled = asyncio.Event(), asyncio.Event(), []
    note, slow = calls.step(name="note"), calls.step(name="slow")

    async def wait(name: str) -> str:
        calls.append(name)
        if calls.count(name) == 1:
            entered.set()
            try:
                await never.wait()
            finally:
                cancelled.append(name)
        return name

    slow.function = wait

    @workflow
    async def flow(_: str) -> list[str]:
        return [await note("a"), await slow("b"), await note("c")]

    run = asyncio.create_task(begin(flow, storage))
    await entered.wait()
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled() and cancelled == ["b"]
    assert (await resume(flow, storage)).get_outputs() == [["a", "b", "c"]]
    assert calls == ["a", "b", "b", "c"]


async def test_a_loser_in_flight_loses_again_before_it_is_called_again() -> None:
    calls, store = Calls(), Cancelling()
    quick, slow = calls.step(name="quick"), calls.step(name="slow")

    async def hang(name: str) -> None:
        calls.append(name)
        await asyncio.Event().wait()

    slow.function = hang

    @workflow
    async def flow(_: str) -> Any:
        tasks = [asyncio.create_task(slow("slow")), asyncio.create_task(quick("quick"))]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        return done.pop().result()

    store.run = asyncio.create_task(begin(flow, storage := StoreCheckpointStorage(store)))
    await asyncio.wait([store.run])
    store.run = None
    assert (await resume(flow, storage)).get_outputs() == ["quick"]
    assert calls == ["slow", "quick"]


async def test_interrupted_function_has_status_cancelled_and_is_resumable() -> None:
    calls, entered = Calls(), asyncio.Event()
    note, slow = calls.step(name="note"), calls.step(name="slow")

    async def wait(name: str) -> str:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return name

    slow.function = wait

    @workflow
    async def flow(_: str) -> list[str]:
        return [await note("a"), await slow("b")]

    built = flow.build(InMemoryCheckpointStorage())
    async with built.open(thread_id=THREAD) as run:
        await run.send("go")
        await entered.wait()
        await run.cancel()
        assert run.result is not None and run.result.get_final_state() is WorkflowRunState.CANCELLED
    assert (await built.run(thread_id=THREAD)).get_outputs() == [["a", "b"]]
    assert calls == ["a"]


async def test_a_step_that_fails_beside_others_leaves_nothing_running() -> None:
    bridge, cancelled = Bridge(), asyncio.Event()
    slow = bridge.calls.step(name="slow")

    async def wait(_: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    slow.function = wait

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await asyncio.gather(slow(1), ctx.request_info("?", str), ctx.sleep(60), bridge.cross(2))

    with pytest.raises(ConnectionError):
        await begin(flow, None)
    assert cancelled.is_set()  # and that no task is left is seen by every test


async def test_a_branch_left_behind_is_ended_with_the_function() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    slow, ended = calls.step(name="slow"), []

    async def wait(_: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")

    slow.function = wait

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        forgotten = asyncio.create_task(slow("x"))
        await asyncio.sleep(0)
        return f"done, {forgotten.done()}"

    result = await begin(flow, storage)
    assert (result.get_outputs(), ended) == (["done, False"], ["slow"])
