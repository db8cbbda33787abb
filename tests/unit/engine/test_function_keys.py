"""A step is found again by its name, its arguments and its occurrence among equals, or by its key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, begin, paused_and_resumed, resume

from perdure import InMemoryCheckpointStorage, RunContext, step, workflow
from perdure.errors import StepArgumentsUnsavable, StepNameTaken


@dataclass(frozen=True)
class Order:
    item: str
    amounts: list[int] = field(default_factory=list)


class Numbers:
    """A step that gives another number at every call: a result in the wrong place shows."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    async def give(self, *arguments: Any, **keywords: Any) -> str:
        self.received.append((arguments, keywords))
        return f"{len(self.received)}: {arguments} {keywords}"


async def test_equal_calls_one_after_the_other_have_results_of_their_own() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = [await ctx.step(numbers.give, "same") for _ in range(3)]
        await ctx.request_info("go on?", str)
        return [result[0] for result in results]

    assert await paused_and_resumed(flow) == ["1", "2", "3"]
    assert len(numbers.received) == 3


async def test_equal_calls_at_the_same_time_have_results_of_their_own() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = await asyncio.gather(*(ctx.step(numbers.give, "same") for _ in range(3)))
        await ctx.request_info("go on?", str)
        return [result[0] for result in results]

    assert await paused_and_resumed(flow) == ["1", "2", "3"]
    assert len(numbers.received) == 3


async def test_only_the_failed_call_of_equal_concurrent_calls_is_made_again() -> None:
    started: list[int] = []
    is_up = False

    @step
    async def fetch() -> int:
        started.append(len(started))
        number = started[-1]
        if number == 1 and not is_up:
            raise ConnectionError("down")
        return number

    @workflow
    async def flow(_: str) -> list[int]:
        results = await asyncio.gather(fetch(), fetch(), fetch(), return_exceptions=True)
        for result in results:
            if isinstance(result, ConnectionError):
                raise result
        return [result for result in results if isinstance(result, int)]

    storage = InMemoryCheckpointStorage()
    with pytest.raises(ConnectionError):
        await begin(flow, storage)
    is_up = True
    assert (await resume(flow, storage)).get_outputs() == [[0, 3, 2]]


async def test_arguments_by_name_are_arguments_in_any_order() -> None:
    numbers = Numbers()
    fetch = step(name="fetch")(numbers.give)

    @workflow
    async def flow(asked: str, ctx: RunContext) -> list[str]:
        results = [await fetch(page=1, size=2), await fetch(page=2, size=1), await fetch(1, 2)]
        if await ctx.request_info("go on?", str) == "yes":
            results.append(await fetch(size=7, page=8))
        return results

    assert [result[0] for result in await paused_and_resumed(flow)] == ["1", "2", "3", "4"]
    assert numbers.received[-1] == ((), {"size": 7, "page": 8})


async def test_order_of_keyword_arguments_does_not_change_the_identity_of_a_call() -> None:
    numbers = Numbers()
    fetch = step(name="fetch")(numbers.give)
    runs: list[int] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        runs.append(1)
        result = await (fetch(page=1, size=2) if len(runs) == 1 else fetch(size=2, page=1))
        await ctx.request_info("go on?", str)
        return str(result)

    assert await paused_and_resumed(flow) == "1: () {'page': 1, 'size': 2}"
    assert len(numbers.received) == 1


async def test_dataclass_arguments_are_distinguished_by_their_values() -> None:
    calls = Calls()
    price = calls.step(lambda order: f"price of {order.item}")

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        orders = [Order("tea", [1]), Order("tea", [2]), Order("milk", [1])]
        prices = await asyncio.gather(*map(price, orders))
        await ctx.request_info("go on?", str)
        return [*prices, await price(Order("tea", [1]))]

    assert await paused_and_resumed(flow) == ["price of tea", "price of tea", "price of milk", "price of tea"]
    assert calls == [Order("tea", [1]), Order("tea", [2]), Order("milk", [1]), Order("tea", [1])]


@pytest.mark.parametrize(("value", "other"), [(1, "1"), (1, True), (1, 1.0), (None, "None"), ([1], (1,)), ("", b"")])
async def test_arguments_that_look_alike_are_different_calls(value: Any, other: Any) -> None:
    calls = Calls()
    kind = calls.step(lambda value: type(value).__name__)
    first = True

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        nonlocal first
        argument, first = (value if first else other), False
        result = await kind(argument)
        await ctx.request_info("go on?", str)
        return str(result)

    assert await paused_and_resumed(flow) == type(other).__name__


async def test_change_of_an_argument_after_the_call_does_not_change_its_identity() -> None:
    calls = Calls()
    note = calls.step(len)

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        order: list[str] = []
        length = await note(order)
        order.append("changed")
        await ctx.request_info("go on?", str)
        return int(length)

    assert await paused_and_resumed(flow) == 0
    assert len(calls) == 1


async def test_change_of_a_result_by_the_caller_does_not_change_the_record() -> None:
    calls = Calls()
    fetch = calls.step(lambda _: [1])
    seen: list[Any] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        result = await fetch("x")
        seen.append(list(result))
        result.append("mine")
        await ctx.request_info("go on?", str)
        return result

    assert await paused_and_resumed(flow) == [1, "mine"]
    assert seen == [[1], [1]]


async def test_with_a_key_the_arguments_do_not_matter_and_need_not_be_encodable() -> None:
    class Client:
        def __init__(self) -> None:
            self.calls = 0

        async def fetch(self, new_object: object) -> str:
            self.calls += 1
            return f"page {self.calls}"

    client = Client()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        pages = [await ctx.step(client.fetch, object(), key=f"page-{n}") for n in (1, 2)]
        await ctx.request_info("go on?", str)
        return pages

    assert await paused_and_resumed(flow) == ["page 1", "page 2"]
    assert client.calls == 2


async def test_the_same_key_is_the_same_step_at_once_and_later() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = list(await asyncio.gather(*(ctx.step(numbers.give, n, key="once") for n in range(3))))
        await ctx.request_info("go on?", str)
        return [*results, await ctx.step(numbers.give, 9, key="once")]

    assert await paused_and_resumed(flow) == ["1: (0,) {}"] * 4
    assert len(numbers.received) == 1


async def test_a_key_is_not_mistaken_for_arguments_nor_for_that_of_another_step() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = [
            await ctx.step(numbers.give, key="a", name="x"),
            await ctx.step(numbers.give, key="a", name="y"),
            await ctx.step(numbers.give, "a", name="x"),
            await ctx.step(numbers.give, name="x"),
        ]
        await ctx.request_info("go on?", str)
        return [result[0] for result in results]

    assert await paused_and_resumed(flow) == ["1", "2", "3", "4"]


async def test_instance_of_a_method_step_is_not_part_of_its_arguments() -> None:
    class Shop:
        def __init__(self) -> None:
            self.lock = object()  # cannot be encoded
            self.sold: list[str] = []

        @step
        async def sell(self, item: str) -> str:
            self.sold.append(item)
            return f"sold {item}"

    shop = Shop()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        result = await shop.sell("tea")
        await ctx.request_info("go on?", str)
        return str(result)

    assert await paused_and_resumed(flow) == "sold tea"
    assert shop.sold == ["tea"]


async def test_partial_is_identified_by_its_function_and_its_bound_arguments() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = await asyncio.gather(*(ctx.step(partial(numbers.give, bound)) for bound in ("a", "b")))
        await ctx.request_info("go on?", str)
        return list(results)

    assert await paused_and_resumed(flow) == ["1: ('a',) {}", "2: ('b',) {}"]
    assert len(numbers.received) == 2


async def test_context_argument_does_not_change_the_identity_of_a_call() -> None:
    names: list[str] = []

    @step
    async def look(ctx: RunContext, name: str) -> str:
        names.append(name)
        return f"{name} {ctx.thread_id}"

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        result = await look(ctx, "tea")
        await ctx.request_info("go on?", str)
        return result

    assert await paused_and_resumed(flow) == "tea t"
    assert names == ["tea"]


@pytest.mark.parametrize("storage", [None, InMemoryCheckpointStorage()], ids=["no storage", "memory"])
async def test_arguments_that_cannot_be_encoded_are_rejected_with_a_remedy(storage: Any) -> None:
    calls = Calls()
    note = calls.step(name="fetch")

    @workflow
    async def flow(_: str) -> None:
        await note([{"client": object()}])

    with pytest.raises(StepArgumentsUnsavable, match=r"'fetch'.*key='...'") as refused:
        await begin(flow, storage)
    assert "client" in refused.value.path
    assert calls == []


async def test_second_function_under_a_taken_name_is_rejected_before_its_call() -> None:
    calls = Calls()

    async def other(value: str) -> None:
        calls.append("other")

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await calls.step(name="fetch")("first")
        await ctx.step(other, "second", name="fetch")

    with pytest.raises(StepNameTaken, match="'fetch'"):
        await begin(flow, None)
    assert calls == ["first"]


async def test_another_run_may_use_a_step_name_for_another_function() -> None:
    calls = Calls()

    async def other(value: str) -> str:
        return f"other {value}"

    @workflow
    async def flow(which: str, ctx: RunContext) -> Any:
        return await ctx.step(other if which == "other" else calls.step().function, "same", name="fetch")

    built = flow.build(InMemoryCheckpointStorage())
    outputs = [(await built.run(which, thread_id=THREAD)).get_outputs() for which in ("first", "other")]
    assert outputs == [["same"], ["other same"]]


async def test_same_code_defined_again_in_a_loop_is_the_same_function() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        return [await ctx.step(lambda n=n: n * 2, name="double", key=str(n)) for n in range(3)]

    assert (await begin(flow, InMemoryCheckpointStorage())).get_outputs() == [[0, 2, 4]]
