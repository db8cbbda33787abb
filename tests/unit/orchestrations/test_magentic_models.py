"""A Magentic team of agents with models: judgements as structured output, and agents that know nothing of perdure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.unit.orchestrations.magentic_team import PLAIN, TASK, Manager, crew, judged, kinds, team

from perdure import InMemoryCheckpointStorage
from perdure.agents.conversation.message import Message
from perdure.agents.pydantic.agent import Agent
from perdure.orchestrations.magentic import ProgressAnswer
from perdure.orchestrations.magentic_builder import MagenticBuilder


class Model:
    """The model of the manager: what it is asked for is in the last part, how far the team is in the others."""

    def __init__(self) -> None:
        self.asked: list[AgentInfo] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(info)
        texts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
        if info.output_tools:
            judgement = judged("writer", "Write it.", is_done="writer: It is 7 metres." in texts)
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, judgement)])
        if "take stock" in texts[-1]:
            return ModelResponse(parts=[TextPart("The facts.")])
        return ModelResponse(parts=[TextPart("The plan." if "short plan" in texts[-1] else "The answer.")])


def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("It is 7 metres.")])


async def test_model_returns_judgements_as_typed_output_and_all_else_as_text() -> None:
    model = Model()
    workflow = MagenticBuilder(
        participants=[Agent(FunctionModel(write), name="writer")],
        manager_agent=Agent(FunctionModel(model), name="manager"),
        checkpoint_storage=InMemoryCheckpointStorage(),
    ).build()
    result = await workflow.run(TASK)

    assert [output.text for output in result.get_outputs()] == ["The answer."]
    assert kinds(result) == ["plan_created", *["progress_ledger_updated"] * 2]
    assert [bool(info.output_tools) for info in model.asked] == [False, False, True, True, False]
    schema = model.asked[2].output_tools[0].parameters_json_schema
    assert list(schema["properties"]) == list(ProgressAnswer.__struct_fields__)
    assert list(schema["properties"]["is_in_loop"]["properties"]) == ["reason", "answer"]


class Foreign:
    """Takes messages and gives a text, or what else its script has."""

    def __init__(self, name: str, script: Any) -> None:
        self.name = name
        self._script = script
        self.calls = 0

    async def run(self, messages: list[Message]) -> str:
        self.calls += 1
        reply = self._script(messages)
        return reply if isinstance(reply, str) else json.dumps(reply)


@pytest.mark.parametrize("where", ["manager", "participant"])
async def test_foreign_agent_takes_part_and_is_not_asked_twice(where: str) -> None:
    storage = InMemoryCheckpointStorage()
    manager = Foreign("manager", Manager(PLAIN))
    writer = Foreign("writer", lambda messages: "It is 7 metres.")

    def make() -> Any:
        if where == "participant":
            return team(storage, participants=[crew()[0], writer], enable_plan_review=True)
        builder = MagenticBuilder(participants=crew(), manager_agent=manager, checkpoint_storage=storage)
        return builder.with_plan_review().build()

    [asked] = (await make().run(TASK, thread_id="t")).get_request_info_events()
    result = await make().run(thread_id="t", responses={asked.request_id: asked.data.approve()})
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]
    assert (manager.calls, writer.calls) == ((6, 0) if where == "manager" else (0, 1))
