"""Where messages go: every kind of edge as it behaves in a run, and the warning for an undelivered message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.flows import alone, function, kinds, relay, sink, warnings_of

from perdure import Case, Default, Executor, InvalidSelection, WorkflowBuilder, WorkflowRunResult


def from_start(start: Executor) -> WorkflowBuilder:
    return WorkflowBuilder(name="routes", start_executor=start)


async def outputs(builder: WorkflowBuilder, message: Any) -> list[Any]:
    return (await builder.build().run(message)).get_outputs()


async def test_an_edge_takes_every_message_that_its_target_accepts() -> None:
    start, end = relay("start"), sink("end")
    assert await outputs(from_start(start).add_edge(start, end), 5) == [("end", 5)]


async def test_a_condition_decides_message_by_message() -> None:
    start, even = function("start", send_each, accepts=list), sink("even")
    builder = from_start(start).add_edge(start, even, condition=lambda number: number % 2 == 0)
    assert await outputs(builder, [1, 2, 3, 4]) == [("even", 2), ("even", 4)]


async def test_a_condition_may_be_async() -> None:
    async def is_even(number: int) -> bool:
        return number % 2 == 0

    start, even = function("start", send_each, accepts=list), sink("even")
    assert await outputs(from_start(start).add_edge(start, even, is_even), [1, 2]) == [("even", 2)]


async def test_message_that_a_condition_holds_back_gives_no_warning() -> None:
    start, end = relay("start"), sink("end")
    result = await from_start(start).add_edge(start, end, lambda _: False).build().run(1)
    assert result.get_outputs() == [] and warnings_of(result) == []


async def test_a_condition_that_raises_fails_the_superstep() -> None:
    start, end = relay("start"), sink("end")
    workflow = from_start(start).add_edge(start, end, lambda number: 1 / number > 0).build()
    with pytest.raises(ZeroDivisionError):
        await workflow.run(0)


async def test_a_fan_out_sends_to_all_targets_in_their_order() -> None:
    start, left, right = relay("start"), sink("left"), sink("right")
    assert await outputs(from_start(start).add_fan_out_edges(start, [left, right]), 1) == [("left", 1), ("right", 1)]


async def test_a_fan_out_skips_targets_that_do_not_accept_the_type() -> None:
    start, words, numbers = relay("start"), sink("words", accepts=str), sink("numbers", accepts=int)
    assert await outputs(from_start(start).add_fan_out_edges(start, [words, numbers]), 1) == [("numbers", 1)]


async def test_fan_in_waits_for_all_sources_and_lists_messages_in_their_order() -> None:
    start, quick, first_of_two, second = relay("start"), relay("quick"), relay("slow1"), relay("slow2")
    joined = sink("joined", accepts=list)
    builder = from_start(start).add_fan_out_edges(start, [quick, first_of_two]).add_edge(first_of_two, second)
    result = await builder.add_fan_in_edges([second, quick], joined).build().run("x")
    assert result.get_outputs() == [("joined", ["x", "x"])]
    assert kinds(result).count("superstep_completed") == 4


async def test_fan_in_delivers_all_messages_of_each_source_and_then_resets() -> None:
    start, first, second = relay("start"), function("one", send_each, accepts=list), relay("two")
    joined = sink("joined", accepts=list)
    workflow = (
        from_start(start).add_fan_out_edges(start, [first, second]).add_fan_in_edges([first, second], joined).build()
    )
    for _ in range(2):
        assert (await workflow.run(["a", "b"])).get_outputs() == [("joined", ["a", "b", ["a", "b"]])]


async def test_the_joined_message_names_all_its_senders() -> None:
    start, first, second = relay("start"), relay("one"), relay("two")
    names = function("names", lambda _, ctx: ctx.yield_output(ctx.source_executor_ids), accepts=list)
    builder = from_start(start).add_fan_out_edges(start, [first, second]).add_fan_in_edges([first, second], names)
    assert await outputs(builder, 1) == [["one", "two"]]


async def test_single_source_id_of_a_joined_message_is_rejected() -> None:
    start, first, second = relay("start"), relay("one"), relay("two")
    names = function("names", lambda _, ctx: ctx.yield_output(ctx.get_source_executor_id()), accepts=list)
    builder = from_start(start).add_fan_out_edges(start, [first, second]).add_fan_in_edges([first, second], names)
    with pytest.raises(RuntimeError, match=r"multiple source executors: 'one', 'two'. Use source_executor_ids"):
        await builder.build().run(1)


async def test_a_join_that_its_target_cannot_take_is_a_warning() -> None:
    start, first, second, words = relay("start"), relay("one"), relay("two"), sink("words", accepts=list[str])
    builder = from_start(start).add_fan_out_edges(start, [first, second]).add_fan_in_edges([first, second], words)
    result = await builder.build().run(1)
    assert result.get_outputs() == []
    (text,) = warnings_of(result)
    assert "The list of int joined for 'words' was not delivered: it has no handler for such a list." in text
    assert "Remedy: a handler for list[...]." in text


@pytest.mark.parametrize(("number", "taken"), [(-1, "negative"), (0, "zero"), (7, "rest")])
async def test_the_first_case_that_is_true_takes_the_message(number: int, taken: str) -> None:
    start, negative, zero, rest = relay("start"), sink("negative"), sink("zero"), sink("rest")
    cases: list[Case | Default] = [Case(lambda n: n < 0, negative), Case(lambda n: n < 1, zero), Default(rest)]
    assert await outputs(from_start(start).add_switch_case_edge_group(start, cases), number) == [(taken, number)]


async def test_case_that_raises_counts_as_false_with_a_warning() -> None:
    start, short, rest = relay("start"), sink("short"), sink("rest")

    def is_short(message: Any) -> bool:
        return len(message) < 3

    builder = from_start(start).add_switch_case_edge_group(start, [Case(is_short, short), Default(rest)])
    result = await builder.build().run(5)
    assert result.get_outputs() == [("rest", 5)]
    assert warnings_of(result) == ["The case 'is_short' of 'start' raised TypeError and counts as false."]


async def test_a_selection_function_names_the_targets_of_each_message() -> None:
    start, first, second, third = relay("start"), sink("one"), sink("two"), sink("three")
    builder = from_start(start).add_multi_selection_edge_group(
        start, [first, second, third], lambda number, ids: [name for name in ids if len(name) == number]
    )
    assert await outputs(builder, 3) == [("one", 3), ("two", 3)]
    assert await outputs(builder, 4) == []


async def test_selection_of_an_unknown_target_fails_and_lists_the_targets() -> None:
    start, first, second = relay("start"), sink("one"), sink("two")
    builder = from_start(start).add_multi_selection_edge_group(start, [first, second], lambda _, ids: ["three"])
    with pytest.raises(InvalidSelection, match="chose 'three', which is not one of its targets: 'one'") as raised:
        await builder.build().run(1)
    assert isinstance(raised.value, RuntimeError)


async def test_a_chain_passes_through_each_in_turn() -> None:
    start, middle, end = relay("start"), relay("middle"), sink("end")
    result = await from_start(start).add_chain([start, middle, end]).build().run(1)
    assert [event.executor_id for event in result if event.type == "executor_invoked"] == ["start", "middle", "end"]


async def test_a_message_can_be_sent_to_one_of_several_targets() -> None:
    start = function("start", lambda message, ctx: ctx.send_message(message, target_id="right"))
    builder = from_start(start).add_fan_out_edges(start, [sink("left"), sink("right")])
    assert await outputs(builder, "x") == [("right", "x")]


# ---------------------------------------------------------------- nowhere to go


def nowhere(result: WorkflowRunResult) -> str:
    (text,) = warnings_of(result)
    assert result.get_final_state().value == "IDLE"
    return str(text)


async def test_a_message_without_an_edge_warns_with_sender_type_and_remedy() -> None:
    text = nowhere(await alone(lambda message, ctx: ctx.send_message(len(message))).run("four"))
    assert "The message of type int that 'only' sent was not delivered: 'only' has no outgoing edge." in text
    assert "add_edge(only, only)" in text


async def test_message_that_no_target_accepts_warns_with_sender_type_and_remedy() -> None:
    start, words = function("start", lambda message, ctx: ctx.send_message(1.5)), sink("words", accepts=str)
    text = nowhere(await from_start(start).add_edge(start, words).build().run("x"))
    assert "The message of type float that 'start' sent was not delivered: none of its targets accepts the type" in text
    assert "add a handler for it to a target, or add_edge(start, start)" in text


async def test_message_to_an_unconnected_executor_warns_with_the_missing_edge() -> None:
    start, middle, end = function("start", send_past_the_middle), relay("middle"), sink("end")
    result = await from_start(start).add_chain([start, middle, end]).build().run("x")
    assert "sent to 'end' was not delivered: no edge leads there" in nowhere(result)
    assert "Remedy: add_edge(start, end)." in nowhere(result)


async def send_each(messages: list[Any], ctx: Any) -> None:
    for message in messages:
        await ctx.send_message(message)


async def send_past_the_middle(message: str, ctx: Any) -> None:
    await ctx.send_message(message, target_id="end")
