"""How the words of agents reach each consumer: as outputs of a streamed run, once, and as whole responses elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.agents.test_workflow_agent import asking

from perdure import (
    AgentExecutor,
    AgentResponse,
    AgentResponseUpdate,
    BaseAgent,
    InMemoryCheckpointStorage,
    Opaque,
    RequestInfoFunctionArgs,
    RetryPolicy,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    executor,
)
from perdure.orchestrations import AgentRequestInfoResponse, SequentialBuilder
from perdure.testing import FakeClock
from perdure.testing.scripted import ScriptedAgent
from perdure.workflows.workflow import Workflow

RESULTS = ("output", "intermediate", "data")


def pair(storage: Any = None, **designated: Any) -> Workflow:
    first, second = ScriptedAgent("first", ["one two"]), ScriptedAgent("second", ["three"])
    return (
        WorkflowBuilder(name="pair", start_executor=first, checkpoint_storage=storage, **designated)
        .add_edge(first, second)
        .build()
    )


def summary(event: WorkflowEvent) -> tuple[str, str | None, str]:
    return event.type, event.executor_id, event.data.text


async def streamed(workflow: Workflow, message: Any = None, **options: Any) -> list[WorkflowEvent]:
    stream = workflow.run(message, stream=True, **options)
    kinds = AgentResponse | AgentResponseUpdate
    return [event async for event in stream if isinstance(event.data, kinds) and event.data.text]


async def test_designation_decides_how_updates_arrive() -> None:
    events = await streamed(pair(output_from=["second"], intermediate_output_from=["first"]), "go")
    assert list(map(summary, events)) == [
        ("intermediate", "first", "one"),
        ("intermediate", "first", " two"),
        ("output", "second", "three"),
    ]
    assert [event.executor_id for event in await streamed(pair(output_from=["second"]), "go")] == ["second"]


async def test_result_of_a_stream_has_whole_responses_and_its_events() -> None:
    stream = pair().run("go", stream=True)
    events = [event async for event in stream]
    result = await stream.get_final_response()
    assert [response.text for response in result.get_outputs()] == ["one two", "three"]
    assert [event for event in result if event.type == "output"] == [
        event for event in events if event.type == "output"
    ]


async def test_follower_gets_updates_as_progress_and_each_response_once() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = pair(storage)
    followed: list[WorkflowEvent] = []

    async def follow() -> None:
        async for event in workflow.follow("t"):
            followed.append(event)
            if event.type == "output" and event.executor_id == "second":
                return

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0)  # it subscribes before the run begins
    await streamed(workflow, "go", thread_id="t")
    await asyncio.wait_for(follower, 60)
    whole = [event for event in followed if event.type == "output"]
    assert [event.data.text for event in whole] == ["one two", "three"]
    assert all(isinstance(event.data, AgentResponse) and event.seq is not None for event in whole)
    live = [event for event in followed if event.type == "data"]
    assert "".join(event.data.text for event in live) == "one twothree"
    assert all(isinstance(event.data, AgentResponseUpdate) and event.seq is None for event in live)


async def test_words_of_a_retried_turn_are_streamed_once() -> None:
    class Failing(ScriptedAgent):
        attempts = 0

        async def turn(self, *args: Any, **options: Any) -> AgentResponse:
            response = await super().turn(*args, **options)
            type(self).attempts += 1
            if self.attempts == 1:
                raise RuntimeError("the line is dead")
            return response

    retried = AgentExecutor(Failing("a", ["one"]), retry=RetryPolicy(max_attempts=2, initial_delay=1))
    clock = FakeClock()
    running = asyncio.ensure_future(streamed(WorkflowBuilder(start_executor=retried, clock=clock).build(), "go"))
    await clock.wait_for_sleepers()
    clock.advance(1)
    events = await running
    assert {type(event.data) for event in events} == {AgentResponseUpdate}
    assert list(map(summary, events)) == [("output", "a", "one")]


async def test_response_without_words_arrives_after_words_of_a_failed_turn() -> None:
    class Unsteady(BaseAgent):
        """Fails after its first words. Later it has only a final response."""

        async def words(self) -> Any:
            yield "Well"
            raise RuntimeError("the line is dead")

        def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **options: Any) -> Any:
            return self.words() if messages[0].text == "first" else Silent()

    class Silent:
        async def __aiter__(self) -> Any:
            for word in "":
                yield word

        async def get_final_response(self) -> str:
            return "Yes."

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("first")
        await ctx.send_message("second")

    agent = AgentExecutor(Unsteady("a"), on_error="skip")
    events = await streamed(WorkflowBuilder(start_executor=start).add_edge(start, agent).build(), "go")
    assert list(map(summary, events)) == [("output", "a", "Well"), ("output", "a", "Yes.")]


async def test_draft_under_review_is_progress_and_an_output_once_approved() -> None:
    def build() -> Workflow:
        return SequentialBuilder(participants=[ScriptedAgent("a", ["a draft"])]).with_request_info().build()

    workflow = build()
    before = await streamed(workflow, "go", thread_id="t")
    assert set(map(summary, before)) == {("data", "a", "a"), ("data", "a", " draft")}
    [request] = (await workflow.run(thread_id="t")).get_request_info_events()
    approval = {request.request_id: AgentRequestInfoResponse.approve()}
    after = await streamed(workflow, responses=approval, thread_id="t")
    assert list(map(summary, after)) == [("output", "a", "a draft")]
    assert isinstance(after[0].data, AgentResponse)
    updates = [update async for update in build().as_agent().run("go", stream=True)]
    assert [content.name for update in updates for content in update.contents] == ["request_info"]


async def test_agents_of_a_sub_workflow_stream_progress() -> None:
    inner = WorkflowBuilder(name="inner", start_executor=ScriptedAgent("a", ["one two"])).build()
    child = WorkflowExecutor(inner, "child", allow_direct_output=True)
    events = await streamed(WorkflowBuilder(start_executor=child).build(), "go")
    assert list(map(summary, events)) == [
        ("data", "child/a", "one"),
        ("data", "child/a", " two"),
        ("output", "child", "one two"),
    ]


async def test_update_that_a_handler_yields_is_an_output_and_is_logged() -> None:
    part = AgentResponseUpdate(contents=["half"], role="assistant")

    @executor(id="halves")
    async def halves(text: str, ctx: WorkflowContext[Any, AgentResponseUpdate]) -> None:
        await ctx.yield_output(part)
        await ctx.add_event(WorkflowEvent.emit("halves", part))

    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=halves, checkpoint_storage=storage).build()
    events = await streamed(workflow, "go", thread_id="t")
    assert list(map(summary, events)) == [("output", "halves", "half"), ("data", "halves", "half")]
    logged = [event async for event in workflow.follow("t", until_idle=True) if event.type in RESULTS]
    assert [(event.type, event.data) for event in logged] == [("output", part)]


# ---------------------------------------------------------------- requests of a workflow as an agent


async def test_pending_requests_of_an_agent_are_those_of_its_last_turn() -> None:
    agent = asking(None).as_agent("clerk", id="c-1")
    assert (agent.id, agent.pending_requests) == ("c-1", {})
    asked = await agent.run("go")
    assert {key: event.data for key, event in agent.pending_requests.items()} == {
        "colour": "Which colour?",
        "number": {"how": "many"},
    }
    assert [message.author_name for message in asked.messages] == ["asker", "asker"]
    answers = [content.call_id for message in asked.messages for content in message.contents]
    assert answers == ["colour", "number"]


def test_arguments_of_a_request_need_an_id_and_an_event() -> None:
    event = WorkflowEvent.request_info("q1", "clerk", "why?", str)
    args = RequestInfoFunctionArgs("q1", event).to_dict()
    assert RequestInfoFunctionArgs.from_dict(args) == RequestInfoFunctionArgs("q1", event)
    for wrong in ({}, {"request_id": "q1"}, {**args, "request_id": ""}):
        with pytest.raises(ValueError, match="'request_id' and 'request_event' are required"):
            RequestInfoFunctionArgs.from_dict(wrong)


def test_data_that_cannot_be_stored_is_its_text_in_the_arguments() -> None:
    lock = asyncio.Lock()
    args = RequestInfoFunctionArgs("q1", WorkflowEvent.request_info("q1", "clerk", lock, str)).to_dict()
    assert RequestInfoFunctionArgs.from_dict(args).request_event.data == str(lock)


@dataclass
class Undeclared:
    text: str


Undeclared.__module__ = "elsewhere"  # types of packages with executors are declared


def test_data_of_an_undeclared_type_is_opaque_unless_it_is_allowed() -> None:
    args = RequestInfoFunctionArgs("q1", WorkflowEvent.request_info("q1", "clerk", Undeclared("why?"), str)).to_dict()
    assert isinstance(RequestInfoFunctionArgs.from_dict(args).request_event.data, Opaque)
    allowed = RequestInfoFunctionArgs.from_dict(args, allowed_types={"question": Undeclared})
    assert allowed.request_event.data == Undeclared("why?")
