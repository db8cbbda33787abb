"""Propagated questions of sub-workflows: requests of the thread, under the path of the executor that asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.nested import (
    THREAD,
    Clerk,
    Question,
    Split,
    Take,
    answered_by,
    around,
    asking,
    committed,
    deep,
    on_any_storage,
    outline,
    requests_of,
)

from perdure import (
    AlreadyAnswered,
    AnswerRejected,
    InMemoryCheckpointStorage,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
    WorkflowRunState,
    workflow,
)

PENDING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


@on_any_storage
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_propagated_request_is_a_request_of_the_thread_under_its_path(
    depth: int, make_storage: Callable[[], Any]
) -> None:
    flow = deep(asking(), depth, make_storage(), propagate_request=True)
    asked = await flow.run("p", thread_id=THREAD)
    path = "/".join(["l1", "l2", "l3"][:depth]) + "/ask"
    assert asked.get_final_state() is PENDING
    [request] = asked.get_request_info_events()
    assert (request.source_executor_id, request.data, request.response_type) == (path, Question("p"), str)
    done = await flow.run(responses={str(request.request_id): "fine"}, thread_id=THREAD)
    assert (done.get_outputs(), done.get_final_state()) == (["p=fine"], WorkflowRunState.IDLE)


async def test_children_have_ended_when_their_propagated_requests_are_answered() -> None:
    storage = InMemoryCheckpointStorage()
    flow = deep(asking(), 2, storage, propagate_request=True)
    asked = requests_of(await flow.run("p", thread_id=THREAD))
    done = await flow.run(responses={asked["p"]: "fine"}, thread_id=THREAD)
    assert [path for _, path in outline(done, "executor_completed")] == ["l1/l2/ask", "l1/l2", "l1"]
    assert (await committed(storage))[-1].children == {}


async def test_a_request_is_propagated_by_one_level_and_answered_by_the_next() -> None:
    storage = InMemoryCheckpointStorage()
    first, last = Split("in"), Take("out")
    inner = WorkflowExecutor(asking(), "l2", propagate_request=True)
    middle = WorkflowBuilder(name="middle", start_executor=first).add_edge(first, inner).add_edge(inner, last).build()
    result = await answered_by(Clerk("clerk"), middle, storage).run("p q", thread_id=THREAD)
    assert result.get_outputs() == ["p=yes p", "q=yes q"]
    assert (await committed(storage))[-1].children == {}


async def test_a_propagated_request_is_answered_after_a_restart() -> None:
    storage = InMemoryCheckpointStorage()
    asked = requests_of(await deep(asking(), 2, storage, propagate_request=True).run("p", thread_id=THREAD))
    again = deep(asking(), 2, storage, propagate_request=True)
    assert requests_of(await again.run(thread_id=THREAD)) == asked
    done = await deep(asking(), 2, storage, propagate_request=True).run(
        responses={asked["p"]: "fine"}, thread_id=THREAD
    )
    assert done.get_outputs() == ["p=fine"]


@pytest.mark.parametrize("first", ["p", "q"])
async def test_two_children_that_ask_outside_are_answered_one_at_a_time(first: str) -> None:
    storage = InMemoryCheckpointStorage()
    flow = around(asking(), storage, propagate_request=True)
    asked = requests_of(await flow.run("p q", thread_id=THREAD))
    partial = await flow.run(responses={asked[first]: "A"}, thread_id=THREAD)
    assert (partial.get_outputs(), partial.get_final_state()) == ([f"{first}=A"], PENDING)
    second = {"p": "q", "q": "p"}[first]
    assert requests_of(partial.get_request_info_events()) == {second: asked[second]}
    both = await flow.run(responses={asked[second]: "B"}, thread_id=THREAD)
    assert (both.get_outputs(), both.get_final_state()) == ([f"{second}=B"], WorkflowRunState.IDLE)
    with pytest.raises(AlreadyAnswered):
        await flow.run(responses={asked[first]: "again"}, thread_id=THREAD)


async def test_wrong_answer_is_rejected_and_the_propagated_request_stays_pending() -> None:
    flow = around(asking(response_type=int), InMemoryCheckpointStorage(), propagate_request=True)
    asked = requests_of(await flow.run("p", thread_id=THREAD))
    with pytest.raises(AnswerRejected, match="expected int"):
        await flow.run(responses={asked["p"]: "many"}, thread_id=THREAD)
    done = await flow.run(responses={asked["p"]: 6}, thread_id=THREAD)
    assert done.get_outputs() == ["p=7"]


async def test_an_open_run_answers_a_childs_request() -> None:
    flow = around(asking(), InMemoryCheckpointStorage(), propagate_request=True)
    async with flow.open(thread_id=THREAD) as run:
        await run.send("p")
        result = await run.wait()
        assert result is not None
        await run.respond({requests_of(result)["p"]: "live"})
        done = await run.wait()
    assert done is not None and done.get_outputs() == ["p=live"]


# ---------------------------------------------------------------- functions as children


@workflow
async def interview(name: str, ctx: RunContext) -> str:
    age: int = await ctx.request_info(Question(f"age of {name}"), int)
    town: str = await ctx.request_info(Question(f"town of {name}"), str)
    return f"{name} {age} {town}"


async def test_function_children_each_ask_their_own_questions_in_sequence() -> None:
    storage = InMemoryCheckpointStorage()

    def again() -> Workflow:
        return around(interview, storage, propagate_request=True)

    asked = requests_of((await again().run("ann bob", thread_id=THREAD)).get_request_info_events())
    assert set(asked) == {"age of ann", "age of bob"}
    await again().run(responses={asked["age of bob"]: 2, asked["age of ann"]: 1}, thread_id=THREAD)
    asked = requests_of((await again().run(thread_id=THREAD)).get_request_info_events())
    assert set(asked) == {"town of ann", "town of bob"}
    answers = {asked["town of ann"]: "A", asked["town of bob"]: "B"}
    assert (await again().run(responses=answers, thread_id=THREAD)).get_outputs() == ["ann 1 A", "bob 2 B"]
    assert (await committed(storage))[-1].children == {}


async def test_a_function_child_is_answered_by_an_executor_of_its_parent() -> None:
    @workflow
    async def curious(name: str, ctx: RunContext) -> str:
        return f"{name}: {await ctx.request_info(Question(name), str)}"

    result = await answered_by(Clerk("clerk"), curious, InMemoryCheckpointStorage()).run("p q")
    assert result.get_outputs() == ["p: yes p", "q: yes q"]
