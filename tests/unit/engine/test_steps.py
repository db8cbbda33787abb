"""ctx.step in a handler: its result is recorded, found again, and the function not called again."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any, Never

import pytest
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Boom,
    Context,
    Flaky,
    SkippingClock,
    alone,
    chained,
    executor_outline,
    worker,
)

from perdure import (
    ContextEnded,
    Executor,
    InMemoryCheckpointStorage,
    InvalidRun,
    StepArgumentsUnsavable,
    StepNameTaken,
    UnsavableValue,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    step,
)


class Calls:
    """Functions to be steps, and what they were called with."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    async def double(self, number: int) -> int:
        self.made.append(number)
        return number * 2

    def halve(self, number: int) -> float:
        self.made.append((number, threading.current_thread() is threading.main_thread()))
        return number / 2


async def resumed(build: Any, *, error: type[Exception] = Boom) -> Any:
    """Runs until it fails, and resumes with another object."""
    with pytest.raises(error):
        await build().run("x", thread_id="t")
    return await build().run(thread_id="t")


def once_failing(work: Any, flaky: Flaky, storage: Any, **policy: Any) -> Any:
    """A workflow whose only handler does `work` and fails then, the first time."""

    async def both(message: Any, ctx: Context) -> None:
        value = await work(ctx)
        flaky.meet()
        await ctx.yield_output(value)

    return lambda: alone(both, policy=policy, checkpoint_storage=storage, clock=SkippingClock())


# ---------------------------------------------------------------- recorded once


async def test_a_step_gives_the_result_of_its_function() -> None:
    calls = Calls()

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output([await ctx.step(calls.double, 2), await ctx.step(calls.halve, 3)])

    assert (await alone(work).run("x")).get_outputs() == [[4, 1.5]]
    assert calls.made == [2, (3, False)], "a function that is not async runs in a thread"


async def test_a_step_is_not_called_again_when_the_handler_failed_after_it() -> None:
    calls = Calls()
    build = once_failing(lambda ctx: ctx.step(calls.double, 2), Flaky(1), InMemoryCheckpointStorage())
    assert (await resumed(build)).get_outputs() == [4]
    assert calls.made == [2]


async def test_same_object_replays_a_step_without_a_storage() -> None:
    calls = Calls()
    workflow = once_failing(lambda ctx: ctx.step(calls.double, 2), Flaky(1), None)()
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    assert (await workflow.run(thread_id="t")).get_outputs() == [4]
    assert calls.made == [2]


@pytest.mark.parametrize("storage", [None, InMemoryCheckpointStorage()], ids=["no storage", "memory"])
async def test_a_step_is_not_called_again_when_its_executor_is_retried(storage: Any) -> None:
    calls = Calls()
    workflow = once_failing(lambda ctx: ctx.step(calls.double, 2), Flaky(2), storage, retry=3)()
    assert (await workflow.run("x")).get_outputs() == [4]
    assert calls.made == [2]


async def test_only_a_step_in_flight_is_repeated_after_a_crash() -> None:
    calls, storage, entered, crashed = Calls(), InMemoryCheckpointStorage(), asyncio.Event(), list[str]()

    async def hang(number: int) -> int:
        calls.made.append(f"hang {number}")
        if not crashed:
            entered.set()
            await asyncio.Event().wait()
        return number

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output(
            [await ctx.step(calls.double, 1), await ctx.step(hang, 2), await ctx.step(calls.double, 3)]
        )

    run = asyncio.create_task(alone(work, checkpoint_storage=storage).run("x", thread_id="t"))
    await entered.wait()
    run.cancel()
    await asyncio.wait([run])
    crashed.append("yes")
    assert (await alone(work, checkpoint_storage=storage).run(thread_id="t")).get_outputs() == [[2, 2, 6]]
    assert calls.made == [1, "hang 2", "hang 2", 3]


async def test_replayed_step_emits_bypassed_and_a_new_step_invoked_and_completed() -> None:
    calls = Calls()

    async def two(ctx: Context) -> int:
        return int(await ctx.step(calls.double, 1)) + int(await ctx.step(calls.double, 2))

    result = await resumed(once_failing(two, Flaky(1), InMemoryCheckpointStorage()))
    about = [pair for pair in executor_outline(result) if pair[1] == "only/double"]
    assert about == [("bypassed", "only/double")] * 2
    fresh = await once_failing(two, Flaky(0), None)().run("x")
    assert executor_outline(fresh)[1:5] == [("invoked", "only/double"), ("completed", "only/double")] * 2


async def test_change_of_a_result_by_the_handler_does_not_change_the_record() -> None:
    async def make() -> list[str]:
        return ["made"]

    async def spoil(ctx: Context) -> list[str]:
        value: list[str] = await ctx.step(make)
        value.append("spoiled")
        return value

    for storage in (InMemoryCheckpointStorage(), None):
        build = once_failing(spoil, Flaky(1), storage, retry=AT_ONCE)
        assert (await build().run("x")).get_outputs() == [["made", "spoiled"]]


async def test_steps_of_two_deliveries_to_one_executor_are_separate() -> None:
    calls, flaky = Calls(), Flaky(1)

    async def split(message: Any, ctx: Context) -> None:
        await ctx.send_message(5)
        await ctx.send_message(5)

    async def work(number: int, ctx: Context) -> None:
        await ctx.yield_output(await ctx.step(calls.double, number))
        flaky.meet()

    workflow = chained(worker("split", split), worker("lane", work, retry=3), clock=SkippingClock())
    assert (await workflow.run("x")).get_outputs() == [10, 10]
    assert calls.made == [5, 5], "each made its own, and none of them twice"


async def test_a_step_in_a_response_handler_is_recorded() -> None:
    calls, flaky, storage = Calls(), Flaky(1), InMemoryCheckpointStorage()

    class Asks(Executor):
        @handler
        async def ask(self, message: str, ctx: WorkflowContext[Never, int]) -> None:
            await ctx.request_info("how many?", int, request_id="q")

        @response_handler
        async def receive(self, question: str, answer: int, ctx: WorkflowContext[Never, int]) -> None:
            value = await ctx.step(calls.double, answer)
            flaky.meet()
            await ctx.yield_output(value)

    def build() -> Workflow:
        return WorkflowBuilder(name="asks", start_executor=Asks("asks"), checkpoint_storage=storage).build()

    await build().run("x", thread_id="t")
    with pytest.raises(Boom):
        await build().run(responses={"q": 4}, thread_id="t")
    assert (await build().run(thread_id="t")).get_outputs() == [8]
    assert calls.made == [4]


async def test_a_step_function_may_be_called_from_a_handler() -> None:
    made: list[int] = []

    @step(name="fetch", retry=AT_ONCE)
    async def fetch_page(number: int, *, size: int = 1) -> int:
        made.append(number)
        if len(made) == 1:
            raise Boom
        return number * size

    async def work(ctx: Context) -> list[int]:
        return [await fetch_page(2, size=3), await fetch_page(2, size=4)]

    result = await resumed(once_failing(work, Flaky(1), InMemoryCheckpointStorage()))
    assert result.get_outputs() == [[6, 8]]
    assert made == [2, 2, 2], "one more for the first attempt, which failed"
    assert ("bypassed", "only/fetch") in executor_outline(result)


async def test_a_step_of_a_task_that_the_handler_left_behind_is_refused() -> None:
    calls, over, left = Calls(), asyncio.Event(), list[asyncio.Task[Any]]()
    late = step(calls.double)

    async def call_late(ctx: Context) -> None:
        await over.wait()
        with pytest.raises(ContextEnded, match="'only' was used after its handler had ended"):
            await ctx.step(calls.double, 1)
        await late(2)

    async def work(message: str, ctx: Context) -> None:
        left.append(asyncio.create_task(call_late(ctx)))

    await alone(work).run("x")
    over.set()
    with pytest.raises(ContextEnded):
        await left[0]
    assert calls.made == []


async def test_a_step_outside_of_a_workflow_calls_its_function() -> None:
    def half(number: int) -> int:
        return number // 2

    assert (await step(Calls().double)(1), await step(half)(4)) == (2, 2)


# ---------------------------------------------------------------- which call is which


async def test_key_identifies_a_call_regardless_of_its_arguments() -> None:
    made: list[Any] = []

    async def send(thing: object) -> str:
        made.append(thing)
        return f"sent {len(made)}"

    async def work(ctx: Context) -> list[str]:
        return [await ctx.step(send, object(), key="a"), await ctx.step(send, object(), key="b")]

    assert (await resumed(once_failing(work, Flaky(1), InMemoryCheckpointStorage()))).get_outputs() == [
        ["sent 1", "sent 2"]
    ]
    assert len(made) == 2


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
async def test_two_calls_with_the_same_key_are_one_call(at_once: bool) -> None:
    calls = Calls()

    async def work(ctx: Context) -> list[Any]:
        if at_once:
            return list(await asyncio.gather(*(ctx.step(calls.double, n, key="k") for n in (1, 2))))
        return [await ctx.step(calls.double, 1, key="k"), await ctx.step(calls.double, 2, key="k")]

    result = await resumed(once_failing(work, Flaky(1), InMemoryCheckpointStorage()))
    assert result.get_outputs() == [[2, 2]] and calls.made == [1]


async def test_equal_calls_are_distinguished_by_their_occurrence() -> None:
    made: list[int] = []

    async def draw(lot: str) -> int:
        made.append(len(made))
        return made[-1]

    async def work(ctx: Context) -> list[int]:
        return [await ctx.step(draw, "lot") for _ in range(3)]

    assert (await resumed(once_failing(work, Flaky(1), InMemoryCheckpointStorage()))).get_outputs() == [[0, 1, 2]]
    assert made == [0, 1, 2]


async def test_step_with_arguments_that_cannot_be_encoded_is_not_called() -> None:
    calls = Calls()

    async def work(message: str, ctx: Context) -> None:
        await ctx.step(calls.double, object())

    with pytest.raises(StepArgumentsUnsavable, match=r"arguments of 'double'.* was not called. Pass key='...'"):
        await alone(work).run("x")
    assert calls.made == []


async def test_a_result_that_cannot_be_stored_fails_and_names_the_step() -> None:
    async def connect() -> object:
        return object()

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output(type(await ctx.step(connect)).__name__)

    assert (await alone(work).run("x")).get_outputs() == ["object"], "without a storage anything goes"
    with pytest.raises(UnsavableValue, match="result of step 'connect'"):
        await alone(work, checkpoint_storage=InMemoryCheckpointStorage()).run("x")


# ---------------------------------------------------------------- names and other misuse


async def test_the_name_of_a_step_may_be_given() -> None:
    calls = Calls()

    async def work(message: str, ctx: Context) -> None:
        await ctx.step(lambda: calls.made.append("called"), name="note it")
        await ctx.step(functools.partial(calls.double, 1))

    result = await alone(work).run("x")
    assert executor_outline(result)[1::2][:2] == [("invoked", "only/note it"), ("invoked", "only/double")]


async def test_two_different_functions_cannot_be_one_step() -> None:
    calls = Calls()

    async def work(message: str, ctx: Context) -> None:
        await ctx.step(calls.double, 1, name="count")
        await ctx.step(calls.halve, 1, name="count")

    with pytest.raises(StepNameTaken, match=r"Two different functions are called as step 'count'.*another name"):
        await alone(work).run("x")


async def test_the_same_lambda_in_a_loop_is_one_step() -> None:
    async def work(message: str, ctx: Context) -> None:
        values = [await ctx.step(lambda n: n + 1, number, name="next") for number in range(3)]
        await ctx.yield_output(values)

    assert (await alone(work).run("x")).get_outputs() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "sentence"),
    [
        ((lambda: 1,), {}, ValueError, r"has no name of its own: pass ctx.step\(..., name="),
        ((5,), {}, TypeError, "A step needs a function, got 5"),
        ((print,), {"name": ""}, InvalidRun, "A step's name must be a non-empty string, got ''"),
        ((print,), {"name": 5}, InvalidRun, "A step's name must be a non-empty string, got 5"),
        ((print,), {"retry": "often"}, ValueError, "Step 'print': retry= expects a RetryPolicy or a number"),
        ((print,), {"timeout": 0}, ValueError, "Step 'print': timeout= expects more than 0 seconds"),
        ((print,), {"on_error": None}, ValueError, "Step 'print': on_error= expects 'stop', 'skip', 'isolate' or a"),
        ((print,), {"on_error": "retry"}, ValueError, "Step 'print': on_error= expects 'stop', 'skip', 'isolate' or a"),
        ((print,), {"key": 5}, InvalidRun, "A step's key must be a non-empty string, got 5"),
        ((print,), {"key": ""}, InvalidRun, "A step's key must be a non-empty string, got ''"),
    ],
)
async def test_invalid_step_is_rejected(
    arguments: tuple[Any, ...], options: dict[str, Any], error: Any, sentence: str
) -> None:
    async def work(message: str, ctx: Context) -> None:
        await ctx.step(*arguments, **options)

    with pytest.raises(error, match=sentence):
        await alone(work).run("x")
