"""Conditions, cases, selections and reducers: plain or async, on copies of values, with invalid results rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.flows import alone, relay, sink, warnings_of

from perdure import (
    Case,
    Default,
    InMemoryCheckpointStorage,
    InvalidSelection,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
)


def switching(*conditions: Callable[[Any], Any]) -> Workflow:
    """A switch with one target for each condition (`case0`, `case1`, ...), and `default`."""
    start = relay("start")
    cases = [Case(condition, sink(f"case{number}")) for number, condition in enumerate(conditions)]
    builder = WorkflowBuilder(name="switching", start_executor=start)
    return builder.add_switch_case_edge_group(start, [*cases, Default(sink("default"))]).build()


def selecting(selection: Callable[[Any, list[str]], Any], **options: Any) -> Workflow:
    start = relay("start")
    builder = WorkflowBuilder(name="selecting", start_executor=start, **options)
    return builder.add_multi_selection_edge_group(start, [sink("b"), sink("bob")], selection).build()


async def receivers(workflow: Workflow, message: Any = 5) -> list[str]:
    return [name for name, _ in (await workflow.run(message)).get_outputs()]


class IsLarge:
    """An object whose call is async."""

    async def __call__(self, number: int) -> bool:
        await asyncio.sleep(0)
        return number > 100


async def is_large(number: int) -> bool:
    return await IsLarge()(number)


# ---------------------------------------------------------------- async


@pytest.mark.parametrize("condition", [is_large, IsLarge(), lambda number: is_large(number * 1)])
@pytest.mark.parametrize(("number", "receiver"), [(5, "default"), (500, "case0")])
async def test_a_case_may_be_async(condition: Callable[[Any], Any], number: int, receiver: str) -> None:
    assert await receivers(switching(condition), number) == [receiver]


async def test_async_and_plain_cases_are_tried_in_their_order() -> None:
    tried: list[str] = []

    async def first(number: int) -> bool:
        tried.append("first")
        return False

    def second(number: int) -> bool:
        tried.append("second")
        return True

    assert await receivers(switching(first, second, first)) == ["case1"] and tried == ["first", "second"]


async def test_async_case_that_raises_counts_as_false_with_a_warning() -> None:
    async def broken(number: int) -> bool:
        raise KeyError(number)

    result = await switching(broken).run(5)
    assert [name for name, _ in result.get_outputs()] == ["default"]
    assert warnings_of(list(result)) == ["The case 'broken' of 'start' raised KeyError and counts as false."]


async def test_a_selection_may_be_async() -> None:
    async def last(number: int, ids: list[str]) -> list[str]:
        await asyncio.sleep(0)
        return ids[-1:]

    assert await receivers(selecting(last)) == ["bob"]


# ---------------------------------------------------------------- selections


@pytest.mark.parametrize("answer", [["bob", "b"], ("bob", "b"), ["bob", "b", "bob"]], ids=["list", "tuple", "twice"])
async def test_a_selection_is_any_collection_of_ids_and_names_each_receiver_once(answer: Any) -> None:
    assert sorted(await receivers(selecting(lambda number, ids: answer))) == ["b", "bob"]


async def test_empty_selection_drops_the_message_without_a_warning() -> None:
    result = await selecting(lambda number, ids: set()).run(5)
    assert result.get_outputs() == [] and warnings_of(list(result)) == []


@pytest.mark.parametrize("answer", [None, "b", "bob", 5, True, {"b": 1}], ids=repr)
async def test_selection_that_is_not_a_list_of_ids_fails_and_names_its_value(answer: Any) -> None:
    def choose(number: int, ids: list[str]) -> Any:
        return answer

    message = rf"The selection function 'choose' of 'start' returned {answer!r}, expected a list of executor ids"
    with pytest.raises(InvalidSelection, match=message):
        await selecting(choose).run(5)


async def test_run_with_a_wrong_selection_can_be_resumed_after_a_fix() -> None:
    answers: list[Any] = [None, ["bob"]]
    workflow = selecting(lambda number, ids: answers.pop(0), checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(InvalidSelection):
        await workflow.run(5, thread_id="t")
    assert (await workflow.run(thread_id="t")).get_outputs() == [("bob", 5)]


async def test_a_selection_function_that_changes_the_list_of_ids_changes_nothing() -> None:
    def greedy(number: int, ids: list[str]) -> list[str]:
        ids.remove("b")
        return ids

    workflow = selecting(greedy)
    assert [await receivers(workflow) for _ in range(2)] == [["bob"], ["bob"]]


# ---------------------------------------------------------------- copies


def spoil(message: list[Any], *_: Any) -> bool:
    message.append("spoiled")
    return True


def spoil_and_choose(message: list[Any], ids: list[str]) -> list[str]:
    spoil(message)
    return ids


def with_condition() -> Workflow:
    start = relay("start")
    return WorkflowBuilder(start_executor=start).add_edge(start, sink("b"), spoil).add_edge(start, sink("c")).build()


@pytest.mark.parametrize(
    ("build", "number"),
    [
        (with_condition, 2),
        (lambda: switching(lambda message: not spoil(message), spoil), 1),
        (lambda: selecting(spoil_and_choose), 2),
    ],
    ids=["condition", "cases", "selection"],
)
async def test_change_of_a_message_by_a_predicate_reaches_no_receiver(
    build: Callable[[], Workflow], number: int
) -> None:
    delivered = [message for _, message in (await build().run([1])).get_outputs()]
    assert delivered == [[1]] * number


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["none", "memory"])
async def test_reducer_that_changes_its_arguments_changes_no_committed_state(
    make_storage: Callable[[], Any],
) -> None:
    def extend(current: list[int], written: list[int]) -> list[int]:
        current.extend(written)
        written.clear()
        return current

    fails: list[bool] = []

    async def write(number: int, ctx: WorkflowContext[Any, list[int]]) -> None:
        ctx.set_state("all", [number])
        assert ctx.get_state("all") == ctx.get_state("all") and "all" in ctx.state  # each read folds again
        if fails:
            raise ConnectionError
        await ctx.yield_output(ctx.get_state("all"))

    workflow = alone(write, accepts=int, state={"all": extend}, checkpoint_storage=make_storage())
    assert [(await workflow.run(n)).get_outputs() for n in (1, 2)] == [[[1]], [[1, 2]]]
    fails.append(True)
    with pytest.raises(ConnectionError):
        await workflow.run(3)
    fails.clear()
    assert (await workflow.run()).get_outputs() == [[1, 2, 3]]
