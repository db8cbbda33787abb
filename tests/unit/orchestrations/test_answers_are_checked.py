"""Answers of people to teams as JSON: a misspelt answer is rejected, and its request stays pending."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.orchestrations.magentic_team import Manager, crew

from perdure import AnswerRejected, FileCheckpointStorage, InMemoryCheckpointStorage, Secret, Workflow, tool
from perdure.orchestrations import MagenticBuilder, SequentialBuilder
from perdure.testing import Call, ScriptedAgent


@tool(approval=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


def approving(storage: Any) -> Workflow:
    payer = ScriptedAgent("payer", [Call("pay", {"amount": 1}), "Done."], tools=[pay])
    return SequentialBuilder(participants=[payer], checkpoint_storage=storage).build()


def reviewing(storage: Any) -> Workflow:
    team = SequentialBuilder(participants=[ScriptedAgent("writer", ["A draft.", "Another."])])
    return team.with_request_info().with_checkpointing(storage).build()


def planning(storage: Any) -> Workflow:
    manager = ScriptedAgent("manager", Manager())
    team = MagenticBuilder(participants=crew(), manager_agent=manager, enable_plan_review=True)
    return team.with_checkpointing(storage).build()


@pytest.mark.parametrize(
    ("build", "answers"),
    [
        (
            approving,
            [{}, {"approve": True}, {"approved": True, "args": {"amount": 9}}, {"approved": False, "why": "no"}],
        ),
        (reviewing, [{}, {"message": ["no!"]}, {"feedback": "no"}]),
        (planning, [{}, {"feedback": "too expensive"}, {"revew": []}]),
    ],
    ids=["approval", "answer", "plan"],
)
async def test_a_misspelt_answer_approves_nothing(build: Any, answers: list[Any]) -> None:
    storage = InMemoryCheckpointStorage()
    [asked] = (await build(storage).run("Go", thread_id="t")).get_request_info_events()
    for answer in answers:
        with pytest.raises(AnswerRejected):
            await build(storage).run(responses={asked.request_id: answer}, thread_id="t")
    assert [request.request_id for request in await storage.pending_requests()] == [asked.request_id]


async def test_request_in_the_middle_of_a_turn_is_among_the_result_events() -> None:
    result = await approving(InMemoryCheckpointStorage()).run("Go", thread_id="t")
    asked = [event.request_id for event in result if event.type == "request_info"]
    assert asked == [event.request_id for event in result.get_request_info_events()]


async def test_inner_workflow_does_not_store_secret_arguments_of_a_run(tmp_path: Any) -> None:
    inner = SequentialBuilder(participants=[ScriptedAgent("ann", ["Hello."])], name="inner").build()
    storage = FileCheckpointStorage(tmp_path)
    outer = SequentialBuilder(participants=[inner.as_agent("team")], checkpoint_storage=storage).build()
    arguments = {"token": Secret("hunter2xyz")}
    await outer.run("Go", thread_id="t", function_invocation_kwargs=arguments, client_kwargs=arguments)
    await storage.close()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len([file for file in files if file.suffix == ".jsonl"]) == 2
    assert [file.name for file in files if b"hunter2xyz" in file.read_bytes()] == []
