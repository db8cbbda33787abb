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
        self.given: list[Any] = []

    async def give(self, *arguments: Any, **keywords: Any) -> str:
        self.given.append((arguments, keywords))
        return f"{len(self.given)}: {arguments} {keywords}"


async def test_equal_calls_one_after_the_other_have_results_of_their_own() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        found = [await ctx.step(numbers.give, "same") for _ in range(3)]
        await ctx.request_info("go on?", str)
        return [one[0] for one in found]

    assert await paused_and_resumed(flow) == ["1", "2", "3"]
    assert len(numbers.given) == 3


async def test_equal_calls_at_the_same_time_have_results_of_their_own() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        found = await asyncio.gather(*(ctx.step(numbers.give, "same") for _ in range(3)))
        await ctx.request_info("go on?", str)
        return [one[0] for one in found]

    assert await paused_and_resumed(flow) == ["1", "2", "3"]
    assert len(numbers.given) == 3


async def test_of_equal_calls_at_the_same_time_only_the_unfinished_one_is_made_again() -> None:
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
        found = await asyncio.gather(fetch(), fetch(), fetch(), return_exceptions=True)
        for one in found:
            if isinstance(one, ConnectionError):
                raise one
        return [one for one in found if isinstance(one, int)]

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
        found = [await fetch(page=1, size=2), await fetch(page=2, size=1), await fetch(1, 2)]
        if await ctx.request_info("go on?", str) == "yes":
            found.append(await fetch(size=7, page=8))
        return found

    assert [one[0] for one in await paused_and_resumed(flow)] == ["1", "2", "3", "4"]
    assert numbers.given[-1] == ((), {"size": 7, "page": 8})


async def test_the_order_of_arguments_by_name_does_not_make_another_call_of_it() -> None:
    numbers = Numbers()
    fetch = step(name="fetch")(numbers.give)
    runs: list[int] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        runs.append(1)
        found = await (fetch(page=1, size=2) if len(runs) == 1 else fetch(size=2, page=1))
        await ctx.request_info("go on?", str)
        return str(found)

    assert await paused_and_resumed(flow) == "1: () {'page': 1, 'size': 2}"
    assert len(numbers.given) == 1


async def test_dataclasses_are_told_apart_by_what_they_hold() -> None:
    calls = Calls()
    price = calls.step(lambda order: f"price of {order.item}")

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        orders = [Order("tea", [1]), Order("tea", [2]), Order("milk", [1])]
        found = await asyncio.gather(*map(price, orders))
        await ctx.request_info("go on?", str)
        return [*found, await price(Order("tea", [1]))]

    assert await paused_and_resumed(flow) == ["price of tea", "price of tea", "price of milk", "price of tea"]
    assert calls == [Order("tea", [1]), Order("tea", [2]), Order("milk", [1]), Order("tea", [1])]


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (1, True), (1, 1.0), (None, "None"), ([1], (1,)), ("", b"")])
async def test_arguments_that_look_alike_are_different_calls(one: Any, other: Any) -> None:
    calls = Calls()
    kind = calls.step(lambda value: type(value).__name__)
    first = True

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        nonlocal first
        given, first = (one if first else other), False
        found = await kind(given)
        await ctx.request_info("go on?", str)
        return str(found)

    assert await paused_and_resumed(flow) == type(other).__name__


async def test_changing_an_argument_after_the_call_does_not_make_another_call_of_it() -> None:
    calls = Calls()
    note = calls.step(len)

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        order: list[str] = []
        found = await note(order)
        order.append("changed")
        await ctx.request_info("go on?", str)
        return int(found)

    assert await paused_and_resumed(flow) == 0
    assert len(calls) == 1


async def test_what_the_caller_does_to_a_result_does_not_change_what_was_recorded() -> None:
    calls = Calls()
    fetch = calls.step(lambda _: [1])
    seen: list[Any] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        found = await fetch("x")
        seen.append(list(found))
        found.append("mine")
        await ctx.request_info("go on?", str)
        return found

    assert await paused_and_resumed(flow) == [1, "mine"]
    assert seen == [[1], [1]]


async def test_with_a_key_the_arguments_do_not_matter_and_need_not_be_encodable() -> None:
    class Client:
        def __init__(self) -> None:
            self.calls = 0

        async def fetch(self, made_anew: object) -> str:
            self.calls += 1
            return f"page {self.calls}"

    client = Client()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        found = [await ctx.step(client.fetch, object(), key=f"page-{n}") for n in (1, 2)]
        await ctx.request_info("go on?", str)
        return found

    assert await paused_and_resumed(flow) == ["page 1", "page 2"]
    assert client.calls == 2


async def test_the_same_key_is_the_same_step_at_once_and_later() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        found = list(await asyncio.gather(*(ctx.step(numbers.give, n, key="once") for n in range(3))))
        await ctx.request_info("go on?", str)
        return [*found, await ctx.step(numbers.give, 9, key="once")]

    assert await paused_and_resumed(flow) == ["1: (0,) {}"] * 4
    assert len(numbers.given) == 1


async def test_a_key_is_not_mistaken_for_arguments_nor_for_that_of_another_step() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        found = [
            await ctx.step(numbers.give, key="a", name="x"),
            await ctx.step(numbers.give, key="a", name="y"),
            await ctx.step(numbers.give, "a", name="x"),
            await ctx.step(numbers.give, name="x"),
        ]
        await ctx.request_info("go on?", str)
        return [one[0] for one in found]

    assert await paused_and_resumed(flow) == ["1", "2", "3", "4"]


async def test_a_method_is_a_step_whose_instance_is_no_argument() -> None:
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
        found = await shop.sell("tea")
        await ctx.request_info("go on?", str)
        return str(found)

    assert await paused_and_resumed(flow) == "sold tea"
    assert shop.sold == ["tea"]


async def test_a_partial_is_found_by_the_name_of_its_function_and_told_apart_by_what_it_binds() -> None:
    numbers = Numbers()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        found = await asyncio.gather(*(ctx.step(partial(numbers.give, bound)) for bound in ("a", "b")))
        await ctx.request_info("go on?", str)
        return list(found)

    assert await paused_and_resumed(flow) == ["1: ('a',) {}", "2: ('b',) {}"]
    assert len(numbers.given) == 2


async def test_a_context_among_the_arguments_does_not_make_another_call_of_it() -> None:
    given: list[str] = []

    @step
    async def look(ctx: RunContext, name: str) -> str:
        given.append(name)
        return f"{name} {ctx.thread_id}"

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        found = await look(ctx, "tea")
        await ctx.request_info("go on?", str)
        return found

    assert await paused_and_resumed(flow) == "tea t"
    assert given == ["tea"]


@pytest.mark.parametrize("storage", [None, InMemoryCheckpointStorage()], ids=["no storage", "memory"])
async def test_arguments_that_cannot_be_encoded_are_refused_with_the_way_out(storage: Any) -> None:
    calls = Calls()
    note = calls.step(name="fetch")

    @workflow
    async def flow(_: str) -> None:
        await note([{"client": object()}])

    with pytest.raises(StepArgumentsUnsavable, match=r"'fetch'.*key='...'") as refused:
        await begin(flow, storage)
    assert "client" in refused.value.path
    assert calls == []


async def test_two_functions_under_one_name_are_refused_before_the_second_is_called() -> None:
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


async def test_another_run_may_call_another_function_by_the_name_for_its_records_are_its_own() -> None:
    calls = Calls()

    async def other(value: str) -> str:
        return f"other {value}"

    @workflow
    async def flow(which: str, ctx: RunContext) -> Any:
        return await ctx.step(other if which == "other" else calls.step().function, "same", name="fetch")

    built = flow.build(InMemoryCheckpointStorage())
    outputs = [(await built.run(which, thread_id=THREAD)).get_outputs() for which in ("first", "other")]
    assert outputs == [["same"], ["other same"]]


async def test_the_same_code_made_anew_in_a_loop_is_the_same_function() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        return [await ctx.step(lambda n=n: n * 2, name="double", key=str(n)) for n in range(3)]

    assert (await begin(flow, InMemoryCheckpointStorage())).get_outputs() == [[0, 2, 4]]
