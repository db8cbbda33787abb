"""A function workflow remembers answers, state and arguments, streams its events, and fails on unsavable values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.promises.stages import Again, Build

from perdure import (
    RunContext,
    UnsavableValue,
    Workflow,
    WorkflowRunResult,
    get_run_context,
    step,
    workflow as as_workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

THREAD = "t"


def pending(result: WorkflowRunResult) -> list[str]:
    return [str(event.data) for event in result.get_request_info_events()]


def answered(result: WorkflowRunResult, value: str) -> dict[Any, str]:
    return {event.request_id: value for event in result.get_request_info_events()}


def interview(storage: Any) -> Build:
    @as_workflow(name="interview")
    async def flow(_: str, ctx: RunContext) -> list[str]:
        return [await ctx.request_info(question, str) for question in ("first?", "second?", "third?")]

    return lambda: flow.build(storage)


async def test_the_answer_to_the_second_question_does_not_ask_the_first_again(any_storage: Any, again: Again) -> None:
    build = interview(any_storage)
    workflow = build()
    result = await workflow.run("go", thread_id=THREAD)
    asked = [pending(result)]
    for number in range(3):
        workflow = again(workflow, build)
        result = await workflow.run(responses=answered(result, f"answer {number}"), thread_id=THREAD)
        asked.append(pending(result))
    assert asked == [["first?"], ["second?"], ["third?"], []]
    assert result.get_outputs() == [["answer 0", "answer 1", "answer 2"]]


async def test_interview_resumed_by_checkpoint_ids_collects_all_answers(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    build = interview(storage)
    workflow = build()
    result = await workflow.run("go", thread_id=THREAD)
    for number in range(3):
        workflow = again(workflow, build)
        responses = answered(result, f"answer {number}")
        result = await workflow.run(responses=responses, checkpoint_id=result.checkpoint_id)
    assert result.get_outputs() == [["answer 0", "answer 1", "answer 2"]]


async def test_interview_without_a_storage_collects_all_answers() -> None:
    workflow = interview(None)()
    result = await workflow.run("go")
    for number in range(3):
        result = await workflow.run(responses=answered(result, f"answer {number}"))
    assert result.get_outputs() == [["answer 0", "answer 1", "answer 2"]]


async def test_state_set_in_a_step_is_there_when_only_an_answer_came(any_storage: Any, again: Again) -> None:
    @step
    async def look_up(name: str) -> None:
        context = get_run_context()
        assert context is not None
        context.set_state("customer", name)

    @as_workflow(name="caller")
    async def flow(name: str, ctx: RunContext) -> Any:
        await look_up(name)
        await ctx.request_info("sure?", str)
        return ctx.get_state("customer")

    def build() -> Workflow:
        return flow.build(any_storage)

    workflow = build()
    asked = await workflow.run("ann", thread_id=THREAD)
    result = await again(workflow, build).run(responses=answered(asked, "yes"), thread_id=THREAD)
    assert result.get_outputs() == ["ann"]


async def test_stream_emits_each_step_before_the_next_step_begins(storage: StoreCheckpointStorage) -> None:
    may_go_on = asyncio.Event()
    order: list[str] = []

    @step
    async def first() -> None:
        order.append("first")

    @step
    async def second() -> None:
        order.append("second")

    @as_workflow
    async def flow(_: str) -> None:
        await first()
        await may_go_on.wait()  # set only by the consumer of the first step's event
        await second()

    async for event in flow.build(storage).run("go", stream=True):
        if event.type == "executor_completed" and event.executor_id == "first":
            order.append("told")
            may_go_on.set()
    assert order == ["first", "told", "second"]


async def test_a_step_called_with_other_arguments_is_another_call(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    amount = 10

    @step
    async def charge(amount: int) -> str:
        return f"charged {amount}"

    @as_workflow
    async def flow(_: str, ctx: RunContext) -> str:
        receipt = await charge(amount)
        await ctx.request_info("sure?", str)
        return receipt

    def build() -> Workflow:
        return flow.build(storage)

    workflow = build()
    asked = await workflow.run("go", thread_id=THREAD)
    amount = 20
    result = await again(workflow, build).run(responses=answered(asked, "y"), thread_id=THREAD)
    assert result.get_outputs() == ["charged 20"]
    assert any("'charge'" in str(event.data) for event in result if event.type == "warning")


def greeting(*, is_new: bool) -> Callable[..., Any]:
    """Two versions of one function: the same question, other code around it."""
    if is_new:

        async def greet(name: str, ctx: RunContext) -> str:
            answer = await ctx.request_info("sure?", str)
            shown = name.upper()
            return f"good morning {shown}, {answer}"

    else:

        async def greet(name: str, ctx: RunContext) -> str:
            return f"hello {name}, {await ctx.request_info('sure?', str)}"

    return greet


async def test_function_with_other_bytecode_and_the_same_steps_resumes(storage: StoreCheckpointStorage) -> None:
    asked = await as_workflow(greeting(is_new=False)).build(storage).run("ann", thread_id=THREAD)
    changed = as_workflow(greeting(is_new=True)).build(storage)
    result = await changed.run(responses=answered(asked, "yes"), thread_id=THREAD)
    assert result.get_outputs() == ["good morning ANN, yes"]


async def test_steps_at_the_same_time_leave_one_line_of_checkpoints(storage: StoreCheckpointStorage) -> None:
    @step
    async def fetch(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @as_workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        numbers = list(await asyncio.gather(*map(fetch, range(20))))
        await ctx.request_info("sure?", str)
        return numbers

    workflow = flow.build(storage)
    asked = await workflow.run("go", thread_id=THREAD)
    await workflow.run(responses=answered(asked, "y"), thread_id=THREAD)
    infos = await storage.list_checkpoint_infos(thread_id=THREAD)
    ids = [info.checkpoint_id for info in infos]
    assert [info.previous_checkpoint_id for info in infos] == [None, *ids[:-1]]


async def test_unsavable_state_fails_the_run_of_a_function(storage: StoreCheckpointStorage) -> None:
    @as_workflow
    async def flow(_: str, ctx: RunContext) -> None:
        ctx.set_state("lock", asyncio.Lock())

    with pytest.raises(UnsavableValue, match=r"state\['lock'\]"):
        await flow.build(storage).run("go", thread_id=THREAD)
