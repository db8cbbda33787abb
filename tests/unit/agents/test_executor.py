"""AgentExecutor: the messages that an agent in a graph receives and sends, and where its session lives."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agents.agent_recorder import AgentRecorder

from perdure import Executor, InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor, handler
from perdure.agents.base import BaseAgent
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import as_update
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.tools import Tool
from perdure.testing.scripted import Call, ScriptedAgent


def outputs(result: Any) -> list[str]:
    return [response.text for response in result.get_outputs()]


@pytest.mark.parametrize(
    "message",
    [
        "hi",
        Message("user", "hi"),
        ["hi"],
        [Message("user", "hi")],
        AgentExecutorRequest([Message("user", "hi")]),
    ],
)
async def test_an_agent_takes_texts_messages_and_requests(message: Any) -> None:
    recorder = AgentRecorder()
    result = await WorkflowBuilder(start_executor=recorder.agent("a", ["hello"])).build().run(message)
    assert outputs(result) == ["hello"]
    assert recorder.received == {"a": [["hi"]]}


async def test_agent_takes_several_messages_in_order() -> None:
    recorder = AgentRecorder()
    workflow = WorkflowBuilder(start_executor=recorder.agent("a", ["hello"])).build()
    await workflow.run(["hi", Message("assistant", "there", "b"), "you"])
    assert recorder.received == {"a": [["hi", "there", "you"]]}


async def test_agent_that_need_not_respond_keeps_the_message_without_output() -> None:
    recorder, storage = AgentRecorder(), InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=recorder.agent("a", ["hello"]), checkpoint_storage=storage).build()
    note = AgentExecutorRequest([Message("user", "note this")], should_respond=False)
    assert outputs(await workflow.run(note, thread_id="t")) == []
    assert outputs(await workflow.run("hi", thread_id="t")) == ["hello"]
    assert recorder.received == {"a": [["note this", "hi"]]}


# ---------------------------------------------------------------- one agent after the other


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, ["hi", "one", "two"], id="full, by default"),
        pytest.param({"context_mode": "full"}, ["hi", "one", "two"], id="full"),
        pytest.param({"context_mode": "last_agent"}, ["two"], id="last_agent"),
        pytest.param({"context_mode": "custom", "context_filter": lambda all_: all_[:2]}, ["hi", "one"], id="custom"),
    ],
)
async def test_context_mode_selects_the_earlier_messages_that_an_agent_receives(
    options: Any, expected: list[str]
) -> None:
    recorder = AgentRecorder()
    a, b = recorder.agent("a", ["one"]), recorder.agent("b", ["two"])
    c = AgentExecutor(recorder.agent("c", ["three"]), **options)
    result = await WorkflowBuilder(start_executor=a).add_chain([a, b, c]).build().run("hi")
    assert recorder.received["c"] == [expected]
    assert outputs(result)[-1] == "three"


@pytest.mark.parametrize(
    "options",
    [
        {"context_mode": "custom"},
        {"context_filter": list},
        {"context_mode": "full", "context_filter": list},
        {"context_mode": "none"},
    ],
)
def test_invalid_context_mode_is_rejected(options: Any) -> None:
    with pytest.raises(ValueError, match="context_"):
        AgentExecutor(ScriptedAgent("a", []), **options)


@pytest.mark.parametrize("mode", ["full", "last_agent"])
async def test_agent_in_a_loop_receives_only_new_messages(mode: Any) -> None:
    recorder = AgentRecorder()
    a = AgentExecutor(recorder.agent("a", ["one", "three", "five"]))
    b = AgentExecutor(recorder.agent("b", ["two", "four", "stop"]), context_mode=mode)
    workflow = (
        WorkflowBuilder(start_executor=a)
        .add_edge(a, b)
        .add_edge(b, a, condition=lambda response: response.agent_response.text != "stop")
        .build()
    )
    assert outputs(await workflow.run("hi")) == ["one", "two", "three", "four", "five", "stop"]
    assert recorder.received["a"] == [["hi"], ["two"], ["four"]]
    assert recorder.received["b"] == [["hi", "one"] if mode == "full" else ["one"], ["three"], ["five"]]


async def test_second_run_sends_a_chain_only_new_messages() -> None:
    recorder = AgentRecorder()
    a, b = recorder.agent("a", ["one", "two"]), recorder.agent("b", ["uno", "dos"])
    workflow = WorkflowBuilder(start_executor=a, checkpoint_storage=InMemoryCheckpointStorage()).add_edge(a, b).build()
    await workflow.run("hi", thread_id="t")
    await workflow.run("more", thread_id="t")
    assert recorder.received == {"a": [["hi"], ["more"]], "b": [["hi", "one"], ["more", "two"]]}


async def test_fan_in_target_receives_shared_messages_once_then_each_reply() -> None:
    recorder = AgentRecorder()
    start, judge = recorder.agent("start", ["go"]), recorder.agent("judge", ["so be it"])
    team = [recorder.agent(name, [f"{name} says"]) for name in ("x", "y", "z")]
    workflow = (
        WorkflowBuilder(start_executor=start).add_fan_out_edges(start, team).add_fan_in_edges(team, judge).build()
    )
    await workflow.run("hi")
    assert recorder.received["judge"] == [["hi", "go", "x says", "y says", "z says"]]


async def test_messages_of_one_superstep_become_consecutive_turns() -> None:
    class Twice(Executor):
        @handler
        async def send(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message("first")
            await ctx.send_message("second")

    recorder = AgentRecorder()
    twice, a = Twice("twice"), recorder.agent("a", ["one", "two"])
    result = await WorkflowBuilder(start_executor=twice).add_edge(twice, a).build().run("go")
    assert outputs(result) == ["one", "two"]
    assert recorder.received == {"a": [["first"], ["second"]]}


async def test_the_next_executor_gets_the_response_and_the_whole_conversation() -> None:
    got: list[AgentExecutorResponse] = []

    class Last(Executor):
        @handler
        async def take(self, response: AgentExecutorResponse, ctx: WorkflowContext[Any, str]) -> None:
            got.append(response)

    a, last = ScriptedAgent("a", ["one"]), Last("last")
    await WorkflowBuilder(start_executor=a).add_edge(a, last).build().run("hi")
    [response] = got
    assert (response.executor_id, response.agent_response.text) == ("a", "one")
    assert [message.text for message in response.full_conversation] == ["hi", "one"]
    other = response.with_text("uno")
    assert (other.agent_response.text, [message.text for message in other.full_conversation]) == ("uno", ["hi", "uno"])
    assert other.full_conversation[-1].author_name == "a"
    assert response.agent_response.text == "one"


@pytest.mark.parametrize("form", ["request", "messages", "response", "in two parts"])
async def test_conversation_that_comes_back_is_not_doubled(form: str) -> None:
    lengths: list[int] = []

    class Coordinator(Executor):
        @handler
        async def begin(self, text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
            await ctx.send_message(AgentExecutorRequest([Message("user", text)]))

        @handler
        async def review(
            self,
            draft: AgentExecutorResponse,
            ctx: WorkflowContext[AgentExecutorRequest | AgentExecutorResponse | list[Message]],
        ) -> None:
            lengths.append(len(draft.full_conversation))
            messages = [*draft.full_conversation, Message("user", f"feedback {len(lengths)}")]
            if len(lengths) < 4:
                if form == "request":
                    await ctx.send_message(AgentExecutorRequest(messages))
                elif form == "messages":
                    await ctx.send_message(messages)
                elif form == "response":
                    await ctx.send_message(AgentExecutorResponse("coordinator", draft.agent_response, messages))
                else:
                    await ctx.send_message(AgentExecutorRequest(messages[:-1], should_respond=False))
                    await ctx.send_message(AgentExecutorRequest(messages[-1:]))

    recorder = AgentRecorder()
    coordinator, a = Coordinator("coordinator"), recorder.agent("a", ["one", "two", "three", "four"])
    await (
        WorkflowBuilder(start_executor=coordinator).add_edge(coordinator, a).add_edge(a, coordinator).build().run("hi")
    )
    assert lengths == [2, 4, 6, 8]
    assert recorder.received["a"] == [["hi"], ["feedback 1"], ["feedback 2"], ["feedback 3"]]


async def test_agent_that_may_ignore_its_session_gets_the_messages_as_sent() -> None:
    received: list[Any] = []

    class Forgetful:
        name = "forgetful"

        async def run(self, messages: Any = None, *, session: Any = None) -> str:
            received.append([[message.text for message in part] for part in (session.messages, messages)])
            return f"answer {len(received)}"

    @executor(id="again")
    async def again(response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        if len(received) < 2:
            await ctx.send_message(AgentExecutorRequest([*response.full_conversation, Message("user", "more")]))

    agent = AgentExecutor(Forgetful())
    await WorkflowBuilder(start_executor=agent).add_edge(agent, again).add_edge(again, agent).build().run("hi")
    assert received == [[[], ["hi"]], [[], ["hi", "answer 1", "more"]]]


# ---------------------------------------------------------------- sessions and threads


async def test_each_thread_has_its_own_copy_of_the_session() -> None:
    recorder, storage = AgentRecorder(), InMemoryCheckpointStorage()
    session = AgentSession(messages=[Message("user", "before")], state={"seen": []})
    agent = recorder.agent("a", ["one", "two"], sees_session=True)
    host = AgentExecutor(agent, session=session)
    workflow = WorkflowBuilder(start_executor=host, checkpoint_storage=storage).build()
    assert outputs(await workflow.run("hi", thread_id="x")) == ["one"]
    assert outputs(await workflow.run("hi", thread_id="y")) == ["one"]
    assert outputs(await workflow.run("more", thread_id="x")) == ["two"]
    assert recorder.received["a"] == [["before", "hi"], ["before", "hi"], ["before", "hi", "one", "more"]]
    assert recorder.session_ids == ["x/a", "y/a", "x/a"]
    assert session.version == 1


def shared_by_two(recorder: AgentRecorder, storage: Any = None) -> tuple[Workflow, AgentSession]:
    """A graph of two agents with one session; the second gets no messages."""
    session = AgentSession(messages=[Message("user", "before")], state={"seen": []})

    class Silence(Executor):
        @handler
        async def hush(self, response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
            await ctx.send_message(AgentExecutorRequest([]))

    scripts = {"a": ["one", "three"], "b": ["two", "four"]}
    agents = [recorder.agent(name, script, sees_session=True) for name, script in scripts.items()]
    first, last = (AgentExecutor(agent, session=session) for agent in agents)
    builder = WorkflowBuilder(start_executor=first, name="shared", checkpoint_storage=storage)
    return builder.add_chain([first, Silence("silence"), last]).build(), session


async def test_executors_with_one_session_share_its_messages() -> None:
    recorder = AgentRecorder()
    workflow, session = shared_by_two(recorder)
    await workflow.run("hi")
    await workflow.run("more")
    assert recorder.received["b"][0] == ["before", "hi", "one"]
    assert recorder.received["a"] == [["before", "hi"], ["before", "hi", "one", "two", "more"]]
    assert [message.text for message in session.messages] == ["before", "hi", "one", "two", "more", "three", "four"]


async def test_shared_session_continues_in_another_process() -> None:
    storage = InMemoryCheckpointStorage()
    workflow, _ = shared_by_two(AgentRecorder(), storage)
    await workflow.run("hi", thread_id="t")
    recorder = AgentRecorder()
    other, session = shared_by_two(recorder, storage)
    await other.run("more", thread_id="t")
    assert recorder.received["a"] == [["before", "hi", "one", "two", "more"]]
    assert session.version == 1  # only the default thread adds to the program's object


async def test_waiting_agent_is_not_asked_again_when_its_shared_session_grows() -> None:
    recorder, session, asked = AgentRecorder(), AgentSession(), list[str]()

    class Careful(BaseAgent):
        async def run(self, messages: Any = None, *, session: Any = None, **kwargs: Any) -> AgentResponse:
            asked.append(messages[-1].contents[0].type)
            call = Content.from_function_call("c", "pay", arguments={})
            content = Content.from_function_approval_request("q", call) if len(asked) == 1 else "paid"
            return AgentResponse(messages=[Message("assistant", [content], self.name)])

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    careful = AgentExecutor(Careful("careful"), session=session)
    quick = AgentExecutor(recorder.agent("quick", ["one"], sees_session=True), session=session)
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [careful, quick]).build()
    [request] = (await workflow.run("hi")).get_request_info_events()
    await workflow.run(responses={request.request_id: request.data.approve()})
    assert asked == ["text", "function_approval_response"]


async def test_sub_workflows_of_one_thread_have_sessions_of_their_own() -> None:
    recorder = AgentRecorder()
    inner = WorkflowBuilder(name="inner", start_executor=recorder.agent("a", ["one", "two"], sees_session=True)).build()

    class Both(Executor):
        @handler
        async def send(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message("first")
            await ctx.send_message("second")

    both = Both("both")
    await WorkflowBuilder(start_executor=both).add_edge(both, inner).build().run("go", thread_id="t")
    assert len(set(recorder.session_ids)) == 2
    assert sorted(recorder.received["a"]) == [["first"], ["second"]]


async def test_arguments_of_the_run_reach_the_agent_that_they_are_for() -> None:
    recorder = AgentRecorder()
    a, b = recorder.agent("a", ["one"]), recorder.agent("b", ["two"])
    workflow = WorkflowBuilder(start_executor=a).add_edge(a, b).build()
    await workflow.run("hi", function_invocation_kwargs={"user": "ann"}, client_kwargs={"b": {"seed": 1}})
    assert recorder.arguments["a"] == [{"function_invocation_kwargs": {"user": "ann"}}]
    assert recorder.arguments["b"] == [{"function_invocation_kwargs": {"user": "ann"}, "client_kwargs": {"seed": 1}}]


# ---------------------------------------------------------------- values


@dataclass
class Price:
    amount: int


async def test_tool_result_can_have_a_type_that_no_handler_names() -> None:
    def price() -> Price:
        return Price(3)

    agent = ScriptedAgent("a", [Call("price"), "three"], tools=[Tool(price)])
    workflow = WorkflowBuilder(start_executor=agent, checkpoint_storage=InMemoryCheckpointStorage()).build()
    [response] = (await workflow.run("hi", thread_id="t")).get_outputs()
    assert isinstance(response, AgentResponse)
    again = (await workflow.run(thread_id="t")).get_outputs()[0]
    assert again.messages[1].contents[0].result == Price(3)


def test_updates_of_other_frameworks_keep_their_additional_properties() -> None:
    update = as_update(SimpleNamespace(contents=["hi"], additional_properties={"score": 1}), "a")
    assert update.additional_properties == {"score": 1}
