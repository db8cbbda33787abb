"""Scripted executors: the next reply for each message, in every thread by itself, across failures and restarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    InMemoryCheckpointStorage,
    RetryPolicy,
    TypeCompatibilityError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
)
from perdure.testing import Ask, FakeClock, ScriptedExecutor, ScriptOver


@dataclass
class Verdict:
    text: str


def alone(*replies: Any, storage: Any = None, clock: Any = None, **options: Any) -> tuple[ScriptedExecutor, Workflow]:
    script = ScriptedExecutor("script", list(replies), input=str, workflow_output=object | Verdict, **options)
    return script, WorkflowBuilder(name="s", start_executor=script, checkpoint_storage=storage, clock=clock).build()


async def outputs(workflow: Workflow, *messages: str, thread: str = "t") -> list[Any]:
    return [(await workflow.run(message, thread_id=thread)).get_outputs() for message in messages]


async def test_each_message_gets_the_next_reply_and_is_kept_in_received() -> None:
    script, workflow = alone("one", {"two": 2}, None)
    assert await outputs(workflow, "a", "b", "c") == [["one"], [{"two": 2}], []]
    assert script.received == ["a", "b", "c"]


async def test_a_value_is_sent_on_unless_it_is_to_be_yielded() -> None:
    first = ScriptedExecutor("first", ["sent"], input=str)
    both = ScriptedExecutor("both", ["twice"], input=str, output=str, workflow_output=str)
    last = ScriptedExecutor("last", ["end"], input=str, workflow_output=str)
    workflow = WorkflowBuilder(start_executor=first).add_chain([first, both, last]).build()
    assert (await workflow.run("go")).get_outputs() == ["twice", "end"]
    assert (both.received, last.received) == (["sent"], ["twice"])


async def test_a_function_makes_the_reply_from_the_message() -> None:
    async def later(message: str) -> str:
        return f"later {message}"

    _, workflow = alone(str.upper, later, Verdict)
    assert await outputs(workflow, "a", "b", "c") == [["A"], ["later b"], [Verdict("c")]]


async def test_function_in_place_of_the_list_answers_all_messages() -> None:
    echo = ScriptedExecutor("echo", lambda text: text * 2, input=str, workflow_output=str)
    workflow = WorkflowBuilder(start_executor=echo).build()
    assert await outputs(workflow, "a", "b", "c") == [["aa"], ["bb"], ["cc"]]


@pytest.mark.parametrize("error", [ConnectionError("down"), ConnectionError])
async def test_an_exception_is_raised_and_the_next_attempt_gets_the_next_reply(error: Any) -> None:
    script, workflow = alone(error, "up", storage=InMemoryCheckpointStorage())
    with pytest.raises(ConnectionError):
        await workflow.run("a", thread_id="t")
    assert (await workflow.run(thread_id="t")).get_outputs() == ["up"]
    assert script.received == ["a", "a"]


async def test_retries_go_through_the_script() -> None:
    clock = FakeClock()
    script, workflow = alone(OSError("1"), OSError("2"), "done", clock=clock, retry=RetryPolicy(3, initial_delay=1))
    async with clock.skipping():
        result = await workflow.run("a")
    assert (result.get_outputs(), len(script.received)) == (["done"], 3)


async def test_function_that_raises_uses_up_its_place_in_the_script() -> None:
    def fail(message: str) -> str:
        raise KeyError(message)

    _, workflow = alone(fail, "up")
    with pytest.raises(KeyError, match="a"):
        await workflow.run("a", thread_id="t")
    assert (await workflow.run(thread_id="t")).get_outputs() == ["up"]


async def test_message_after_the_last_reply_raises_with_the_name_of_the_script() -> None:
    _, workflow = alone("one")
    await workflow.run("a")
    with pytest.raises(ScriptOver, match="'script' has 1 replies, and got one message more: 'b'"):
        await workflow.run("b")


async def test_every_thread_goes_through_the_script_by_itself() -> None:
    script, workflow = alone("one", "two")
    assert await outputs(workflow, "a", thread="x") == [["one"]]
    assert await outputs(workflow, "b", "c", thread="y") == [["one"], ["two"]]
    assert await outputs(workflow, "d", thread="x") == [["two"]]
    assert (script.received_in("x"), script.received_in("y"), len(script.received)) == (["a", "d"], ["b", "c"], 4)


async def test_resumed_thread_continues_at_its_place_in_another_object() -> None:
    storage = InMemoryCheckpointStorage()
    await outputs(alone("one", "two", "three", storage=storage)[1], "a", "b")
    script, workflow = alone("one", "two", "three", storage=storage)
    assert await outputs(workflow, "c") == [["three"]]
    assert script.received == ["c"]


async def test_errors_raised_before_a_restart_are_not_raised_again() -> None:
    storage, clock = InMemoryCheckpointStorage(), FakeClock()
    script = (OSError("1"), OSError("2"), "done")
    retry = RetryPolicy(3, initial_delay=1)
    _, workflow = alone(*script, storage=storage, clock=clock, retry=retry)
    stream = workflow.run("a", thread_id="t", stream=True)
    async with stream:
        async for event in stream:
            if event.type == "superstep_completed":  # the first attempt has failed, and waits for the second
                break
    again, workflow = alone(*script, storage=storage, clock=clock, retry=retry)
    async with clock.skipping():
        result = await workflow.run(thread_id="t")
    assert (result.get_outputs(), len(again.received)) == (["done"], 2)


async def test_ask_continues_with_the_answer() -> None:
    storage = InMemoryCheckpointStorage()
    script = (Ask("may I?", bool), Ask("and how often?", int, then=lambda times: Verdict("yes" * times)))
    _, workflow = alone(*script, storage=storage)
    for answer, output in ((True, True), (2, Verdict("yesyes"))):
        asked = await workflow.run("a", thread_id="t")
        assert asked.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        [request] = asked.get_request_info_events()
        _, workflow = alone(*script, storage=storage)
        answered = await workflow.run(responses={str(request.request_id): answer}, thread_id="t")
        assert answered.get_outputs() == [output]


async def test_a_function_may_ask() -> None:
    _, workflow = alone(lambda text: Ask(f"really {text}?", str))
    [request] = (await workflow.run("go")).get_request_info_events()
    assert request.data == "really go?"
    assert (await workflow.run(responses={str(request.request_id): "yes"})).get_outputs() == ["yes"]


async def test_copies_in_two_children_of_one_thread_have_places_of_their_own() -> None:
    inner = ScriptedExecutor("inner", [OSError("once"), "one"], input=str, workflow_output=str, retry=2)
    child = WorkflowBuilder(name="child", start_executor=inner).build()

    @executor
    async def twice(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("a")
        await ctx.send_message("b")

    clock = FakeClock()
    sub = WorkflowExecutor(child, "sub", allow_direct_output=True)
    workflow = WorkflowBuilder(start_executor=twice, clock=clock).add_edge(twice, sub).build()
    async with clock.skipping():
        result = await workflow.run("go")
    assert result.get_outputs() == ["one", "one"]
    assert sorted(inner.received) == ["a", "a", "b", "b"]


async def test_restarted_sub_workflow_continues_after_the_error_that_ended_it() -> None:
    inner = ScriptedExecutor("inner", [OSError("once"), "up"], input=str, workflow_output=str)
    child = WorkflowBuilder(name="child", start_executor=inner).build()
    sub = WorkflowExecutor(child, "sub", allow_direct_output=True, retry=RetryPolicy(2))
    clock = FakeClock()
    async with clock.skipping():
        result = await WorkflowBuilder(start_executor=sub, clock=clock).build().run("go")
    assert (result.get_outputs(), inner.received) == (["up"], ["go", "go"])


async def test_script_state_of_one_thread_does_not_affect_another() -> None:
    storage = InMemoryCheckpointStorage()
    _, workflow = alone(OSError("no"), "up", storage=storage)
    for thread in ("x", "y"):
        with pytest.raises(OSError, match="no"):
            await workflow.run("a", thread_id=thread)
        assert (await workflow.run(thread_id=thread)).get_outputs() == ["up"]
    latest = await storage.get_latest(thread_id="y")
    assert latest is not None
    assert latest.executors["script"].saved == {"place": 2, "raised": {"": [0]}}


def test_edges_are_checked_by_the_types_of_the_replies() -> None:
    sender = ScriptedExecutor("says", [1, 2], input=str)
    receiver = ScriptedExecutor("hears", ["x"], input=str)
    with pytest.raises(TypeCompatibilityError, match="int"):
        WorkflowBuilder(start_executor=sender).add_edge(sender, receiver).build()


@pytest.mark.parametrize("replies", ["text", 3])
def test_replies_that_are_not_a_list_or_function_are_refused(replies: Any) -> None:
    with pytest.raises(TypeError, match="replies= expects a list or a function"):
        ScriptedExecutor("script", replies)
