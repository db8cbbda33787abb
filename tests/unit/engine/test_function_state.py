"""State of a function workflow: a replay restores every write of the function and its steps, each once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, answer, begin, resume, state_of
from tests.unit.engine.policy_flows import SkippingClock

from perdure import InMemoryCheckpointStorage, InvalidRun, RunContext, get_run_context, workflow


def context() -> RunContext:
    current = get_run_context()
    assert current is not None
    return current


async def paused_state(flow: Any) -> dict[str, Any]:
    """The state of a flow that asks a last question, after another object has answered it."""
    storage = InMemoryCheckpointStorage()
    await answer(flow, storage, await begin(flow, storage), {"go on?": "yes"})
    return await state_of(storage)


async def test_state_set_in_a_replayed_step_is_restored() -> None:
    calls = Calls()
    note = calls.step(lambda name: context().set_state("user", name))

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        await note("ann")
        await ctx.request_info("go on?", str)
        return ctx.get_state("user")

    storage = InMemoryCheckpointStorage()
    asked = await begin(flow, storage)
    result = await answer(flow, storage, asked, {"go on?": "yes"})
    assert result.get_outputs() == ["ann"]
    assert await state_of(storage) == {"user": "ann"}
    assert calls == ["ann"]


async def test_state_deleted_in_a_replayed_step_is_gone() -> None:
    drop = Calls().step(lambda key: context().delete_state(key))

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        ctx.set_state("draft", 1)
        ctx.set_state("final", 2)
        await drop("draft")
        await ctx.request_info("go on?", str)

    assert await paused_state(flow) == {"final": 2}


async def test_state_changed_in_place_in_a_replayed_step_is_applied_once() -> None:
    add = Calls().step(lambda word: context().get_state("words").append(word))

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("words", ["zero"])
        await add("one")
        await ctx.request_info("go on?", str)
        await add("two")

    assert await paused_state(flow) == {"words": ["zero", "one", "two"]}


async def test_a_list_that_the_function_holds_stays_part_of_the_state() -> None:
    calls = Calls()
    note = calls.step()

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("words", [])
        words = ctx.get_state("words")
        words.append("before")
        await note(1)
        words.append("between")
        await ctx.request_info("go on?", str)
        words.append("after")

    assert await paused_state(flow) == {"words": ["before", "between", "after"]}


async def test_list_changed_in_turn_by_function_and_steps_has_all_items_in_order() -> None:
    add = Calls().step(lambda word: context().get_state("words").append(word))

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("words", [])
        words = ctx.get_state("words")
        for n in (1, 2):
            words.append(f"function {n}")
            await add(f"step {n}")
        await ctx.request_info("go on?", str)
        words.append("end")

    expected = ["function 1", "step 1", "function 2", "step 2", "end"]
    assert await paused_state(flow) == {"words": expected}


async def test_steps_at_the_same_time_write_keys_and_change_values_of_their_own() -> None:
    ends = {name: asyncio.Event() for name in ("a", "b")}

    async def write(name: str) -> None:
        ctx = context()
        ctx.set_state(name, "begun")
        ctx.get_state("lists")[name].append("begun")
        await ends[name].wait()
        ctx.set_state(name, "ended")
        ctx.get_state("lists")[name].append("ended")

    step = Calls().step(name="write")
    step.function = write

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("lists", {"a": [], "b": []})
        tasks = [asyncio.create_task(step(name)) for name in ("a", "b")]
        ends["b"].set()
        await tasks[1]
        ends["a"].set()
        await tasks[0]
        await ctx.request_info("go on?", str)

    both = ["begun", "ended"]
    assert await paused_state(flow) == {"a": "ended", "b": "ended", "lists": {"a": both, "b": both}}


async def test_changes_of_a_step_in_flight_are_not_recorded_with_another_step() -> None:
    is_changed, has_quick_ended, never = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls = Calls()
    quick, slow = calls.step(name="quick"), calls.step(name="slow")

    async def change_and_hang(word: str) -> None:
        calls.append(word)
        context().get_state("words").append(word)
        is_changed.set()
        if calls.count(word) == 1:
            await never.wait()

    async def end(_: str) -> None:
        await is_changed.wait()

    slow.function, quick.function = change_and_hang, end

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        ctx.set_state("words", [])
        other = asyncio.create_task(slow("slow"))
        await quick("quick")
        has_quick_ended.set()
        await other
        return ctx.get_state("words")

    storage = InMemoryCheckpointStorage()
    run = asyncio.create_task(begin(flow, storage))
    await has_quick_ended.wait()
    run.cancel()
    await asyncio.wait([run])
    assert (await resume(flow, storage)).get_outputs() == [["slow"]]


async def test_writes_of_a_failed_attempt_of_a_step_do_not_count() -> None:
    tries: list[int] = []
    flaky = Calls().step(name="flaky", retry=2)

    async def fail_once(_: str) -> None:
        tries.append(1)
        context().set_state(f"try {len(tries)}", True)
        if len(tries) == 1:
            raise ConnectionError("not yet")

    flaky.function = fail_once

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await flaky("x")
        await ctx.request_info("go on?", str)

    storage, clock = InMemoryCheckpointStorage(), SkippingClock()
    await answer(flow, storage, await begin(flow, storage, clock=clock), {"go on?": "y"}, clock=clock)
    assert await state_of(storage) == {"try 2": True}


async def test_resumed_function_reads_the_state_as_it_was_when_it_began() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        count = int(ctx.get_state("count", 0)) + 1
        ctx.set_state("count", count)
        await ctx.request_info("go on?", str)
        return count

    for expected in (1, 2):
        asked = await begin(flow, storage)
        assert (await answer(flow, storage, asked, {"go on?": "y"})).get_outputs() == [expected]
    assert await state_of(storage) == {"count": 2}


async def test_writes_of_a_function_are_not_stored_before_it_ends() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("done", False)
        await ctx.request_info("go on?", str)

    await begin(flow, storage)
    assert await state_of(storage) == {}


async def test_a_failed_function_leaves_the_state_as_it_was() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(message: str, ctx: RunContext) -> None:
        ctx.set_state("last", message)
        if message == "bad":
            raise ValueError("no")

    await begin(flow, storage, "good")
    with pytest.raises(ValueError, match="no"):
        await begin(flow, storage, "bad")
    assert await state_of(storage) == {"last": "good"}


async def test_the_whole_state_is_a_mapping() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> dict[str, Any]:
        ctx.state["a"] = 1
        ctx.state["b"] = [2]
        ctx.state["b"].append(3)
        del ctx.state["a"]
        return {**ctx.state, "size": len(ctx.state), "has a": "a" in ctx.state}

    assert (await begin(flow, None)).get_outputs() == [{"b": [2, 3], "size": 1, "has a": False}]


async def test_list_made_by_setdefault_is_part_of_the_state() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        ctx.state.setdefault("words", []).append("one")
        ctx.state.setdefault("words", []).append("two")
        return ctx.get_state("words")

    assert (await begin(flow, None)).get_outputs() == [["one", "two"]]


async def test_keys_with_an_underscore_in_front_are_reserved() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("_steps", 1)

    with pytest.raises(InvalidRun, match="'_steps'"):
        await begin(flow, None)


async def test_state_written_without_a_storage_stays_with_the_thread() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        ctx.set_state("n", ctx.get_state("n", 0) + 1)
        return int(ctx.get_state("n"))

    built = flow.build()
    outputs = [(await built.run("x", thread_id=thread)).get_outputs()[0] for thread in (THREAD, THREAD, "other")]
    assert outputs == [1, 2, 1]
