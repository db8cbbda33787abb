"""A workflow as an agent: its outputs are the response, its requests are calls, its threads are sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.logs import begun

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    SqliteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
    workflow,
)
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import Tool
from perdure.errors import AlreadyAnswered, AnswerRejected
from perdure.testing import Faults, ProcessGone
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.agent import WorkflowAgent
from perdure.workflows.workflow import Workflow


def pay(amount: int) -> str:
    return f"paid {amount}"


def pair(storage: Any = None, log: Path | None = None) -> Workflow:
    first = ScriptedAgent("first", ["one two", "three"], log=log)
    second = ScriptedAgent("second", [[Call("pay", {"amount": 1})], "four five", "six"], tools=[pay], log=log)
    return (
        WorkflowBuilder(name="pair", start_executor=first, checkpoint_storage=storage).add_edge(first, second).build()
    )


class Asking(Executor):
    """Asks two questions and yields both answers."""

    @handler
    async def start(self, messages: list[Message], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.request_info("Which colour?", str, request_id="colour")
        await ctx.request_info({"how": "many"}, int, request_id="number")

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{question} {answer}")

    @response_handler
    async def counted(self, question: dict[str, str], answer: int, ctx: WorkflowContext[Any, int]) -> None:
        await ctx.yield_output(answer)


def asking(storage: Any) -> Workflow:
    return WorkflowBuilder(name="asking", start_executor=Asking("asker"), checkpoint_storage=storage).build()


async def test_outputs_are_the_response_and_usage_adds_up() -> None:
    response = await pair().as_agent("team").run("go")
    assert [(message.role, message.author_name, message.text) for message in response.messages] == [
        ("assistant", "first", "one two"),
        ("assistant", "second", ""),
        ("tool", "second", ""),
        ("assistant", "second", "four five"),
    ]
    assert response.usage_details == {"input_token_count": 3, "output_token_count": 3}
    assert response.agent_id == "team"


async def test_streamed_updates_join_to_the_unstreamed_response() -> None:
    calm = await pair().as_agent("team").run("go")
    stream = pair().as_agent("team").run("go", stream=True)
    updates = [update async for update in stream]
    assert "one" in [update.text for update in updates]  # word by word
    streamed = await stream.get_final_response()
    assert AgentResponse.from_updates(updates) == streamed
    assert streamed.messages == calm.messages and streamed.usage_details == calm.usage_details


@pytest.mark.parametrize("is_direct", [False, True])
async def test_output_of_a_sub_workflow_is_streamed_once_or_not_at_all(is_direct: bool) -> None:
    inner = WorkflowBuilder(name="inner", start_executor=ScriptedAgent("a", ["one two"])).build()
    sub = WorkflowExecutor(inner, "sub", allow_direct_output=is_direct)
    builder = WorkflowBuilder(start_executor=sub)
    if not is_direct:
        builder = builder.add_edge(sub, ScriptedAgent("last", ["three"]))
    stream = builder.build().as_agent().run("go", stream=True)
    joined = AgentResponse.from_updates([update async for update in stream])
    assert joined == await stream.get_final_response()
    assert joined.text == ("one two" if is_direct else "three")


async def test_replies_of_parallel_agents_stay_separate() -> None:
    team = [ScriptedAgent(name, [f"{name} says so"]) for name in "xyz"]

    class Start(Executor):
        @handler
        async def start(self, messages: list[Message], ctx: WorkflowContext[list[Message]]) -> None:
            await ctx.send_message(messages)

    start = Start("start")
    stream = (
        WorkflowBuilder(start_executor=start).add_fan_out_edges(start, team).build().as_agent().run("go", stream=True)
    )
    joined = AgentResponse.from_updates([update async for update in stream])
    assert [message.text for message in (await stream.get_final_response()).messages] == [
        "x says so",
        "y says so",
        "z says so",
    ]
    assert sorted(message.text for message in joined.messages) == ["x says so", "y says so", "z says so"]


async def test_session_is_a_thread_that_continues_in_another_process() -> None:
    storage = InMemoryCheckpointStorage()
    session = AgentSession(session_id="s1")
    await pair(storage).as_agent().run("go", session=session)
    again = AgentSession.from_dict(session.to_dict())
    response = await pair(storage).as_agent().run("on", session=again)
    assert response.text == "threesix"
    assert [thread.thread_id for thread in await storage.list_threads()] == ["s1"]
    assert [message.text for message in again.messages if message.role == "user"] == ["go", "on"]
    assert again.state["usage"] == {"input_token_count": 5, "output_token_count": 5}


async def test_messages_of_a_new_session_are_sent_with_the_first_turn() -> None:
    class Counts(Executor):
        @handler
        async def count(self, messages: list[Message], ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(" ".join(message.text for message in messages))

    agent = WorkflowBuilder(start_executor=Counts("counts")).build().as_agent()
    session = AgentSession(session_id="s1", messages=[Message("user", "one"), Message("assistant", "two")])
    assert (await agent.run("three", session=session)).text == "one two three"
    assert [message.text for message in session.messages] == ["one", "two", "three", "one two three"]
    assert (await agent.run("four", session=session)).text == "four"


async def test_sessions_do_not_see_each_other() -> None:
    agent = pair().as_agent()
    first = await agent.run("go", session=agent.create_session())
    other = await agent.run("go", session=agent.create_session())
    assert first.text == other.text == "one twofour five"


@pytest.mark.parametrize("nth", range(1, 8))
async def test_resumed_agent_returns_the_response_of_an_undisturbed_agent(nth: int, tmp_path: Path) -> None:
    calm = await pair(InMemoryCheckpointStorage()).as_agent().run("go")
    storage, faults, log = InMemoryCheckpointStorage(), Faults(), tmp_path / "log"
    faults.crash("commit" if nth <= 3 else "journal", nth=nth if nth <= 3 else nth - 3, when="after")
    session = AgentSession(session_id="s1")
    with pytest.raises(ProcessGone):
        await pair(faults.wrap(storage), log).as_agent().run("go", session=session)
    response = await pair(storage, log).as_agent().run(session=session, takeover=True)
    assert response.messages == calm.messages
    assert len(begun(log)) == len(set(begun(log))) == 4  # nothing recorded was done again


@pytest.mark.parametrize("nth", range(1, 8))
async def test_updates_of_a_resumed_agent_join_to_its_response(nth: int) -> None:
    storage, faults = InMemoryCheckpointStorage(), Faults()
    faults.crash("commit" if nth <= 3 else "journal", nth=nth if nth <= 3 else nth - 3, when="after")
    session = AgentSession(session_id="s1")
    with pytest.raises(ProcessGone):
        await pair(faults.wrap(storage)).as_agent().run("go", session=session)
    stream = pair(storage).as_agent().run(session=session, stream=True, takeover=True)
    joined = AgentResponse.from_updates([update async for update in stream])
    assert joined == await stream.get_final_response()
    assert joined.text == "one twofour five"


async def test_updates_after_each_approval_join_to_the_response() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s1")

    def build() -> Any:
        calls = [Call("pay", {"amount": 5}), Call("pay", {"amount": 7})]
        payer = ScriptedAgent("payer", [calls, "all done"], tools=[Tool(pay, approval=True)])
        return WorkflowBuilder(name="paying", start_executor=payer, checkpoint_storage=storage).build().as_agent()

    joined = await build().run("go", session=session)
    asked = joined.user_input_requests
    while asked:
        stream = build().run(asked[0].approve(), session=session, stream=True)
        joined = AgentResponse.from_updates([update async for update in stream])
        assert joined == await stream.get_final_response()
        asked = joined.user_input_requests
    assert joined.text == "all done"
    assert [message.role for message in joined.messages] == ["assistant", "tool", "assistant"]


async def test_running_a_finished_session_again_returns_its_outputs() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s1")
    response = await pair(storage).as_agent().run("go", session=session)
    assert (await pair(storage).as_agent().run(session=session)).messages == response.messages


async def test_agent_can_resume_and_continue_from_an_earlier_checkpoint() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s1")
    agent = pair(storage).as_agent()
    await agent.run("go", session=session)
    [head, *_] = await agent.workflow.history("s1")
    await agent.run("on", session=session)
    resumed = await agent.run(session=session, checkpoint_id=head.checkpoint_id)
    assert resumed.text == "one twofour five"
    assert (await agent.run("on", session=session, checkpoint_id=head.checkpoint_id)).text == "threesix"


# ---------------------------------------------------------------- requests


async def test_requests_are_request_info_calls_answered_singly_or_together() -> None:
    storage = InMemoryCheckpointStorage()
    session = AgentSession(session_id="s1")
    response = await asking(storage).as_agent().run("go", session=session)
    calls = response.user_input_requests
    asked = [WorkflowAgent.RequestInfoFunctionArgs.from_dict(call.parse_arguments()) for call in calls]
    assert [
        (call.type, call.name, args.request_id, args.request_event.data)
        for call, args in zip(calls, asked, strict=True)
    ] == [
        ("function_call", "request_info", "colour", "Which colour?"),
        ("function_call", "request_info", "number", {"how": "many"}),
    ]
    answer = Message("tool", Content.from_function_result("colour", result="red"))
    left = await asking(storage).as_agent().run(answer, session=session)
    assert left.text == "Which colour? red"
    assert [request.call_id for request in left.user_input_requests] == ["number"]
    last = await asking(storage).as_agent().run(Content.from_function_result("number", result=3), session=session)
    assert (last.text, last.value, last.user_input_requests) == ("3", 3, [])
    both = [Content.from_function_result("colour", result="red"), Content.from_function_result("number", result=3)]
    other = AgentSession(session_id="s2")
    await asking(storage).as_agent().run("go", session=other)
    assert (await asking(storage).as_agent().run(Message("tool", both), session=other)).text == "Which colour? red3"
    with pytest.raises(AlreadyAnswered):
        await asking(storage).as_agent().run(answer, session=other)


async def test_approval_request_is_passed_unchanged_and_answered_with_a_response() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s1")

    def build() -> Any:
        tools = [Tool(pay, approval=True)]
        payer = ScriptedAgent("payer", [[Call("pay", {"amount": 5}), Call("pay", {"amount": 7})], "done"], tools=tools)
        return WorkflowBuilder(name="paying", start_executor=payer, checkpoint_storage=storage).build().as_agent()

    stream = build().run("go", session=session, stream=True)
    updates = [update async for update in stream]
    first, second = (await stream.get_final_response()).user_input_requests
    assert [request for update in updates for request in update.user_input_requests] == [first, second]
    left = await build().run(first.approve({"amount": 4}), session=session)
    assert left.user_input_requests == [second]
    response = await build().run(second.reject("too much"), session=session)
    results = [content for message in response.messages for content in message.of_type("function_result")]
    assert [(content.result, content.exception) for content in results] == [
        ("paid 4", None),
        (None, "Rejected: too much"),
    ]


async def test_answers_and_new_messages_in_one_turn_are_rejected() -> None:
    with pytest.raises(ValueError, match="send the answers first"):
        asking(None).as_agent().run([Message("tool", Content.from_function_result("colour", result="red")), "hi"])


async def test_calls_and_results_of_the_past_are_not_answers() -> None:
    call = Message("assistant", Content.from_function_call("c1", "search"), "other")
    result = Message("tool", Content.from_function_result("c1", result="found"))
    response = await pair().as_agent().run(["go", call, result])
    assert response.text == "one twofour five"


# ---------------------------------------------------------------- what can be an agent


def test_a_workflow_that_does_not_begin_with_messages_is_rejected() -> None:
    class Numbers(Executor):
        @handler
        async def count(self, number: int, ctx: WorkflowContext[Any, int]) -> None: ...

    with pytest.raises(ValueError, match=r"cannot handle list\[Message\], .*: 'numbers' of 'counting'"):
        WorkflowBuilder(name="counting", start_executor=Numbers("numbers")).build().as_agent()


async def test_a_function_can_be_an_agent() -> None:
    writer = ScriptedAgent("writer", ["a draft"])

    @workflow
    async def drafting(messages: list[Message]) -> str:
        return (await writer.run(messages)).text

    for agent in (drafting.as_agent(), WorkflowAgent(drafting)):
        response = await agent.run("go")
        assert [(message.author_name, message.text) for message in response.messages] == [("drafting", "a draft")]


async def test_workflow_agent_rejects_tools_and_ignores_the_response_format() -> None:
    agent = pair().as_agent("team")
    with pytest.raises(TypeError, match="'team' takes no tools"):
        await agent.run("go", tools=[pay])
    assert (await agent.run("go", response_format=dict)).text == "one twofour five"


async def test_updates_can_be_merged_under_an_id_as_in_the_reference() -> None:
    stream = pair().as_agent().run("go", stream=True)
    merged = WorkflowAgent.merge_updates([update async for update in stream], "r1")
    assert (merged.response_id, merged.messages) == ("r1", (await stream.get_final_response()).messages)


@pytest.mark.parametrize(("value", "text"), [(5, "5"), ({"a": 1}, "{'a': 1}"), ([1, 2], "1 2")])
async def test_output_other_than_text_is_the_value_and_its_text(value: Any, text: str) -> None:
    class Gives(Executor):
        @handler
        async def give(self, messages: list[Message], ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(value)

    response = await WorkflowBuilder(start_executor=Gives("gives")).build().as_agent().run("go")
    assert (response.value, response.text) == (value, text)


async def test_sqlite_takes_the_sessions_of_agents_in_agents(tmp_path: Path) -> None:
    async with SqliteCheckpointStorage(tmp_path / "threads.db") as storage:
        inner = pair(storage).as_agent("inner")
        outer = WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage).build()
        result = await outer.run("go", thread_id="t")
        assert [response.text for response in result.get_outputs()] == ["one twofour five"]
        assert sorted(thread.thread_id for thread in await storage.list_threads()) == ["t", "t/inner"]


async def test_failed_result_is_rejected_as_an_answer() -> None:
    agent = asking(InMemoryCheckpointStorage()).as_agent("clerk")
    session = agent.create_session(session_id="s")
    asked = await agent.run("Hello", session=session)
    call, _ = (content for message in asked.messages for content in message.of_type("function_call"))
    failed = Content.from_function_result(str(call.call_id), exception="the line is dead")
    with pytest.raises(AnswerRejected):
        await agent.run(Message("tool", [failed]), session=session)
