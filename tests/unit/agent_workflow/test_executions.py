"""Executions: ids, inputs, results that are kept, and several calls about one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, stub

from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.errors import InputMismatch, PerdureError, ThreadNotFound
from perdure.testing import Faults
from perdure.testing.faults import Point


async def test_an_execution_that_has_ended_gives_its_result_again() -> None:
    agent = RecordingAgent("x")
    workflow = kept().add_agent("a", agent).build()
    first = await workflow.run("i", "e")

    assert await workflow.run("i", "e") == first
    assert await workflow.resume("e") == first
    assert first.execution_id == "e"
    assert agent.turns == 1


@pytest.mark.parametrize("workflow_input", ["other", {"input": "i"}, ""])
async def test_another_input_for_the_same_id_is_rejected(workflow_input: Any) -> None:
    agent = RecordingAgent("x")
    workflow = kept().add_agent("a", agent).build()
    await workflow.run("i", "e")

    with pytest.raises(InputMismatch, match="e"):
        await workflow.run(workflow_input, "e")
    assert agent.turns == 1


async def test_another_input_is_rejected_while_an_execution_waits_or_has_stopped() -> None:
    waiting = kept().add_agent("a", stub("x"), lambda node: node.requires_approval("?")).build()
    stopped = kept().add_agent("a", stub(ValueError("boom"))).build()
    for workflow in (waiting, stopped):
        await workflow.run("i", "e")
        with pytest.raises(InputMismatch):
            await workflow.run("other", "e")


async def test_mapping_input_is_equal_in_any_key_order() -> None:
    agent = RecordingAgent("x")
    workflow = kept().add_agent("a", agent).build()
    await workflow.run({"a": 1, "b": [2]}, "e")
    await workflow.run({"b": [2], "a": 1}, "e")

    assert agent.turns == 1


async def test_concurrent_runs_with_the_same_id_are_one_execution() -> None:
    agent = RecordingAgent("x")
    workflow = kept().add_agent("a", agent).build()
    results = await asyncio.gather(*(workflow.run("i", "e") for _ in range(3)))

    assert [result.final_answer for result in results] == ["x"] * 3
    assert agent.turns == 1


async def test_one_of_two_concurrent_runs_with_different_inputs_is_rejected() -> None:
    agent = RecordingAgent()
    workflow = kept().add_agent("a", agent).build()
    results = await asyncio.gather(workflow.run("i", "e"), workflow.run("other", "e"), return_exceptions=True)

    assert sum(isinstance(result, InputMismatch) for result in results) == 1
    assert agent.turns == 1


async def test_two_objects_on_one_file_do_not_run_one_execution_twice(tmp_path: Path) -> None:
    agent = RecordingAgent("x")

    def opened() -> AgentWorkflowInstance:
        builder = drafted().with_checkpointing().with_sqlite_workflow_store(tmp_path / "w.db")
        return builder.add_agent("a", agent).build()

    results = await asyncio.gather(opened().run("i", "e"), opened().run("i", "e"))

    assert [result.final_answer for result in results] == ["x", "x"]
    assert agent.turns == 1


async def test_execution_without_an_id_gets_its_own_id() -> None:
    workflow = kept().add_agent("a", RecordingAgent()).build()
    first, second = await workflow.run("i"), await workflow.run("i")

    assert first.execution_id != second.execution_id
    assert (await workflow.resume(first.execution_id)).final_answer == "<i>"


async def test_the_id_of_an_execution_of_another_workflow_is_rejected(tmp_path: Path) -> None:
    def named(name: str, agent: Any) -> AgentWorkflowInstance:
        builder = drafted(name).with_checkpointing().with_sqlite_workflow_store(tmp_path / "w.db")
        return builder.add_agent("a", agent).build()

    agent = RecordingAgent("y")
    await named("one", stub("x")).run("i", "e")
    with pytest.raises(PerdureError, match="one"):
        await named("other", agent).run("i", "e")
    assert agent.turns == 0


async def test_resume_of_an_unknown_execution_is_rejected() -> None:
    workflow = kept().add_agent("a", stub("x")).build()

    with pytest.raises(ThreadNotFound, match="nowhere"):
        await workflow.resume("nowhere")


@pytest.mark.parametrize("wrong", ["", 3])
async def test_invalid_execution_id_is_rejected(wrong: Any) -> None:
    workflow = kept().add_agent("a", stub("x")).build()

    with pytest.raises(PerdureError, match="execution_id"):
        await workflow.run("i", wrong)


# ---------------------------------------------------------------- contents of a result


async def test_an_execution_that_waits_has_the_outputs_so_far() -> None:
    builder = kept().add_agent("a", stub("x")).add_agent("b", stub("y"), lambda node: node.requires_approval("?"))
    result = await builder.from_("a").to("b").build().run("i", "e")

    assert result.state == "waiting"
    assert result.outputs == {"a.answer": "x"}
    assert (result.success, result.final_answer, result.error) == (False, None, None)


async def test_an_execution_that_stopped_has_the_outputs_so_far() -> None:
    builder = kept().add_agent("a", stub("x")).add_agent("b", stub(ValueError("boom")))
    result = await builder.from_("a").to("b").build().run("i", "e")

    assert result.state == "failed"
    assert result.outputs == {"a.answer": "x"}


async def test_usage_adds_up_over_the_agents_and_over_resumes() -> None:
    usage = {"input_token_count": 10, "output_token_count": 2}
    second = RecordingAgent(ValueError("boom"), "y", usage=usage)
    builder = kept().add_agent("a", stub("x", usage=usage)).add_agent("b", second)
    workflow = builder.from_("a").to("b").build()
    await workflow.run("i", "e")
    result = await workflow.resume("e")

    assert result.usage == {"input_token_count": 20, "output_token_count": 4}
    assert (await workflow.run("i", "e")).usage == result.usage


async def test_without_checkpointing_an_execution_is_forgotten_when_it_has_ended() -> None:
    agent = RecordingAgent("x")
    workflow = drafted().add_agent("a", agent).build()
    await workflow.run("i", "e")
    await workflow.run("other", "e")

    assert agent.turns == 2


async def test_unstored_execution_that_waits_or_stopped_resumes_in_this_process() -> None:
    agent = RecordingAgent(ValueError("boom"), "x")
    workflow = drafted().add_agent("a", agent, lambda node: node.requires_approval("?")).build()
    assert (await workflow.run("i", "e")).state == "failed"
    result = await workflow.run("i", "e")
    assert result.state == "waiting"

    assert (await workflow.approve(result.pending[0].request_id)).final_answer == "x"


async def test_store_failure_is_reported_and_raised() -> None:
    from perdure import InMemoryCheckpointStorage
    from perdure.agent_workflow.events import WorkflowDiagnosticEvent
    from perdure.errors import StorageFailed

    points: tuple[Point, ...] = ("commit", "journal")
    for point in points:
        faults, seen = Faults(), list[WorkflowDiagnosticEvent]()
        faults.fail(point)
        builder = drafted().with_checkpointing().with_workflow_store(faults.wrap(InMemoryCheckpointStorage()))
        workflow = builder.add_agent("a", stub("x"), lambda node: node.on_error_isolate()).build()
        workflow.subscribe(WorkflowDiagnosticEvent, seen.append)
        with pytest.raises(StorageFailed):
            await workflow.run("i", "e")

        assert [(event.level, event.source) for event in seen] == [("error", "storage")], point
        assert (await workflow.run("i", "e")).final_answer == "x"


# ---------------------------------------------------------------- cut short


class Gated:
    """Answers when the test lets it."""

    name = id = "gated"
    description = None

    def __init__(self) -> None:
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.turns = self.inside = self.most = 0

    async def run(self, messages: list[Message], *, session: Any = None) -> AgentResponse:
        self.turns += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.began.set()
        try:
            await self.gate.wait()
        finally:
            self.inside -= 1
        return AgentResponse(messages=(Message("assistant", "ok"),))


async def test_cancelled_run_resumes_where_it_stopped() -> None:
    first, gated = RecordingAgent("x"), Gated()
    workflow = kept().add_agent("a", first).add_agent("b", gated).from_("a").to("b").build()
    running = asyncio.ensure_future(workflow.run("i", "e"))
    await gated.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gated.gate.set()

    assert (await workflow.run("i", "e")).outputs == {"a.answer": "x", "b.answer": "ok"}
    assert (first.turns, gated.turns) == (1, 2)


async def test_abandoned_stream_can_be_continued_by_a_run() -> None:
    agent = RecordingAgent("x")
    workflow = kept().add_agent("a", agent).add_agent("b", stub("y")).from_("a").to("b").build()
    async for _ in workflow.stream("i", "e"):
        break

    assert (await workflow.run("i", "e")).final_answer == "y"
    assert agent.turns == 1


async def test_node_limits_the_number_of_concurrent_executions() -> None:
    gated = Gated()
    workflow = kept().add_agent("a", gated, lambda node: node.with_max_concurrent(2)).build()
    runs = [asyncio.ensure_future(workflow.run("i", f"e{number}")) for number in range(5)]
    await gated.began.wait()
    for _ in range(50):  # all executions that can enter have entered
        await asyncio.sleep(0)
    gated.gate.set()

    assert [result.final_answer for result in await asyncio.gather(*runs)] == ["ok"] * 5
    assert gated.most == 2
