"""Questions to people: answers are checked before they count, once, all or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Never

import pytest
from tests.unit.engine.flows import Asker, Question, Verdict, alone, asking, function, warnings_of

from perdure import (
    AlreadyAnswered,
    AnswerRejected,
    DuplicateRequest,
    Executor,
    InMemoryCheckpointStorage,
    InvalidRun,
    NoPendingRequests,
    NoResponseHandler,
    RequestExpired,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from perdure.testing.clock import FakeClock


async def asked(text: str = "why", response_type: Any = Verdict, **options: Any) -> Workflow:
    workflow = asking(response_type, **options)
    await workflow.run(text)
    return workflow


async def answered(workflow: Workflow, **answers: Any) -> list[Any]:
    return (await workflow.run(responses=answers)).get_outputs()


@pytest.mark.parametrize(
    ("response_type", "answer", "output"),
    [
        (Verdict, Verdict(True, [1]), "why: True [1]"),
        (Verdict, {"is_good": True, "marks": [1, 2]}, "why: True [1, 2]"),
        (Verdict, {"is_good": False}, "why: False []"),
        (str, "because", "why: because"),
        (Verdict | str, {"is_good": True}, "why: True []"),
        (Verdict | str, "because", "why: because"),
    ],
)
async def test_answer_arrives_as_the_requested_type(response_type: Any, answer: Any, output: str) -> None:
    assert await answered(await asked(response_type=response_type), why=answer) == [output]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("yes", "expected Verdict, got str"),
        ({"is_good": "yes"}, r"Expected `bool`, got `str` - at `\$.is_good`"),
        ({}, "missing required field `is_good`"),
        ({"is_good": True, "marks": ["a"]}, r"at `\$.marks\[0\]`"),
        (None, "expected Verdict, got NoneType|expected Verdict, got None"),
    ],
)
async def test_answer_of_the_wrong_type_is_rejected_and_the_request_stays_open(answer: Any, problem: str) -> None:
    workflow = await asked(checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(AnswerRejected, match=problem) as raised:
        await answered(workflow, why=answer)
    assert "The request is still pending" in str(raised.value) and isinstance(raised.value, ValueError)
    assert await answered(workflow, why={"is_good": True}) == ["why: True []"]


async def test_one_wrong_answer_rejects_all_answers_of_the_call() -> None:
    workflow = await asked("one two")
    with pytest.raises(AnswerRejected, match="answer to request 'two' was not accepted"):
        await answered(workflow, one=Verdict(True), two="wrong")
    pending = (await workflow.run()).get_request_info_events()
    assert [event.request_id for event in pending] == ["one", "two"]


async def test_some_answers_now_and_the_rest_later() -> None:
    workflow = await asked("one two three")
    first = await workflow.run(responses={"two": Verdict(True)})
    assert first.get_outputs() == ["two: True []"]
    assert first.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert [event.request_id for event in first.get_request_info_events()] == ["one", "three"]
    last = await workflow.run(responses={"three": Verdict(True), "one": Verdict(False)})
    assert sorted(last.get_outputs()) == ["one: False []", "three: True []"]
    assert last.get_final_state() is WorkflowRunState.IDLE


async def test_an_answer_to_a_request_that_does_not_exist_names_those_that_do() -> None:
    workflow = await asked("first second")
    with pytest.raises(
        UnknownRequest, match=r"no request 'frist' \(did you mean 'first'\?\). Pending: 'first', 'second'"
    ):
        await answered(workflow, frist=Verdict(True))
    assert await answered(workflow, first=Verdict(True)) == ["first: True []"]


async def test_second_answer_is_rejected_and_the_first_is_kept() -> None:
    workflow = await asked("one two")
    await answered(workflow, one=Verdict(True))
    with pytest.raises(AlreadyAnswered, match=r"Request 'one' .* was answered before; the first answer stands"):
        await answered(workflow, one=Verdict(False))
    await answered(workflow, two=Verdict(True))
    with pytest.raises(AlreadyAnswered, match="'two'"):
        await answered(workflow, two=Verdict(False))


async def test_after_going_back_behind_the_answer_the_request_is_pending_again() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(checkpoint_storage=storage)
    question = await workflow.run("why")
    assert await answered(workflow, why=Verdict(True)) == ["why: True []"]
    back = await workflow.run(checkpoint_id=question.checkpoint_id, responses={"why": Verdict(False)})
    assert back.get_outputs() == ["why: False []"]


async def test_an_answer_that_no_handler_takes_is_refused_and_the_request_stays() -> None:
    workflow = await asked(response_type=int)
    with pytest.raises(
        NoResponseHandler, match="'asker' has no @response_handler for a request of Question answered with int"
    ):
        await answered(workflow, why=5)
    assert [event.request_id for event in (await workflow.run()).get_request_info_events()] == ["why"]


async def test_request_for_a_type_without_a_response_handler_warns_at_once() -> None:
    result = await asking(int).run("why")
    (text,) = warnings_of(result)
    assert "'asker' asks with Question for int, but has no @response_handler for these types" in text


async def test_answers_without_any_request_are_refused() -> None:
    workflow = alone(lambda message, ctx: ctx.yield_output(message))
    await workflow.run("x")
    with pytest.raises(
        NoPendingRequests, match="No pending requests found in workflow context: the responses do not correspond"
    ):
        await workflow.run(responses={"why": 1})
    assert (await workflow.run("y")).get_outputs() == ["y"]


class Several(Executor):
    """Asks with a str and with an int, and has a handler for each pair of types."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info("words?", str)
        await ctx.request_info(7, str)
        await ctx.request_info(True, bool)

    @response_handler
    async def words(self, question: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"words {question} {answer} {ctx.request_id}")

    @response_handler
    async def number(self, question: int, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"number {question} {answer}")

    @response_handler
    async def flag(self, question: bool, answer: bool, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"flag {question} {answer}")


async def test_handler_is_selected_by_question_and_answer_and_knows_the_request() -> None:
    workflow = WorkflowBuilder(start_executor=Several("s")).build()
    ids = [str(event.request_id) for event in (await workflow.run("x")).get_request_info_events()]
    assert len(set(ids)) == 3 and all(request_id.startswith("s-") for request_id in ids)
    result = await workflow.run(responses=dict(zip(ids, ["a", "b", False], strict=True)))
    assert result.get_outputs() == [f"words words? a {ids[0]}", "number 7 b", "flag True False"]


async def test_a_request_id_that_is_pending_cannot_be_used_again() -> None:
    workflow = await asked("same", checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(InvalidRun, match=r"Request 'same' is already pending .* Choose another request_id"):
        await workflow.run("same")


async def test_a_request_id_may_be_used_again_once_it_was_answered() -> None:
    workflow = await asked("same")
    for verdict in (True, False):
        assert await answered(workflow, same=Verdict(verdict)) == [f"same: {verdict} []"]
        await workflow.run("same")


async def test_two_executors_that_ask_with_the_same_request_id_are_rejected() -> None:
    start = function("start", lambda message, ctx: ctx.send_message(message))
    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [Asker("one"), Asker("two")])
    with pytest.raises(DuplicateRequest, match="'one' and 'two' both asked with the request_id 'why'"):
        await builder.build().run("why")


async def test_a_deadline_needs_a_time_zone() -> None:
    naive = datetime(2030, 1, 1)  # noqa: DTZ001  # a deadline that is rejected
    with pytest.raises(InvalidRun, match=r"A deadline needs a time zone.*replace\(tzinfo=UTC\)"):
        await asking(terms={"deadline": naive}).run("why")


async def test_a_request_carries_its_terms() -> None:
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    result = await asking(terms={"deadline": deadline, "default": Verdict(False), "assignee": "ann"}).run("why")
    (request,) = result.get_request_info_events()
    assert request.terms is not None
    terms = (request.terms.deadline, request.terms.default, request.terms.assignee)
    assert terms == (deadline, Verdict(False), "ann")


async def test_a_deadline_that_passed_between_two_runs_delivers_the_default() -> None:
    clock = FakeClock()
    terms = {"deadline": clock.now() + timedelta(hours=1), "default": Verdict(False)}
    workflow = await asked(terms=terms, clock=clock)
    clock.advance(3600)
    result = await workflow.run()
    assert result.get_outputs() == ["why: False []"] and result.get_final_state() is WorkflowRunState.IDLE


async def test_a_deadline_that_passed_without_a_default_expires_the_request() -> None:
    clock = FakeClock()
    workflow = await asked(terms={"deadline": clock.now() + timedelta(hours=1)}, clock=clock)
    clock.advance(3601)
    result = await workflow.run()
    (error,) = [event.data for event in result if event.type == "error"]
    assert "Request 'why' of executor 'asker' was not answered by 2026-01-01 01:00" in str(error)
    assert result.get_request_info_events() == [] and result.get_final_state() is WorkflowRunState.IDLE


async def test_before_its_deadline_a_request_is_still_pending() -> None:
    clock = FakeClock()
    workflow = await asked(terms={"deadline": clock.now() + timedelta(hours=1)}, clock=clock)
    clock.advance(3599)
    assert (await workflow.run()).get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_an_answer_after_the_deadline_comes_too_late() -> None:
    clock = FakeClock()
    workflow = await asked(terms={"deadline": clock.now() + timedelta(hours=1)}, clock=clock)
    clock.advance(3601)
    with pytest.raises(RequestExpired, match=r"Request 'why' .* was not answered by"):
        await answered(workflow, why=Verdict(True))


async def test_question_is_copied_at_the_call() -> None:
    async def ask(message: str, ctx: Any) -> None:
        question = Question("as it was")
        await ctx.request_info(question, str)
        question.text = "changed"

    (request,) = (await alone(ask).run("x")).get_request_info_events()
    assert request.data == Question("as it was")
