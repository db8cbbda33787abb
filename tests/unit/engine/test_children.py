"""A sub-workflow runs as supersteps of its parent's thread: each is committed, with events under the child's path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

from tests.promises.stages import Relay, Stage
from tests.unit.engine.nested import (
    THREAD,
    Give,
    Split,
    Take,
    around,
    committed,
    deep,
    due,
    line,
    on_any_storage,
    outline,
    seen,
)

from perdure import (
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    workflow,
)


@on_any_storage
async def test_executor_of_a_child_sends_on_the_outputs_of_the_child(make_storage: Callable[[], Any]) -> None:
    result = await around(line(Stage()), make_storage()).run("x")
    assert result.get_outputs() == ["x-a-b-c"]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_each_superstep_of_a_child_makes_a_checkpoint_inside_the_child() -> None:
    storage = InMemoryCheckpointStorage()
    await around(line(Stage()), storage).run("x", thread_id=THREAD)
    past = await committed(storage)
    assert [due(checkpoint) for checkpoint in past] == [
        ["first"],
        ["sub"],
        ["sub/a"],
        ["sub/b"],
        ["sub/c"],
        ["last"],
        [],
    ]
    assert [checkpoint.iteration_count for checkpoint in past] == [0, 1, 2, 3, 4, 5, 6]
    assert [len(checkpoint.children) for checkpoint in past] == [0, 0, 1, 1, 1, 0, 0]


async def test_a_checkpoint_names_the_delivery_that_started_a_child() -> None:
    storage = InMemoryCheckpointStorage()
    await around(line(Stage()), storage).run("x", thread_id=THREAD)
    before, during = (await committed(storage))[1:3]
    [(child_id, child)] = during.children.items()
    assert before.deliveries == [child.message]
    assert (child_id, child.executor_id, child.message.data) == (before.deliveries[0].delivery_id, "sub", "x")


async def test_three_levels_are_committed_one_superstep_after_the_other() -> None:
    storage = InMemoryCheckpointStorage()
    result = await deep(line(Stage(), "ab"), 3, storage).run("x", thread_id=THREAD)
    assert result.get_outputs() == ["x-a-b"]
    assert [due(checkpoint) for checkpoint in await committed(storage)] == [
        ["in"],
        ["l1"],
        ["l1/in"],
        ["l1/l2"],
        ["l1/l2/in"],
        ["l1/l2/l3"],
        ["l1/l2/l3/a"],
        ["l1/l2/l3/b"],
        [],
    ]


async def test_a_child_may_begin_with_a_child() -> None:
    inner = WorkflowBuilder(name="inner", start_executor=Give("give", Stage())).build()
    start = WorkflowExecutor(inner, "l2", allow_direct_output=True)
    middle = WorkflowBuilder(name="middle", start_executor=start).build()
    events = await seen(around(middle).run("x", stream=True))
    assert [event.data for event in events if event.type == "output"] == ["x-give"]
    assert ("executor_completed", "sub/l2/give") in outline(events, "executor_completed")


# ---------------------------------------------------------------- events


async def test_events_of_a_child_have_its_path_and_its_executor_completes_last() -> None:
    events = await seen(around(line(Stage(), "ab")).run("x", stream=True))
    assert outline(events, "executor_invoked", "executor_completed") == [
        ("executor_invoked", "first"),
        ("executor_completed", "first"),
        ("executor_invoked", "sub"),
        ("executor_invoked", "sub/a"),
        ("executor_completed", "sub/a"),
        ("executor_invoked", "sub/b"),
        ("executor_completed", "sub/b"),
        ("executor_completed", "sub"),
        ("executor_invoked", "last"),
        ("executor_completed", "last"),
    ]
    assert outline(events, "data") == [("data", "sub/b")], (
        "what it yields is progress: the parent makes a message of it"
    )


async def test_events_of_three_levels_bear_the_whole_path() -> None:
    events = await seen(deep(line(Stage(), "a"), 3).run("x", stream=True))
    assert [path for _, path in outline(events, "executor_invoked")] == [
        "in",
        "l1",
        "l1/in",
        "l1/l2",
        "l1/l2/in",
        "l1/l2/l3",
        "l1/l2/l3/a",
    ]
    ended = [path for _, path in outline(events, "executor_completed")][-4:]
    assert ended == ["l1/l2/l3/a", "l1/l2/l3", "l1/l2", "l1"]


async def test_a_consumer_sees_a_child_at_work_before_it_has_ended() -> None:
    stage = Stage()
    stage.close("b")
    stream = around(line(stage)).run("x", stream=True)
    async for event in stream:
        if (event.type, event.executor_id) == ("executor_invoked", "sub/b"):
            await asyncio.wait_for(stage.entered["b"].wait(), 30)
            assert stage.calls == ["a(x)", "b(x-a)"]
            stage.gates["b"].set()
    assert (await stream.get_final_response()).get_outputs() == ["x-a-b-c"]


async def test_consumer_sees_each_superstep_of_a_child_before_the_next_starts() -> None:
    stage = Stage()
    async for event in deep(line(stage, "abc"), 2).run("x", stream=True):
        if event.type == "superstep_completed" and event.executors and event.executors[0].startswith("l1/l2/"):
            assert stage.calls[-1][0] == event.executors[0][-1], "a superstep ran before its predecessor was reported"


async def test_a_child_that_never_waits_leaves_turns_to_others() -> None:
    @executor
    async def turn(left: int, ctx: WorkflowContext[int, int]) -> None:
        await (ctx.send_message(left - 1) if left else ctx.yield_output(ticks))

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    child = WorkflowBuilder(start_executor=turn, max_iterations=1000).add_edge(turn, turn).build()
    ticking = asyncio.ensure_future(tick())
    [by_itself] = (await child.run(400)).get_outputs()
    sub = WorkflowExecutor(child, "sub", allow_direct_output=True)
    before = ticks
    [as_child] = (await WorkflowBuilder(start_executor=sub, max_iterations=1000).build().run(400)).get_outputs()
    ticking.cancel()
    assert as_child - before >= by_itself // 2 > 0


async def test_a_superstep_names_the_executors_that_ran_by_their_paths() -> None:
    events = await seen(around(line(Stage(), "ab")).run("x y", stream=True))
    ran = [event.executors for event in events if event.type == "superstep_completed"]
    assert ran == [("first",), ("sub",), ("sub/a", "sub/a"), ("sub/b", "sub/b"), ("last",)]


async def test_log_of_a_thread_has_the_events_of_each_child() -> None:
    storage = InMemoryCheckpointStorage()
    flow = around(line(Stage(), "a"), storage)
    await flow.run("x y", thread_id=THREAD)
    async with flow.open(thread_id=THREAD) as run:
        logged = await seen(run.events(after=0))
        later = await seen(run.events(after=logged[4].seq))
    inside = [(event.type, event.executor_id, event.child_id) for event in logged if event.executor_id == "sub/a"]
    kinds = ("executor_invoked", "executor_completed")
    first, second = (child_id for _, _, child_id in inside[::2])
    assert first != second
    assert inside == [(kind, "sub/a", child_id) for child_id in (first, second) for kind in kinds]
    assert outline(logged, "executor_completed").count(("executor_completed", "sub")) == 2
    assert [event.seq for event in logged] == list(range(1, len(logged) + 1))
    assert [event.seq for event in later] == [event.seq for event in logged[5:]]


# ---------------------------------------------------------------- several inputs


async def test_several_inputs_are_several_children_side_by_side() -> None:
    stage, storage = Stage(), InMemoryCheckpointStorage()
    result = await around(line(stage, "ab"), storage).run("x y z", thread_id=THREAD)
    assert result.get_outputs() == ["x-a-b", "y-a-b", "z-a-b"]
    assert stage.calls == ["a(x)", "a(y)", "a(z)", "b(x-a)", "b(y-a)", "b(z-a)"]
    assert [due(checkpoint) for checkpoint in await committed(storage)][2] == ["sub/a", "sub/a", "sub/a"]


async def test_children_do_not_wait_for_each_other() -> None:
    """Deliveries to one executor run one after the other, but each child has executors of its own."""
    all_here = asyncio.Barrier(3)

    @executor
    async def meet(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await all_here.wait()
        await ctx.yield_output(text)

    child = WorkflowBuilder(start_executor=meet).build()
    assert (await asyncio.wait_for(around(child).run("x y z"), 30)).get_outputs() == ["x", "y", "z"]


async def test_outputs_follow_the_order_of_inputs_when_a_later_child_is_quicker() -> None:
    first_may_end = asyncio.Event()

    @executor
    async def slow_first(text: str, ctx: WorkflowContext[Never, str]) -> None:
        if text == "x":
            await first_may_end.wait()
        else:
            first_may_end.set()
        await ctx.yield_output(text)

    child = WorkflowBuilder(start_executor=slow_first).build()
    events = await seen(around(child).run("x y", stream=True))
    assert [event.data for event in events if event.type == "data"] == ["y", "x"], "emitted as it happens"
    assert [event.data for event in events if event.type == "output"] == ["x", "y"]


async def test_a_child_that_takes_longer_gives_its_output_later() -> None:
    @executor
    async def again(text: str, ctx: WorkflowContext[str, str]) -> None:
        await (ctx.send_message(text[1:]) if len(text) > 1 else ctx.yield_output(text))

    child = WorkflowBuilder(start_executor=again).add_edge(again, again).build()
    assert (await around(child).run("abc d ef")).get_outputs() == ["d", "f", "c"]


async def test_a_child_may_yield_several_times_or_never() -> None:
    @executor
    async def letters(text: str, ctx: WorkflowContext[Never, str]) -> None:
        for letter in text.strip("-"):
            await ctx.yield_output(letter)

    child = WorkflowBuilder(start_executor=letters).build()
    events = await seen(around(child).run("ab - c", stream=True))
    assert [event.data for event in events if event.type == "output"] == ["a", "b", "c"]
    assert outline(events, "executor_completed").count(("executor_completed", "sub")) == 3


async def test_undelivered_message_of_a_child_warns_under_its_path() -> None:
    child = WorkflowBuilder(name="lost", start_executor=Relay("lost", Stage())).build()
    first, sub = Split("first"), WorkflowExecutor(child, "sub")
    events = await seen(WorkflowBuilder(start_executor=first).add_edge(first, sub).build().run("x", stream=True))
    [warning] = [event for event in events if event.type == "warning"]
    assert "'lost' sent was not delivered" in warning.data
    assert warning.executor_id == "sub/lost"


# ---------------------------------------------------------------- what may be a child


async def test_a_child_that_declares_no_outputs_may_feed_any_executor() -> None:
    @executor
    async def bare(text: str, ctx: WorkflowContext) -> None:
        await ctx.yield_output(text)  # type: ignore[arg-type]  # not declared, as users write it

    child = WorkflowBuilder(start_executor=bare).build()
    assert (await around(child).run("x")).get_outputs() == ["x"]


@workflow
async def doubled(text: str) -> str:
    return text + text


async def test_a_function_workflow_may_be_a_child() -> None:
    assert (await around(doubled).run("x")).get_outputs() == ["xx"]
    assert (await around(doubled.build()).run("x")).get_outputs() == ["xx"]


async def test_workflow_in_a_graph_runs_under_its_own_name() -> None:
    first, last = Split("first"), Take("last")
    child = line(Stage(), "ab", name="lines")
    flow = WorkflowBuilder(start_executor=first).add_edge(first, child).add_edge(child, last).build()
    events = await seen(flow.run("x", stream=True))
    assert [event.data for event in events if event.type == "output"] == ["x-a-b"]
    assert ("executor_invoked", "lines/b") in outline(events, "executor_invoked")


async def test_a_childs_own_storage_is_not_used_in_a_parent() -> None:
    own, storage = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await around(line(Stage(), checkpoint_storage=own), storage).run("x", thread_id=THREAD)
    assert await own.list_checkpoint_ids() == []
    assert len(await committed(storage)) == 7
