"""Statuses are correct, and a chat never hits the superstep limit."""

# Annotations here are text on purpose: handlers and response handlers must understand them.
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.promises.stages import Again, Asker, alone

from perdure import (
    DEFAULT_MAX_ITERATIONS,
    AnswerRejected,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowConvergenceException,
    WorkflowRunState,
    handler,
    response_handler,
)

if TYPE_CHECKING:
    from perdure import WorkflowRunResult


def states(result: WorkflowRunResult) -> list[Any]:
    return [event.state for event in result.status_timeline()]


IN_PROGRESS, PENDING = WorkflowRunState.IN_PROGRESS, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS
IDLE, WAITING = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_a_thread_with_a_pending_request_is_never_called_idle(any_storage: Any, again: Again) -> None:
    def build() -> Workflow:
        return alone(Asker("asker"), any_storage)

    workflow = build()
    asked = await workflow.run("colour size", thread_id="t")
    assert states(asked) == [IN_PROGRESS, PENDING, WAITING]
    workflow = again(workflow, build)
    partly = await workflow.run(responses={"colour": "red"}, thread_id="t")
    assert states(partly) == [PENDING, WAITING]
    assert [event.request_id for event in partly.get_request_info_events()] == ["size"]
    workflow = again(workflow, build)
    looked = await workflow.run(thread_id="t")
    assert states(looked) == [PENDING, WAITING]
    done = await again(workflow, build).run(responses={"size": "L"}, thread_id="t")
    assert states(done) == [IN_PROGRESS, IDLE]
    assert done.get_request_info_events() == []


async def test_restoring_with_all_answers_ends_idle(any_storage: Any, again: Again) -> None:
    workflow = alone(Asker("asker"), any_storage)
    asked = await workflow.run("colour size", thread_id="t")
    restored = again(workflow, lambda: alone(Asker("asker"), any_storage))
    responses = {"colour": "red", "size": "L"}
    result = await restored.run(checkpoint_id=asked.checkpoint_id, responses=responses)
    assert result.get_final_state() is IDLE
    assert result.get_request_info_events() == [], "what is answered in the same call is not asked again"
    assert sorted(result.get_outputs()) == ["colour=red", "size=L"]


async def test_workflow_without_a_storage_has_the_same_statuses() -> None:
    workflow = alone(Asker("asker"))
    await workflow.run("colour size")
    assert workflow.status is WAITING
    assert (await workflow.run(responses={"size": "L"})).get_final_state() is WAITING
    assert workflow.status is WAITING
    assert (await workflow.run(responses={"colour": "red"})).get_final_state() is IDLE
    assert workflow.status is IDLE


class Chat(Executor):
    """Asks again after each answer, for ever."""

    @handler
    async def begin(self, message: str, ctx: WorkflowContext[None, int]) -> None:
        await ctx.request_info(0, int)

    @response_handler
    async def next(self, number: int, answer: int, ctx: WorkflowContext[None, int]) -> None:
        assert answer == number
        await ctx.yield_output(number)
        await ctx.request_info(number + 1, int)


async def test_a_chat_of_150_answers_does_not_hit_the_default_limit(any_storage: Any) -> None:
    assert DEFAULT_MAX_ITERATIONS < 150
    workflow = alone(Chat("chat"), any_storage)
    result = await workflow.run("hello", thread_id="t")
    for number in range(150):
        if number % 50 == 49:  # the count must not come back with a checkpoint either
            workflow = alone(Chat("chat"), any_storage)
        (question,) = result.get_request_info_events()
        result = await workflow.run(responses={str(question.request_id): number}, thread_id="t")
        assert result.get_outputs() == [number]
        assert result.get_final_state() is WAITING


async def test_limit_still_ends_a_loop_without_input(any_storage: Any) -> None:
    """And the request that was answered is not lost with it."""

    class Runaway(Executor):
        @handler
        async def spin(self, message: int, ctx: WorkflowContext[int, int]) -> None:
            await ctx.send_message(message + 1)

        @handler
        async def begin(self, message: str, ctx: WorkflowContext[int, int]) -> None:
            await ctx.request_info("go?", bool, request_id="go")

        @response_handler
        async def go(self, question: str, answer: bool, ctx: WorkflowContext[int, int]) -> None:
            await ctx.send_message(1)

    node = Runaway("node")
    workflow = WorkflowBuilder(start_executor=node, checkpoint_storage=any_storage).add_edge(node, node).build()
    await workflow.run("x", thread_id="t")
    with pytest.raises(WorkflowConvergenceException, match=f"ran {DEFAULT_MAX_ITERATIONS} supersteps"):
        await workflow.run(responses={"go": True}, thread_id="t")
    head = await any_storage.get_latest(workflow_name=workflow.name)
    assert [message.data for message in head.deliveries] == [DEFAULT_MAX_ITERATIONS]


async def test_an_answer_of_the_wrong_type_leaves_the_request_pending(any_storage: Any) -> None:
    workflow = alone(Chat("chat"), any_storage)
    asked = await workflow.run("hello", thread_id="t")
    (question,) = asked.get_request_info_events()
    for _ in range(2):
        with pytest.raises(AnswerRejected, match=r"expected int, got str.*still pending"):
            await workflow.run(responses={str(question.request_id): "zero"}, thread_id="t")
    result = await workflow.run(responses={str(question.request_id): 0}, thread_id="t")
    assert result.get_outputs() == [0]


async def test_wrong_answer_rejects_all_answers_of_the_call(any_storage: Any) -> None:
    workflow = alone(Asker("asker"), any_storage)
    await workflow.run("colour size", thread_id="t")
    with pytest.raises(AnswerRejected, match="'size'"):
        await workflow.run(responses={"colour": "red", "size": 42}, thread_id="t")
    looked = await workflow.run(thread_id="t")
    assert {event.request_id for event in looked.get_request_info_events()} == {"colour", "size"}


@dataclass
class Question:
    text: str


@dataclass
class Answer:
    text: str


class AnnotatedWithText(Executor):
    """Every annotation in this file is a string at run time."""

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(Question(message), Answer, request_id="q")

    @response_handler
    async def answered(self, question: Question, answer: Answer, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{question.text}={answer.text}")


async def test_response_handlers_understand_annotations_that_are_text(any_storage: Any, again: Again) -> None:
    assert AnnotatedWithText.answered.__annotations__["question"] == "Question"
    workflow = alone(AnnotatedWithText("asker"), any_storage)
    await workflow.run("colour", thread_id="t")
    workflow = again(workflow, lambda: alone(AnnotatedWithText("asker"), any_storage))
    result = await workflow.run(responses={"q": {"text": "red"}}, thread_id="t")
    assert result.get_outputs() == ["colour=red"]


async def test_types_of_an_enclosing_function_are_understood_too() -> None:
    @dataclass
    class Local:
        text: str

    class Inner(Executor):
        @handler
        async def ask(self, message: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.request_info(Local(message), str, request_id="q")

        @response_handler
        async def answered(self, question: Local, answer: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(f"{question.text}={answer}")

    workflow = alone(Inner("inner"))
    await workflow.run("colour")
    assert (await workflow.run(responses={"q": "red"})).get_outputs() == ["colour=red"]
