"""Cancelled requests are settled without an answer; those who await it continue, in any process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Never

import pytest
from tests.unit.engine.flows import Verdict, asking

from perdure import (
    AgentExecutor,
    Executor,
    InvalidRun,
    NoPendingRequests,
    SqliteCheckpointStorage,
    ThreadNotFound,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
)
from perdure.agents.tools import tool
from perdure.errors import RequestWithdrawn
from perdure.orchestrations import HandoffBuilder
from perdure.testing.scripted import Call, ScriptedAgent


async def test_cancelled_request_is_settled_and_others_stay() -> None:
    workflow = asking(Verdict)
    await workflow.run("one two")
    result = await workflow.cancel_pending_requests(["one", "unknown"])
    assert [event.request_id for event in result.get_request_info_events()] == ["two"]
    assert result.get_outputs() == []
    with pytest.raises(RequestWithdrawn, match="it was cancelled"):
        await workflow.run(responses={"one": Verdict(True)})
    assert (await workflow.run(responses={"two": Verdict(True)})).get_outputs() == ["two: True []"]


async def test_cancelling_the_last_request_ends_the_run() -> None:
    workflow = asking(Verdict)
    await workflow.run("why")
    result = await workflow.cancel_pending_requests({"why"})
    assert result.get_final_state() is WorkflowRunState.IDLE
    with pytest.raises((RequestWithdrawn, NoPendingRequests)):
        await workflow.run(responses={"why": Verdict(True)})


@pytest.mark.parametrize("request_ids", ["why", [""], [5]])
async def test_ids_that_are_not_texts_are_rejected(request_ids: Any) -> None:
    workflow = asking(Verdict)
    await workflow.run("why")
    with pytest.raises(InvalidRun, match="Pending workflow request IDs must be non-empty strings"):
        await workflow.cancel_pending_requests(request_ids)
    assert len((await workflow.run()).get_request_info_events()) == 1


async def test_cancelling_in_an_unknown_thread_is_rejected() -> None:
    with pytest.raises(ThreadNotFound):
        await asking(Verdict).cancel_pending_requests(["why"], thread_id="no such thread")


def booking(folder: Path) -> Workflow:
    @tool(approval=True)
    def book(city: str) -> str:
        raise AssertionError("a rejected call is not made")

    agent = ScriptedAgent("agent", [Call("book", {"city": "Bern"}), "Then not."], tools=[book])
    storage = SqliteCheckpointStorage(folder / "threads.db")
    return WorkflowBuilder(start_executor=AgentExecutor(agent), name="booking", checkpoint_storage=storage).build()


async def test_agent_takes_a_cancelled_approval_as_a_rejection(tmp_path: Path) -> None:
    [request] = (await booking(tmp_path).run("Book.", thread_id="t")).get_request_info_events()
    result = await booking(tmp_path).cancel_pending_requests([str(request.request_id)], thread_id="t")
    [response] = result.get_outputs()
    assert response.messages[-1].text == "Then not."
    [rejected] = [part for message in response.messages for part in message.of_type("function_result")]
    assert "was not approved" in str(rejected.exception or rejected.result)
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_handoff_continues_after_a_cancelled_question() -> None:
    team = [ScriptedAgent("triage", ["What?", "I see."]), ScriptedAgent("clerk", ["Here."])]
    workflow = HandoffBuilder(participants=team).build()
    [request] = (await workflow.run("Hello.")).get_request_info_events()
    await workflow.cancel_pending_requests([str(request.request_id)])
    assert [output.text for output in (await workflow.run("My lamp.")).get_outputs()] == ["I see."]


# ---------------------------------------------------------------- tools of a run


class Counter(Executor):
    @handler
    async def count(self, text: str, ctx: WorkflowContext[Never, int]) -> None:
        tools = ctx.get_runtime_tools()
        await ctx.yield_output(-1 if tools is None else len(tools))


@tool
def weather(city: str) -> str:
    """Returns the weather."""
    return f"sun in {city}"


@pytest.mark.parametrize(("options", "count"), [({}, -1), ({"tools": weather}, 1), ({"tools": [weather, weather]}, 2)])
async def test_executors_get_the_tools_of_the_run(options: Any, count: int) -> None:
    workflow = WorkflowBuilder(start_executor=Counter("counter")).build()
    assert (await workflow.run("so", **options)).get_outputs() == [count]


async def test_agents_of_a_handoff_have_the_tools_of_the_run_too() -> None:
    triage = ScriptedAgent("triage", [Call("weather", {"city": "Bern"}), Call("handoff_to_clerk")])
    workflow = HandoffBuilder(participants=[triage, ScriptedAgent("clerk", ["Here."])]).build()
    first, second = (await workflow.run("Bern?", tools=[weather])).get_outputs()
    results = [result for message in first.messages for result in message.of_type("function_result")]
    assert results[0].result == "sun in Bern"
    assert second.text == "Here."


async def test_agents_call_the_tools_of_the_run_and_only_of_it() -> None:
    guide = ScriptedAgent("guide", [Call("weather", {"city": "Bern"}), "It is sunny.", Call("weather", {}), "None."])
    workflow = WorkflowBuilder(start_executor=guide).build()
    [response] = (await workflow.run("Bern?", tools=[weather])).get_outputs()
    results = [result for message in response.messages for result in message.of_type("function_result")]
    assert [result.result for result in results] == ["sun in Bern"]
    [response] = (await workflow.run("Bern?")).get_outputs()
    results = [result for message in response.messages for result in message.of_type("function_result")]
    assert results and all(result.exception is not None for result in results)
