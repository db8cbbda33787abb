"""Questions of a sub-workflow: answered by an executor of its parent, or asked outside through every level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.promises.stages import collect
from tests.unit.engine.nested import (
    THREAD,
    Clerk,
    Desk,
    Question,
    answered_by,
    around,
    asking,
    committed,
    on_any_storage,
    outline,
    seen,
)

from perdure import (
    AnswerRejected,
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    Workflow,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    handler,
)

PENDING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


# ---------------------------------------------------------------- answered inside


@on_any_storage
async def test_an_executor_of_the_parent_answers_a_childs_question(make_storage: Callable[[], Any]) -> None:
    result = await answered_by(Clerk("clerk"), asking(), make_storage()).run("p")
    assert result.get_outputs() == ["p=yes p"]
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert result.get_request_info_events() == []


async def test_executor_of_the_parent_receives_the_question_and_its_source() -> None:
    taken: list[SubWorkflowRequestMessage] = []

    class Watching(Executor):
        @handler
        async def take(
            self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
        ) -> None:
            taken.append(request)

    await answered_by(Watching("watching"), asking()).run("p")
    [request] = taken
    event = request.source_event
    assert request.executor_id == "sub"
    assert (event.type, event.data, event.response_type) == ("request_info", Question("p"), str)
    assert event.source_executor_id == "sub/ask"


async def test_consumer_does_not_see_questions_that_the_parent_answers() -> None:
    events = await seen(answered_by(Clerk("clerk"), asking()).run("p", stream=True))
    assert outline(events, "request_info") == []
    assert all(event.state is not WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS for event in events)


async def test_a_question_that_no_executor_of_the_parent_takes_is_a_warning() -> None:
    events = await seen(around(asking()).run("p", stream=True))
    [warning] = [event.data for event in events if event.type == "warning"]
    assert "SubWorkflowRequestMessage" in warning
    assert "'sub'" in warning


async def test_two_children_that_ask_at_once_get_their_own_answers() -> None:
    result = await answered_by(Clerk("clerk"), asking()).run("p q r")
    assert result.get_outputs() == ["p=yes p", "q=yes q", "r=yes r"]


class LastFirst(Executor):
    """Waits for two questions, and answers the second one first."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.waiting: list[SubWorkflowRequestMessage] = []

    @handler
    async def answer(
        self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        self.waiting.insert(0, request)
        for waiting in self.waiting if len(self.waiting) == 2 else ():
            await ctx.send_message(
                waiting.create_response(f"yes {waiting.source_event.data.text}"), target_id=waiting.executor_id
            )


@pytest.mark.parametrize("request_id", [None, "approval"], ids=["a made id", "the same chosen id"])
async def test_children_are_answered_in_any_order_and_each_gets_its_own_answer(request_id: str | None) -> None:
    """One workflow, two inputs: an id that the author chose is the same in both."""
    result = await answered_by(LastFirst("clerk"), asking(request_id=request_id)).run("p q")
    assert sorted(result.get_outputs()) == ["p=yes p", "q=yes q"]


async def test_a_childs_answer_must_be_of_the_type_that_it_asked_for() -> None:
    """`create_response` refuses it, in the executor that made the mistake."""
    events: list[WorkflowEvent] = []
    with pytest.raises(AnswerRejected, match="expected int, got str"):
        await collect(answered_by(Clerk("clerk"), asking(response_type=int)).run("p", stream=True), events)
    assert outline(events, "executor_failed") == [("executor_failed", "clerk")]


async def test_an_answer_made_by_hand_is_checked_by_the_child() -> None:
    class Careless(Executor):
        @handler
        async def answer(
            self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
        ) -> None:
            await ctx.send_message(SubWorkflowResponseMessage("seven", request.source_event), target_id="sub")

    with pytest.raises(AnswerRejected, match="expected int, got str"):
        await answered_by(Careless("careless"), asking(response_type=int)).run("p")


async def test_a_second_answer_in_the_same_superstep_is_dropped_with_a_warning() -> None:
    class Twice(Executor):
        @handler
        async def answer(
            self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
        ) -> None:
            await ctx.send_message(request.create_response("once"), target_id="sub")
            await ctx.send_message(request.create_response("twice"), target_id="sub")

    events = await seen(answered_by(Twice("twice"), asking()).run("p", stream=True))
    assert [event.data for event in events if event.type == "output"] == ["p=once"]
    assert any("has an answer already" in str(event.data) for event in events if event.type == "warning")


async def test_answer_to_an_unknown_question_is_dropped_with_a_warning() -> None:
    class Confused(Executor):
        @handler
        async def answer(
            self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
        ) -> None:
            unknown = WorkflowEvent.request_info("made-up", "sub/ask", Question("?"), str)
            await ctx.send_message(SubWorkflowResponseMessage("x", unknown), target_id="sub")

    result = await answered_by(Confused("confused"), asking()).run("p")
    assert ["made-up" in str(event.data) for event in result if event.type == "warning"] == [True]


# ---------------------------------------------------------------- answered by a person, through the parent


@on_any_storage
async def test_a_person_answers_through_an_executor_of_the_parent(make_storage: Callable[[], Any]) -> None:
    flow = answered_by(Desk("desk"), asking(), make_storage())
    asked = await flow.run("p", thread_id=THREAD)
    assert asked.get_final_state() is PENDING
    [request] = asked.get_request_info_events()
    assert request.source_executor_id == "desk"
    assert request.data.source_event.data == Question("p")
    done = await flow.run(responses={str(request.request_id): "maybe"}, thread_id=THREAD)
    assert (done.get_outputs(), done.get_final_state()) == (["p=maybe"], WorkflowRunState.IDLE)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as asked", "the other way round"])
async def test_people_answer_two_children_in_any_order_after_restarts(order: tuple[int, int]) -> None:
    storage = InMemoryCheckpointStorage()

    def again() -> Workflow:
        return answered_by(Desk("desk"), asking(), storage)

    asked = (await again().run("p q", thread_id=THREAD)).get_request_info_events()
    outputs: list[str] = []
    for place in order:
        request = asked[place]
        text = request.data.source_event.data.text
        done = await again().run(responses={str(request.request_id): f"yes {text}"}, thread_id=THREAD)
        outputs += done.get_outputs()
    assert outputs == [["p=yes p", "q=yes q"][place] for place in order]
    assert (await committed(storage))[-1].children == {}
