"""Outputs of a sub-workflow become messages, outputs of the parent, intermediate outputs, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import pytest
from tests.promises.stages import Join, Relay, Sink, Stage
from tests.unit.engine.nested import THREAD, Give, Split, Take, around, line, on_any_storage, seen

from perdure import (
    Case,
    Default,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    executor,
)


def two_voices(**designation: Any) -> Workflow:
    """`low` yields and sends on to `high`, which yields too."""

    @executor
    async def low(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"low {text}")
        await ctx.send_message(text)

    @executor
    async def high(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"high {text}")

    return WorkflowBuilder(name="voices", start_executor=low, **designation).add_edge(low, high).build()


def only(child: Workflow, *, direct: bool = True, **options: Any) -> Workflow:
    return WorkflowBuilder(
        name="only", start_executor=WorkflowExecutor(child, "sub", allow_direct_output=direct), **options
    ).build()


def yielded(events: list[WorkflowEvent]) -> list[tuple[str, str | None, Any]]:
    kinds = ("output", "intermediate", "data")
    return [(event.type, event.executor_id, event.data) for event in events if event.type in kinds]


# ---------------------------------------------------------------- direct outputs


@on_any_storage
async def test_with_allow_direct_output_a_child_yields_for_its_parent(make_storage: Callable[[], Any]) -> None:
    result = await only(two_voices(), checkpoint_storage=make_storage()).run("x")
    assert result.get_outputs() == ["low x", "high x"]
    assert yielded(result) == [("output", "sub", "low x"), ("output", "sub", "high x")]


async def test_direct_outputs_are_not_sent_on() -> None:
    sub, after = WorkflowExecutor(line(Stage(), "a"), "sub", allow_direct_output=True), Sink("after")
    flow = WorkflowBuilder(start_executor=sub).add_edge(sub, after).build()
    assert (await flow.run("x")).get_outputs() == ["x-a"]


async def test_direct_outputs_are_emitted_as_they_happen() -> None:
    before_high: list[Any] = []
    async for event in only(two_voices()).run("x", stream=True):
        if event.executor_id == "sub/high" and event.type == "executor_invoked":
            break
        before_high += [event.data] if event.type == "output" else []
    assert before_high == ["low x"]


async def test_the_outputs_of_a_resumed_run_are_those_of_the_undisturbed_one() -> None:
    stage, storage = Stage(), InMemoryCheckpointStorage()
    stage.failing = {"b"}

    @executor
    async def early(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"early {text}")
        await ctx.send_message(text)

    def build() -> Workflow:
        b = Give("b", stage)
        child = WorkflowBuilder(name="child", start_executor=early).add_edge(early, b).build()
        return only(child, checkpoint_storage=storage)

    with pytest.raises(Exception, match="Boom"):
        await build().run("x", thread_id=THREAD)
    stage.failing.clear()
    result = await build().run(thread_id=THREAD)
    assert result.get_outputs() == ["early x", "x-b"]
    assert [(event.data, event.replayed) for event in result if event.type == "output"] == [
        ("early x", True),
        ("x-b", False),
    ]


# ---------------------------------------------------------------- designation


async def test_output_from_of_a_child_selects_the_outputs_its_parent_receives() -> None:
    child = two_voices(output_from=["high"])
    assert (await only(child).run("x")).get_outputs() == ["high x"]
    assert (await around(child).run("x")).get_outputs() == ["high x"]


@pytest.mark.parametrize("direct", [True, False])
async def test_intermediate_outputs_of_a_child_rise_to_the_top_under_their_path(direct: bool) -> None:
    child = two_voices(output_from=["high"], intermediate_output_from=["low"])
    events = await seen(only(child, direct=direct).run("x", stream=True))
    low, high = yielded(events)
    assert low == ("intermediate", "sub/low", "low x")
    assert high == (("output", "sub", "high x") if direct else ("data", "sub/high", "high x"))


async def test_intermediate_outputs_rise_through_two_levels_into_the_result() -> None:
    child = two_voices(output_from=["high"], intermediate_output_from=["low"])
    result = await only(only(child)).run("x")
    assert result.get_intermediate_outputs() == ["low x"]
    assert yielded(result)[0] == ("intermediate", "sub/sub/low", "low x")


async def test_a_parent_may_take_direct_outputs_as_intermediate() -> None:
    first, last = Split("first"), Take("last")
    direct = WorkflowExecutor(line(Stage(), "a"), "sub", allow_direct_output=True)
    builder = WorkflowBuilder(start_executor=first, output_from=[last], intermediate_output_from=[direct])
    result = await builder.add_fan_out_edges(first, [direct, last]).build().run("x")
    assert (result.get_outputs(), result.get_intermediate_outputs()) == (["x"], ["x-a"])
    assert ("intermediate", "sub", "x-a") in yielded(result)


async def test_a_parent_may_hide_direct_outputs() -> None:
    first, last = Split("first"), Take("last")
    direct = WorkflowExecutor(line(Stage(), "a"), "sub", allow_direct_output=True)
    builder = WorkflowBuilder(start_executor=first, output_from=[last])
    result = await builder.add_fan_out_edges(first, [direct, last]).build().run("x")
    assert (result.get_outputs(), result.get_intermediate_outputs()) == (["x"], [])
    assert [kind for kind, _, data in yielded(result) if data == "x-a"] in ([], ["data"])


async def test_replayed_outputs_keep_their_paths() -> None:
    child = two_voices(output_from=["high"], intermediate_output_from=["low"])
    flow = only(only(child), checkpoint_storage=InMemoryCheckpointStorage())
    first = yielded(await flow.run("x", thread_id=THREAD))
    again = await flow.run(thread_id=THREAD)
    assert yielded(again) == first == [("intermediate", "sub/sub/low", "low x"), ("output", "sub", "high x")]
    assert all(event.replayed for event in again if event.type in ("output", "intermediate"))


async def test_hidden_outputs_are_not_replayed() -> None:
    first, last = Split("first"), Take("last")
    direct = WorkflowExecutor(line(Stage(), "a"), "sub", allow_direct_output=True)
    builder = WorkflowBuilder(start_executor=first, output_from=[last], checkpoint_storage=InMemoryCheckpointStorage())
    flow = builder.add_fan_out_edges(first, [direct, last]).build()
    await flow.run("x", thread_id=THREAD)
    assert [event.data for event in await flow.run(thread_id=THREAD) if event.replayed] == ["x"]


# ---------------------------------------------------------------- fans, switches, joins


def fanned(stage: Stage, storage: Any = None) -> Workflow:
    """Three children of different length, joined: what the first of them gave waits in a buffer."""
    source, join = Relay("source", stage), Join("join", stage)
    children = [WorkflowExecutor(line(stage, ids, name=ids), f"sub-{ids}") for ids in ("a", "bcd", "ef")]
    builder = WorkflowBuilder(name="fanned", start_executor=source, checkpoint_storage=storage)
    return builder.add_fan_out_edges(source, children).add_fan_in_edges(children, join).build()


@on_any_storage
async def test_outputs_of_children_are_joined_in_the_order_of_the_edges(make_storage: Callable[[], Any]) -> None:
    result = await fanned(Stage(), make_storage()).run("x")
    assert result.get_outputs() == ["x-source-a+x-source-b-c-d+x-source-e-f"]


async def test_a_join_of_children_is_resumed_from_every_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    expected = (await fanned(Stage(), storage).run("x", thread_id=THREAD)).get_outputs()
    for checkpoint_id in await storage.list_checkpoint_ids():
        resumed = await fanned(Stage(), storage).run(checkpoint_id=checkpoint_id, fork=True)
        assert resumed.get_outputs() == expected


async def test_a_join_inside_a_child_is_resumed_from_every_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    expected = (await around(fanned(Stage()), storage).run("x y", thread_id=THREAD)).get_outputs()
    assert len(expected) == 2
    for checkpoint_id in await storage.list_checkpoint_ids():
        resumed = await around(fanned(Stage()), storage).run(checkpoint_id=checkpoint_id, fork=True)
        assert resumed.get_outputs() == expected


async def test_a_child_may_be_chosen_by_a_switch_and_by_a_condition() -> None:
    first, last = Split("first"), Take("last")
    short, long = WorkflowExecutor(line(Stage(), "s"), "short"), WorkflowExecutor(line(Stage(), "l"), "long")
    builder = WorkflowBuilder(start_executor=first)
    builder.add_switch_case_edge_group(first, [Case(lambda text: len(text) < 3, short), Default(long)])
    builder.add_edge(short, last).add_edge(long, last, condition=lambda text: text.startswith("k"))
    assert (await builder.build().run("ab keep drop")).get_outputs() == ["ab-s", "keep-l"]


async def test_a_child_may_stand_in_a_loop() -> None:
    """Each round is a child of its own."""
    sub = WorkflowExecutor(line(Stage(), "a"), "sub")

    @executor
    async def judge(text: str, ctx: WorkflowContext[str, str]) -> None:
        await (ctx.yield_output(text) if text.count("-") == 4 else ctx.send_message(text))

    flow = WorkflowBuilder(start_executor=sub).add_edge(sub, judge).add_edge(judge, sub).build()
    assert (await flow.run("x")).get_outputs() == ["x-a-a-a-a"]
