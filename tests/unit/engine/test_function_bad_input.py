"""Invalid function workflows and steps are rejected with an error that names the remedy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, begin

from perdure import ContextEnded, InvalidFunction, InvalidRun, RunContext, get_run_context, step, workflow


async def an_async_generator(message: str) -> AsyncIterator[str]:
    yield message


def a_generator(message: str) -> Iterator[str]:
    yield message


def a_sync_function(message: str) -> str:
    return message


@pytest.mark.parametrize("function", [an_async_generator, a_generator])
def test_generator_is_rejected_as_a_workflow(function: Any) -> None:
    with pytest.raises(TypeError, match=f"'{function.__name__}' is a generator"):
        workflow(function)


def test_function_that_is_not_async_is_rejected_as_a_workflow() -> None:
    with pytest.raises(TypeError, match=r"'a_sync_function' must be an `async def`.*@step"):
        workflow(a_sync_function)  # type: ignore[arg-type]  # what the test is about


@pytest.mark.parametrize("thing", [3, "flow", None.__class__, object()])
def test_object_that_is_not_a_function_is_rejected_as_a_workflow(thing: Any) -> None:
    with pytest.raises(TypeError, match="@workflow"):
        workflow(name="x")(thing)


async def two_messages(first: str, second: str) -> None: ...


async def two_contexts(first: RunContext, second: RunContext) -> None: ...


async def message_too_many(first: str, second: str, ctx: RunContext) -> None: ...


async def needs_a_keyword(message: str, *, size: int) -> None: ...


@pytest.mark.parametrize("function", [two_messages, two_contexts, message_too_many, needs_a_keyword])
def test_parameters_that_a_run_cannot_fill_are_rejected(function: Any) -> None:
    with pytest.raises(InvalidFunction, match=f"'{function.__name__}' takes .*at most one parameter for the message"):
        workflow(function)


async def test_parameters_with_defaults_are_left_to_them() -> None:
    @workflow
    async def flow(message: str, ctx: RunContext, size: int = 3, *, colour: str = "red", **more: Any) -> str:
        return f"{message} {size} {colour} {more}"

    assert (await begin(flow, None, "hi")).get_outputs() == ["hi 3 red {}"]


async def test_parameters_by_name_only_are_filled_by_name() -> None:
    @workflow
    async def context_by_name(message: str, *, ctx: RunContext) -> str:
        return f"{message} {ctx.thread_id}"

    @workflow
    async def both_by_name(*, message: str, ctx: RunContext) -> str:
        return f"{message} {ctx.thread_id}"

    for flow in (context_by_name, both_by_name):
        assert (await begin(flow, None, "hi")).get_outputs() == ["hi t"]


@pytest.mark.parametrize("name", ["", 7])
def test_invalid_name_is_rejected(name: Any) -> None:
    async def flow(message: str) -> None: ...

    with pytest.raises(ValueError, match="name"):
        workflow(name=name)(flow)
    with pytest.raises(ValueError, match="name"):
        step(name=name)(flow)


def test_object_that_is_not_a_storage_is_rejected_at_definition_and_build() -> None:
    async def flow(message: str) -> None: ...

    with pytest.raises(InvalidRun, match="is not a checkpoint storage"):
        workflow(checkpoint_storage="file.db")(flow)
    with pytest.raises(InvalidRun, match="is not a checkpoint storage"):
        workflow(flow).build("file.db")


async def test_workflow_called_as_a_function_outside_of_a_workflow_names_run() -> None:
    @workflow
    async def flow(message: str) -> str:
        return message

    with pytest.raises(InvalidRun, match=r"await flow\.run\(message\)"):
        await flow("hi")


@pytest.mark.parametrize("function", [an_async_generator, a_generator])
def test_generator_is_rejected_as_a_step(function: Any) -> None:
    with pytest.raises(TypeError, match="generator"):
        step(function)


async def test_result_of_a_call_is_rejected_as_a_step() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        value: Any = a_sync_function("called already")
        await ctx.step(value)

    with pytest.raises(TypeError, match="Pass the function, not what it returns"):
        await begin(flow, None)


async def test_a_lambda_needs_a_name() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.step(lambda: 1)

    with pytest.raises(ValueError, match="name="):
        await begin(flow, None)


async def test_a_context_used_after_its_function_ended_is_refused() -> None:
    kept: list[RunContext] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        kept.append(ctx)

    await begin(flow, None)
    (ctx,) = kept
    for use in (ctx.sleep(1), ctx.request_info("?", str), ctx.step(a_sync_function, "x")):
        with pytest.raises(ContextEnded, match="'flow'"):
            await use
    with pytest.raises(ContextEnded, match="'flow'"):
        ctx.set_state("key", 1)


async def test_a_step_in_a_task_left_behind_is_refused() -> None:
    may_go, left = asyncio.Event(), []

    @step
    async def fetch() -> None:
        raise AssertionError("must not be called")

    async def later() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await may_go.wait()
        await fetch()

    @workflow
    async def flow(_: str) -> None:
        left.append(asyncio.create_task(later()))

    await begin(flow, None)
    may_go.set()
    with pytest.raises(ContextEnded):
        await left[0]


async def test_unknown_options_of_a_run_are_refused_with_the_nearest_one() -> None:
    @workflow
    async def flow(message: str) -> None: ...

    with pytest.raises(TypeError, match="did you mean 'thread_id'"):
        await flow.run("hi", tread_id=THREAD)  # type: ignore[call-overload]  # what the test is about


async def test_the_context_outside_of_a_workflow_is_none() -> None:
    assert get_run_context() is None
