"""Questions of a function workflow: asked once, answered once, in any order, in any process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, answer, begin, questions, resume

from perdure import (
    AlreadyAnswered,
    AnswerRejected,
    InMemoryCheckpointStorage,
    RequestExpired,
    RunContext,
    UnknownRequest,
    WorkflowRunState,
    workflow,
)
from perdure.errors import RequestWithdrawn
from perdure.testing import FakeClock


@dataclass(frozen=True)
class Draft:
    text: str


@dataclass(frozen=True)
class Verdict:
    is_good: bool


def interview(calls: Calls) -> Any:
    note = calls.step()

    @workflow
    async def interview(_: str, ctx: RunContext) -> list[str]:
        answers = []
        for question in ("name?", "age?", "town?"):
            await note(question)
            answers.append(await ctx.request_info(question, str))
        return answers

    return interview


@pytest.mark.parametrize("is_stored", [True, False], ids=["new objects", "one object"])
async def test_questions_one_after_the_other_are_each_asked_once(is_stored: bool) -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage() if is_stored else None
    flow = interview(calls)
    same = flow.build()
    result = await begin(flow, storage) if is_stored else await same.run("go", thread_id=THREAD)
    asked = [list(questions(result))]
    for reply in ("ann", "7", "york"):
        responses = dict.fromkeys(questions(result).values(), reply)
        workflow = flow.build(storage) if is_stored else same
        result = await workflow.run(responses=responses, thread_id=THREAD)
        asked.append(list(questions(result)))
    assert asked == [["name?"], ["age?"], ["town?"], []]
    assert result.get_outputs() == [["ann", "7", "york"]]
    assert calls == ["name?", "age?", "town?"]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_answered_question_is_not_emitted_again_as_a_new_question() -> None:
    flow, storage = interview(Calls()), InMemoryCheckpointStorage()
    first = await begin(flow, storage)
    second = await answer(flow, storage, first, {"name?": "ann"})
    assert [event.data for event in second if event.type == "request_info"] == ["age?"]


def survey(*topics: str) -> Any:
    @workflow
    async def survey(_: str, ctx: RunContext) -> list[str]:
        return list(await asyncio.gather(*(ctx.request_info(topic, str) for topic in topics)))

    return survey


async def test_concurrent_questions_are_answered_in_any_order_and_in_parts() -> None:
    flow, storage = survey("a", "b", "c", "d"), InMemoryCheckpointStorage()
    result = await begin(flow, storage)
    assert list(questions(result)) == ["a", "b", "c", "d"]
    result = await answer(flow, storage, result, {"c": "3"})
    assert list(questions(result)) == ["a", "b", "d"]
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    result = await answer(flow, storage, result, {"d": "4", "a": "1"})
    assert list(questions(result)) == ["b"]
    result = await answer(flow, storage, result, {"b": "2"})
    assert result.get_outputs() == [["1", "2", "3", "4"]]


async def test_answer_reaches_its_branch_while_other_questions_are_open() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    note = calls.step()

    async def ask_and_note(ctx: RunContext, topic: str) -> str:
        reply = await ctx.request_info(topic, str)
        await note(f"{topic}={reply}")
        return f"{reply} {await ctx.request_info(f'sure of {topic}?', str)}"

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        return list(await asyncio.gather(ask_and_note(ctx, "a"), ask_and_note(ctx, "b")))

    result = await answer(flow, storage, await begin(flow, storage), {"b": "2"})
    assert (calls, list(questions(result))) == (["b=2"], ["a", "sure of b?"])
    result = await answer(flow, storage, result, {"sure of b?": "yes"})
    assert (calls, list(questions(result))) == (["b=2"], ["a"])
    result = await answer(flow, storage, result, {"a": "1"})
    result = await answer(flow, storage, result, {"sure of a?": "no"})
    assert result.get_outputs() == [["1 no", "2 yes"]]
    assert calls == ["b=2", "a=1"]


async def test_two_equal_questions_are_two_requests() -> None:
    flow, storage = survey("same", "same"), InMemoryCheckpointStorage()
    asked = (await begin(flow, storage)).get_request_info_events()
    ids = [str(event.request_id) for event in asked]
    assert len(set(ids)) == 2
    await resume(flow, storage, responses={ids[1]: "second"})
    result = await resume(flow, storage, responses={ids[0]: "first"})
    assert result.get_outputs() == [["first", "second"]]


async def test_an_equal_question_asked_later_is_asked_again() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        return [await ctx.request_info("more?", str) for _ in range(2)]

    first = await begin(flow, storage)
    second = await answer(flow, storage, first, {"more?": "yes"})
    assert questions(second)["more?"] != questions(first)["more?"]
    assert (await answer(flow, storage, second, {"more?": "no"})).get_outputs() == [["yes", "no"]]


async def test_question_has_the_request_id_that_the_function_passes() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> bool:
        verdict: Verdict = await ctx.request_info(Draft("hello"), Verdict, request_id="review-1")
        return verdict.is_good

    (asked,) = (await begin(flow, storage)).get_request_info_events()
    assert (asked.request_id, asked.data, asked.response_type) == ("review-1", Draft("hello"), Verdict)
    assert (await resume(flow, storage, responses={"review-1": {"is_good": True}})).get_outputs() == [True]


async def test_answer_of_the_wrong_type_is_rejected_and_the_question_stays_open() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        return int(await ctx.request_info("how many?", int)) + 1

    asked = await begin(flow, storage)
    with pytest.raises(AnswerRejected, match="expected int, got list"):
        await answer(flow, storage, asked, {"how many?": ["many"]})
    assert list(questions(await resume(flow, storage))) == ["how many?"]
    assert (await answer(flow, storage, asked, {"how many?": 3})).get_outputs() == [4]


async def test_one_wrong_answer_among_several_keeps_all_questions_open() -> None:
    flow, storage = survey("a", "b"), InMemoryCheckpointStorage()
    asked = await begin(flow, storage)
    with pytest.raises(AnswerRejected):
        await answer(flow, storage, asked, {"a": "fine", "b": 7.5})
    assert list(questions(await resume(flow, storage))) == ["a", "b"]


async def test_second_answer_and_answer_to_an_unknown_question_are_rejected() -> None:
    flow, storage = survey("a", "b"), InMemoryCheckpointStorage()
    asked = await begin(flow, storage)
    await answer(flow, storage, asked, {"a": "1"})
    with pytest.raises(AlreadyAnswered):
        await answer(flow, storage, asked, {"a": "other"})
    with pytest.raises(UnknownRequest):
        await resume(flow, storage, responses={"no-such": "1"})
    assert (await answer(flow, storage, asked, {"b": "2"})).get_outputs() == [["1", "2"]]


async def test_change_of_an_answer_does_not_change_the_record() -> None:
    storage = InMemoryCheckpointStorage()
    seen: list[Any] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        items = await ctx.request_info("items?", list[str])
        seen.append(list(items))
        items.append("mine")
        await ctx.request_info("sure?", str)
        return items

    asked = await answer(flow, storage, await begin(flow, storage), {"items?": ["tea"]})
    assert (await answer(flow, storage, asked, {"sure?": "yes"})).get_outputs() == [["tea", "mine"]]
    assert seen == [["tea"], ["tea"]]


async def test_a_question_in_a_step_is_answered_and_the_step_then_recorded() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    asking = calls.step(name="asking")

    async def ask(ctx: RunContext) -> str:
        calls.append("asking")
        return f"heard {await ctx.request_info('name?', str)}"

    asking.function = ask

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        reply = await asking(ctx)
        return f"{reply}, {await ctx.request_info('sure?', str)}"

    asked = await answer(flow, storage, await begin(flow, storage), {"name?": "ann"})
    assert (await answer(flow, storage, asked, {"sure?": "yes"})).get_outputs() == ["heard ann, yes"]
    assert calls == ["asking", "asking"]  # it was in flight when it asked; once it had ended it was not called again


# ---------------------------------------------------------------- deadlines


def hurried(clock: FakeClock, **terms: Any) -> Any:
    @workflow
    async def hurried(_: str, ctx: RunContext) -> str:
        deadline = ctx.get_state("deadline") or clock.now() + timedelta(hours=1)
        try:
            return f"got {await ctx.request_info('ok?', str, deadline=deadline, **terms)}"
        except RequestExpired as error:
            return f"gave up: {error.request_id}"

    return hurried


async def test_a_passed_deadline_gives_the_default() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    flow = hurried(clock, default="silence")
    asked = await begin(flow, storage, clock=clock)
    assert asked.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    clock.advance(3599)
    assert list(questions(await resume(flow, storage, clock=clock))) == ["ok?"]
    clock.advance(1)
    result = await resume(flow, storage, clock=clock)
    assert (result.get_outputs(), questions(result)) == (["got silence"], {})


async def test_a_passed_deadline_without_a_default_is_raised_in_the_function() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    flow = hurried(clock, request_id="q")
    await begin(flow, storage, clock=clock)
    clock.advance(3600)
    result = await resume(flow, storage, clock=clock)
    assert result.get_outputs() == ["gave up: q"]
    assert result.get_final_state() is WorkflowRunState.IDLE
    with pytest.raises(RequestExpired):
        await resume(flow, storage, clock=clock, responses={"q": "late"})


async def test_an_answer_in_time_stands_when_the_deadline_passes() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        first = await ctx.request_info("ok?", str, deadline=clock.now() + timedelta(hours=1), default="silence")
        return [first, await ctx.request_info("sure?", str)]

    asked = await answer(flow, storage, await begin(flow, storage, clock=clock), {"ok?": "yes"}, clock=clock)
    clock.advance(9999)
    assert (await answer(flow, storage, asked, {"sure?": "no"}, clock=clock)).get_outputs() == [["yes", "no"]]


async def test_expired_question_expires_again_when_the_function_is_replayed() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            await ctx.request_info("ok?", str, deadline=clock.now() + timedelta(hours=1))
        except RequestExpired:
            return f"expired, {await ctx.request_info('then?', str)}"
        return "answered"

    await begin(flow, storage, clock=clock)
    clock.advance(3600)
    asked = await resume(flow, storage, clock=clock)
    assert list(questions(asked)) == ["then?"]
    assert (await answer(flow, storage, asked, {"then?": "stop"}, clock=clock)).get_outputs() == ["expired, stop"]


async def test_an_open_handle_passes_the_deadline_by_itself() -> None:
    clock = FakeClock()
    flow = hurried(clock, default="silence").build(InMemoryCheckpointStorage(), clock=clock)
    async with flow.open(thread_id=THREAD) as run:
        await run.send("go")
        await run.wait()
        await clock.wait_for_sleepers()
        clock.advance(3600)
        outputs = [event.data async for event in run.events() if event.type == "output"]
    assert outputs == ["got silence"]


# ---------------------------------------------------------------- questions that no branch waits for any more


async def test_question_without_a_waiting_branch_is_withdrawn_at_the_end() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        tasks = [asyncio.create_task(ctx.request_info(who, str, request_id=who)) for who in ("ann", "bob")]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        return str(done.pop().result())

    await begin(flow, storage)
    result = await resume(flow, storage, responses={"bob": "me"})
    assert (result.get_outputs(), questions(result)) == (["me"], {})
    assert result.get_final_state() is WorkflowRunState.IDLE
    head = await storage.get_latest(thread_id=THREAD)
    assert head is not None and not head.pending_request_info_events
    with pytest.raises(RequestWithdrawn):
        await resume(flow, storage, responses={"ann": "too late"})


async def test_a_question_that_lost_a_race_with_a_sleep_is_withdrawn() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        asking = asyncio.create_task(ctx.request_info("ok?", str))
        waiting = asyncio.create_task(ctx.sleep(60))
        await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return str(asking.result())
        asking.cancel()
        return "nobody answered"

    assert list(questions(await begin(flow, storage, clock=clock))) == ["ok?"]
    clock.advance(60)
    result = await resume(flow, storage, clock=clock)
    assert (result.get_outputs(), questions(result)) == (["nobody answered"], {})


# ---------------------------------------------------------------- numbers, and answers given again


@workflow
async def two_questions(_: str, ctx: RunContext) -> list[str]:
    return [await ctx.request_info("one", str), await ctx.request_info("two", str)]


def ids(result: Any) -> list[str]:
    return [str(event.request_id) for event in result.get_request_info_events()]


async def test_questions_without_an_id_are_numbered_in_their_thread() -> None:
    flow, numbers = two_questions.build(), []
    for message in ("first", "second"):
        asked = await flow.run(message, thread_id=THREAD)
        while pending := ids(asked):
            numbers += pending
            asked = await flow.run(responses=dict.fromkeys(pending, "yes"), thread_id=THREAD)
    assert numbers == ["auto::0", "auto::1", "auto::2", "auto::3"]  # an old answer never meets a new question
    with pytest.raises(AlreadyAnswered):
        await flow.run(responses={"auto::0": "yes"}, thread_id=THREAD)


async def test_a_call_in_the_default_thread_numbers_its_questions_from_0() -> None:
    flow = two_questions.build()
    assert [ids(await flow.run(message)) for message in ("first", "second")] == [["auto::0"], ["auto::0"]]


async def test_messages_of_one_superstep_get_different_numbers() -> None:
    storage = InMemoryCheckpointStorage()
    async with two_questions.build(storage).open(thread_id=THREAD) as handle:
        await handle.send("first")
        await handle.send("second")
    asked = await resume(two_questions, storage)
    assert sorted(ids(asked)) == ["auto::0", "auto::1"]


async def test_a_question_keeps_its_number_when_changed_code_asks_another_before() -> None:
    storage = InMemoryCheckpointStorage()

    def versions(*topics: str) -> Any:
        @workflow(name="survey")
        async def flow(_: str, ctx: RunContext) -> list[str]:
            return [await ctx.request_info(topic, str) for topic in topics]

        return flow

    await begin(versions("old", "last"), storage)
    asked = await resume(versions("new", "old", "last"), storage, responses={"auto::0": "of old"})
    assert questions(asked) == {"new": "auto::1"}
    asked = await resume(versions("new", "old", "last"), storage, responses={"auto::1": "of new"})
    assert questions(asked) == {"last": "auto::2"}


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_answer_given_again_beside_a_new_one_is_accepted(is_stored: bool) -> None:
    flow = two_questions.build(InMemoryCheckpointStorage() if is_stored else None)
    await flow.run("go")
    await flow.run(responses={"auto::0": "a"})
    with pytest.raises(AlreadyAnswered, match="'auto::0'"):
        await flow.run(responses={"auto::0": "another", "auto::1": "b"})
    with pytest.raises(AlreadyAnswered, match="'auto::0'"):
        await flow.run(responses={"auto::0": "a"})  # nothing new
    result = await flow.run(responses={"auto::0": "a", "auto::1": "b"})
    assert result.get_outputs() == [["a", "b"]]


async def test_an_object_given_again_as_plain_data_is_the_same_answer() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> list[bool]:
        return [(await ctx.request_info(number, Verdict, request_id=str(number))).is_good for number in (1, 2)]

    await flow.run("go")
    await flow.run(responses={"1": Verdict(True)})
    result = await flow.run(responses={"1": {"is_good": True}, "2": Verdict(False)})
    assert result.get_outputs() == [[True, False]]


async def test_answers_given_again_after_a_failure_repeat_the_run() -> None:
    calls: list[str] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        answer = await ctx.request_info("well?", str)
        calls.append(answer)
        if len(calls) == 1:
            raise ConnectionError("not yet")
        return answer

    await flow.run("go")
    with pytest.raises(ConnectionError):
        await flow.run(responses={"auto::0": "yes"})
    with pytest.raises(AlreadyAnswered):
        await flow.run(responses={"auto::0": "no"})
    assert (await flow.run(responses={"auto::0": "yes"})).get_outputs() == ["yes"]


async def test_a_new_call_in_the_default_thread_withdraws_open_questions() -> None:
    @workflow
    async def flow(name: str, ctx: RunContext) -> str:
        return f"{name}: {await ctx.request_info(name, str, request_id='same')}"

    await flow.run("first")
    second = await flow.run("second")
    assert questions(second) == {"second": "same"}
    assert ["withdrawn" in event.data for event in second if event.type == "warning"] == [True]
    assert (await flow.run(responses={"same": "yes"})).get_outputs() == ["second: yes"]
