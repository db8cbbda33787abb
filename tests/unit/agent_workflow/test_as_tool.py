"""A workflow as a tool of an agent: one call is one execution, found again after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.crashing import Log, assert_survives
from tests.unit.agent_workflow.making import RecordingAgent, drafted, echo, kept, of_kind, stub, watched

from perdure import InMemoryCheckpointStorage, SqliteCheckpointStorage, WorkflowBuilder
from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.as_tool import workflow_tool
from perdure.agent_workflow.definition import AgentConfig
from perdure.agent_workflow.execution.node import ApprovalDecision
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import tool
from perdure.events import WorkflowEvent
from perdure.testing import Call, FakeClock, ScriptedAgent

research = kept("research").add_agent("x", ScriptedAgent("x", echo)).build().as_tool()


def call(messages: list[Message]) -> Any:
    """Call `inner` once, then reply with its result or its error."""
    if messages[-1].role != "tool":
        return Call("inner", {"input": "topic"})
    (result,) = messages[-1].contents
    return f"it failed: {result.exception}" if result.exception is not None else f"it said {result.result}"


def caller(inner: AgentWorkflowInstance, **options: Any) -> ScriptedAgent:
    return ScriptedAgent("caller", call, tools=[inner.as_tool(**options)])


def asking(clock: FakeClock | None = None, agent: Any = None, **options: Any) -> AgentWorkflowInstance:
    builder = kept("inner", clock).add_agent("x", agent or RecordingAgent())
    builder.add_agent(
        "y", RecordingAgent(), lambda node: node.with_input_key("answer").requires_approval("Use it?", **options)
    )
    return builder.from_("x").to("y").build()


async def test_model_receives_the_final_answer() -> None:
    inner = kept("inner").add_agent("x", RecordingAgent()).build()

    assert (await kept().add_agent("a", caller(inner)).build().run("i")).final_answer == "it said <topic>"
    assert (await caller(inner).run("hi")).text == "it said <topic>"


async def test_model_receives_the_name_and_description_of_the_tool() -> None:
    builder = kept("Deep research!").with_description("Finds things out.").add_agent("x", stub("x"))
    plain, named = builder.build().as_tool(), builder.build().as_tool("find", description="Look it up.")

    assert (plain.name, plain.description) == ("Deep_research", "Finds things out.")
    assert (named.name, named.description) == ("find", "Look it up.")
    assert plain.context_parameter == "context"


async def test_model_receives_the_error_of_a_failed_workflow() -> None:
    inner = kept("inner").add_agent("x", stub(ValueError("boom"))).build()
    result = await kept().add_agent("a", caller(inner)).build().run("i")

    assert "it failed: RuntimeError: Workflow 'inner' was not successful: x: ValueError: boom" in str(
        result.final_answer
    )


async def test_usage_of_the_inner_workflow_counts_in_the_outer_result() -> None:
    inner = kept("inner").add_agent("x", stub("x", usage={"input_token_count": 100})).build()
    result = await kept().add_agent("a", caller(inner)).build().run("i")

    assert result.usage["input_token_count"] == 102


# ---------------------------------------------------------------- approvals


async def test_outer_workflow_requests_the_approval_of_an_inner_node() -> None:
    agent = RecordingAgent()
    workflow = kept().add_agent("a", caller(asking(agent=agent))).build()
    result = await workflow.run("i", "e")
    (asked,) = result.pending
    assert (asked.agent_id, asked.message, asked.outputs) == ("a", "Use it?", {"answer": "<<topic>>"})

    result = await workflow.approve(asked.request_id, data={"answer": "edited"})

    assert result.final_answer == "it said edited"
    assert agent.turns == 1


async def test_denied_inner_approval_leaves_the_tool_without_an_answer() -> None:
    workflow = kept().add_agent("a", caller(asking())).build()
    result = await workflow.run("i", "e")

    assert (await workflow.deny(result.pending[0].request_id, reason="no")).final_answer == "it said "


async def test_inner_approval_timeout_uses_the_inner_timeout_behavior() -> None:
    clock = FakeClock()
    inner = asking(clock, timeout=60, timeout_behavior="auto_approve")
    workflow = kept(clock=clock).add_agent("a", caller(inner)).build()
    result = await workflow.run("i", "e")
    assert result.pending[0].deadline == inner.now().replace(minute=1)
    clock.advance(61)

    assert (await workflow.resume("e")).final_answer == "it said <<topic>>"


async def test_outer_workflow_requests_the_approval_of_an_inner_tool() -> None:
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "ok"

    inner = kept("inner").add_agent("x", stub(Call("pay", {"amount": 3}), "paid", tools=[pay])).build()
    workflow = kept().add_agent("a", caller(inner)).build()
    result = await workflow.run("i", "e")
    assert result.pending[0].outputs == {"tool": "pay", "arguments": {"amount": 3}}

    assert (await workflow.approve(result.pending[0].request_id, data={"amount": 2})).final_answer == "it said paid"
    assert paid == [2]


async def test_several_inner_approvals_at_once_and_in_sequence_are_answered() -> None:
    builder = kept("inner")
    for name in "xyz":
        builder.add_agent(name, stub(name), lambda node: node.requires_approval("?"))
    inner = builder.from_("x", "y").to("z").build()
    workflow = kept().add_agent("a", caller(inner)).build()
    result = await workflow.run("i", "e")
    assert [request.agent_id for request in result.pending] == ["a", "a"]
    asked = 0
    while result.pending:
        asked += 1
        result = await workflow.approve(result.pending[-1].request_id)

    assert result.final_answer == "it said z"
    assert asked == 3


async def test_two_calls_at_once_are_two_executions() -> None:
    def twice(messages: list[Message]) -> Any:
        if messages[-1].role != "tool":
            return [Call("inner", {"input": "one"}), Call("inner", {"input": "two"})]
        return " ".join(str(content.result) for content in messages[-1].contents)

    agent = ScriptedAgent("caller", twice, tools=[asking().as_tool()])
    workflow = kept().add_agent("a", agent).build()
    events, result = await watched(workflow.stream("i", "e"))
    assert [request.outputs["answer"] for request in result.pending] == ["<<one>>", "<<two>>"]
    inside = [event.data for event in of_kind(events, WorkflowEvent)]
    assert len(of_kind(inside, event_types.WorkflowStartedEvent)) == 2
    await workflow.approve(result.pending[1].request_id, data={"answer": "second"})
    result = await workflow.approve(result.pending[0].request_id)

    assert result.final_answer == "<<one>> second"


async def test_unstored_workflow_restarts_in_a_new_process_and_uses_the_answers() -> None:
    agent, storage = RecordingAgent(), InMemoryCheckpointStorage()

    def opened() -> AgentWorkflowInstance:
        builder = drafted("inner").add_agent("x", agent, lambda node: node.requires_approval("?"))
        inner = builder.add_agent("y", stub("y"), lambda node: node.requires_approval("?")).build()
        return drafted().with_checkpointing().with_workflow_store(storage).add_agent("a", caller(inner)).build()

    first, second = (await opened().run("i", "e")).pending
    await opened().approve(first.request_id, data={"answer": "edited"})
    result = await opened().approve(second.request_id)

    assert result.final_answer == "it said edited\n\ny"
    assert agent.turns == 3


async def test_tool_outside_of_a_workflow_reports_the_approval_it_waits_for() -> None:
    inner = asking()
    response = await caller(inner).run("hi")

    assert "waits for an approval" in response.text
    assert "outside of a workflow" in response.text
    (pending,) = await inner.pending()
    assert pending.execution_id in response.text
    assert (await inner.approve(pending.request_id)).final_answer == "<<topic>>"


async def test_a_plain_workflow_asks_and_answers_in_another_process(tmp_path: Path) -> None:
    agent = RecordingAgent()

    def opened() -> Any:
        builder = drafted("inner").with_checkpointing().with_sqlite_workflow_store(tmp_path / "inner.db")
        inner = builder.add_agent("x", agent, lambda node: node.requires_approval("?")).build()
        storage = SqliteCheckpointStorage(tmp_path / "outer.db")
        return WorkflowBuilder(start_executor=AgentExecutor(caller(inner), id="a"), checkpoint_storage=storage).build()

    (asked,) = (await opened().run("hi", thread_id="t")).get_request_info_events()
    answer = ApprovalDecision(True, data={"answer": "edited"})
    (response,) = (await opened().run(responses={asked.request_id: answer}, thread_id="t")).get_outputs()

    assert response.text == "it said edited"
    assert agent.turns == 1


# ---------------------------------------------------------------- crashes


async def test_call_continues_its_execution_after_a_crash() -> None:
    def make(storage: Any, log: Log) -> AgentWorkflowInstance:
        builder = drafted("inner").with_checkpointing().with_workflow_store(storage)
        builder.add_agent("x", ScriptedAgent("x", echo, log=log), lambda node: node.requires_approval("?"))
        agent = ScriptedAgent("caller", call, tools=[builder.build().as_tool()], log=log)
        return drafted().with_checkpointing().with_workflow_store(storage).add_agent("a", agent).build()

    # The call of the tool itself is begun again, and what was being asked inside of it.
    assert (await assert_survives(make, "i", at_once=2)).final_answer == "it said <topic>"


# ---------------------------------------------------------------- events, and other ways to give it to an agent


@pytest.mark.parametrize("stream_events", [True, False])
async def test_inner_events_are_emitted_outside_unless_stream_events_is_false(stream_events: bool) -> None:
    inner = kept("inner").add_agent("x", stub("x")).build()
    workflow = kept().add_agent("a", caller(inner, stream_events=stream_events)).build()
    events, _ = await watched(workflow.stream("i"))

    inside = [
        event.data for event in of_kind(events, WorkflowEvent) if isinstance(event.data, event_types.AgentWorkflowEvent)
    ]
    assert {event.workflow_name for event in inside} == ({"inner"} if stream_events else set())
    progress = [event.progress for event in of_kind(events, event_types.WorkflowAgentCompletedEvent)]
    assert progress == [1.0]


async def test_inner_events_after_an_approval_are_emitted_outside() -> None:
    workflow = kept().add_agent("a", caller(asking())).build()
    result = await workflow.run("i", "e")
    seen: list[WorkflowEvent] = []
    workflow.subscribe(WorkflowEvent, seen.append)
    await workflow.approve(result.pending[0].request_id)

    inside = [type(event.data) for event in seen if isinstance(event.data, event_types.AgentWorkflowEvent)]
    assert event_types.WorkflowApprovalResolvedEvent in inside
    assert inside[-1] is event_types.WorkflowCompletedEvent


async def test_a_workflow_is_a_tool_of_one_node_or_by_import_path() -> None:
    inner = kept("inner").add_agent("x", RecordingAgent()).build()
    builder = kept().add_agent("a", ScriptedAgent("caller", call), lambda node: node.with_tools(workflow_tool(inner)))
    assert (await builder.build().run("i")).final_answer == "it said <topic>"

    config = AgentConfig(model="test", tools=(f"{__name__}:research",))
    result = await kept().add_agent("a", config).build().run("i")
    assert result.success, result.error
    assert "research" in str(result.final_answer)


async def test_call_that_exceeds_its_timeout_ends() -> None:
    clock = FakeClock()

    class Slow:
        name = id = "slow"
        description = None

        async def run(self, messages: list[Message], *, session: Any = None) -> Any:
            await clock.sleep(100)

    inner = kept("inner", clock).add_agent("x", Slow()).build()
    workflow = kept(clock=clock).add_agent("a", caller(inner, timeout=10)).build()
    async with clock.skipping():
        result = await workflow.run("i")

    assert "did not end within 10 s" in str(result.final_answer)
    assert result.duration == 10
