"""A step is identified by its arguments, however the call is written, and replayed as it went the first time."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
import weakref
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pytest
from tests.unit.engine.function_flows import Calls, answer, begin, paused_and_resumed, questions
from tests.unit.engine.policy_flows import SkippingClock, of_kind

from perdure import (
    FunctionalWorkflow,
    InMemoryCheckpointStorage,
    RunContext,
    Secret,
    StepArgumentsUnsavable,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
    WorkflowRunResult,
    get_run_context,
    step,
    workflow,
)


def in_order(calls: list[Callable[..., Any]], *arguments: Any) -> FunctionalWorkflow[Any, Any]:
    """Calls these as steps, in order, and gives their results once its last question is answered."""

    @workflow(name="in_order")
    async def flow(_: str, ctx: RunContext) -> list[Any]:
        results = [await ctx.step(call, *arguments) for call in calls]
        await ctx.request_info("go on?", str)
        return results

    return flow


async def changed(before: FunctionalWorkflow[Any, Any], after: FunctionalWorkflow[Any, Any]) -> WorkflowRunResult:
    """Begun with the code as it was, ended with the code as it is."""
    storage = InMemoryCheckpointStorage()
    return await answer(after, storage, await begin(before, storage), {"go on?": "yes"})


# ---------------------------------------------------------------- what a function brings along


def scale(factor: int, n: int) -> int:
    return factor * n


def scale_by_name(n: int, factor: int = 1) -> int:
    return factor * n


@dataclasses.dataclass(frozen=True)
class Scale:
    factor: int

    def apply(self, n: int) -> int:
        return self.factor * n


@pytest.mark.parametrize(
    ("first", "second", "arguments", "swapped"),
    [
        (partial(scale, 2), partial(scale, 3), [5], [15, 10]),
        (partial(scale_by_name, factor=2), partial(scale_by_name, factor=3), [5], [15, 10]),
        (partial(partial(scale, 2), 5), partial(partial(scale, 3), 5), [], [15, 10]),
        ("a".upper, "b".upper, [], ["B", "A"]),
        (PurePosixPath("/a").as_uri, PurePosixPath("/b").as_uri, [], ["file:///b", "file:///a"]),
        (Scale(2).apply, Scale(3).apply, [5], [15, 10]),
    ],
    ids=[
        "partial",
        "partial by name",
        "partial of a partial",
        "method of a text",
        "method of a path",
        "frozen dataclass",
    ],
)
async def test_reordered_calls_that_differ_in_bound_values_keep_their_results(
    first: Any, second: Any, arguments: list[Any], swapped: list[Any]
) -> None:
    result = await changed(in_order([first, second], *arguments), in_order([second, first], *arguments))
    assert result.get_outputs() == [swapped]
    assert ["the code changed since" in str(event.data) for event in of_kind(result, "warning")] == [True, True]


async def test_instances_and_closures_do_not_distinguish_calls() -> None:
    calls = Calls()

    class Shop:
        async def sell(self, item: str) -> str:
            calls.append(item)
            return f"sold {item}"

    def selling(shop: Shop) -> Callable[[str], Any]:
        async def sell_in(item: str) -> str:
            return await shop.sell(item)

        return sell_in

    for make in (lambda: Shop().sell, lambda: selling(Shop())):
        calls.clear()
        result = await changed(in_order([make()], "tea"), in_order([make()], "tea"))
        assert result.get_outputs() == [["sold tea"]] and not of_kind(result, "warning")
        assert calls == ["tea"]


@pytest.mark.parametrize("kind", ["keyword", "default written out", "all by name"])
async def test_a_call_is_the_same_however_its_arguments_are_written(kind: str) -> None:
    paid: list[tuple[int, str]] = []

    @step
    async def pay(amount: int, currency: str = "EUR") -> str:
        paid.append((amount, currency))
        return f"{amount} {currency}"

    ways: dict[str, Callable[[], Any]] = {
        "plain": lambda: pay(5),
        "keyword": lambda: pay(amount=5),
        "default written out": lambda: pay(5, "EUR"),
        "all by name": lambda: pay(currency="EUR", amount=5),
    }

    def paying(way: str) -> FunctionalWorkflow[Any, Any]:
        @workflow(name="paying")
        async def flow(_: str, ctx: RunContext) -> str:
            receipt = await ways[way]()
            await ctx.request_info("go on?", str)
            return str(receipt)

        return flow

    result = await changed(paying("plain"), paying(kind))
    assert result.get_outputs() == ["5 EUR"] and not of_kind(result, "warning")
    assert paid == [(5, "EUR")]


# ---------------------------------------------------------------- the first time is as every other


async def test_changes_of_arguments_by_a_step_never_reach_its_caller() -> None:
    calls = Calls()
    seen: list[list[str]] = []

    async def reply(messages: list[str]) -> list[str]:
        calls.append(len(messages))
        messages.append("reply")
        return messages

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        messages = ["hi"]
        lengths = [len(await ctx.step(reply, messages)), len(await ctx.step(reply, messages))]
        seen.append(list(messages))
        await ctx.request_info("go on?", str)
        return lengths

    assert await paused_and_resumed(flow) == [2, 2]
    assert calls == [1, 1] and seen == [["hi"], ["hi"]]


async def test_a_result_that_the_step_keeps_is_not_changed_by_its_caller() -> None:
    kept: list[str] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        result = await ctx.step(lambda: kept, name="kept")
        result.append("mine")
        await ctx.request_info("go on?", str)
        return result

    assert await paused_and_resumed(flow) == ["mine"] and kept == []


async def test_task_created_before_a_step_begins_before_it_ends_also_in_a_replay() -> None:
    calls, passes = Calls(), list[str]()
    work = calls.step(name="work")

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        async def side() -> None:
            passes.append("side")
            await work("side")

        task = asyncio.create_task(side())
        await work("main")
        passes.append("main")
        task.cancel()
        await ctx.sleep(60)
        return "done"

    result = await begin(flow, InMemoryCheckpointStorage(), clock=SkippingClock())
    assert result.get_outputs() == ["done"] and not of_kind(result, "warning")
    assert passes == ["side", "main"] * 2


# ---------------------------------------------------------------- the arguments and the errors of a function


async def test_function_and_its_steps_read_run_arguments_also_inside_a_graph() -> None:
    async def used(_: str) -> Any:
        ctx = get_run_context()
        assert ctx is not None
        return len(ctx.client_kwargs["key"])

    @workflow
    async def flow(name: str, ctx: RunContext) -> list[Any]:
        return [name, ctx.function_invocation_kwargs["user"], await ctx.step(used, name)]

    arguments: dict[str, Any] = {"function_invocation_kwargs": {"user": 7}, "client_kwargs": {"key": Secret("hunter2")}}
    assert (await flow.run("x", **arguments)).get_outputs() == [["x", 7, 7]]
    graph = WorkflowBuilder(start_executor=WorkflowExecutor(flow, "child", allow_direct_output=True)).build()
    assert (await graph.run("x", **arguments)).get_outputs() == [["x", 7, 7]]


async def test_arguments_that_cannot_be_encoded_are_rejected_with_a_valid_call() -> None:
    note = Calls().step(name="note")

    @workflow
    async def flow(_: str) -> None:
        await note(object())

    with pytest.raises(StepArgumentsUnsavable, match=r"ctx\.step\(\.\.\., key='\.\.\.'\)"):
        await begin(flow, None)


async def test_ctx_step_rejects_a_generator() -> None:
    async def pages(_: str) -> AsyncIterator[str]:
        yield "one"

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.step(pages, "x")

    with pytest.raises(TypeError, match=r"A step cannot be 'pages': it is a generator.*Return a list"):
        await begin(flow, None)


async def test_unhandled_question_of_a_child_warns_with_a_remedy_that_works() -> None:
    @workflow
    async def child(_: str, ctx: RunContext) -> str:
        return await ctx.request_info("ok?", str)

    def asking(**options: bool) -> Workflow:
        return WorkflowBuilder(start_executor=WorkflowExecutor(child, "child", **options)).build()

    [warning] = of_kind(await asking().run("x"), "warning")
    assert "or WorkflowExecutor(propagate_request=True)" in str(warning.data)
    assert "add_edge(child, child)" not in str(warning.data)
    asked = await asking(propagate_request=True).run("x")
    assert list(questions(asked)) == ["ok?"] and not of_kind(asked, "warning")


async def test_repr_of_an_event_shows_only_the_fields_that_are_set() -> None:
    @workflow
    async def flow(_: str) -> str:
        return "done"

    [output] = of_kind(await begin(flow, None), "output")
    assert "data='done'" in repr(output) and "None" not in repr(output)


async def test_step_made_of_a_partial_can_be_called() -> None:
    async def scaled(factor: int, value: int) -> int:
        return factor * value

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        return await ctx.step(step(partial(scaled, 3)), 5)

    assert (await flow.run("x")).get_outputs() == [15]


# ---------------------------------------------------------------- what remains of a function


class Conversation:
    """What the step of an agent refers to."""

    size = 0


async def test_function_of_a_step_is_freed_with_what_it_refers_to() -> None:
    referred: list[weakref.ref[Conversation]] = []

    @workflow(name="talk")
    async def talk(_: str, ctx: RunContext) -> int:
        conversation = Conversation()
        referred.append(weakref.ref(conversation))

        async def ask(number: int) -> int:
            return conversation.size + number

        return await ctx.step(ask, 1) + await ctx.step(partial(ask, 1))

    assert (await talk.run("x")).get_outputs() == [2]
    gc.collect()
    assert [reference() for reference in referred] == [None]


async def test_signature_of_a_method_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    signature = inspect.signature

    def read_signature(function: Any) -> inspect.Signature:
        read.append(getattr(function, "__qualname__", ""))
        return signature(function)

    class Scale:
        def times(self, number: int, factor: int = 1) -> int:
            return number * factor

    monkeypatch.setattr(inspect, "signature", read_signature)
    flow = in_order([Scale().times, Scale().times], 3)
    for run in ("first", "second"):
        await flow.run("x", thread_id=run)
    assert read.count(Scale.times.__qualname__) == 1
