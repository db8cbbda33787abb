"""A handoff between agents with pydantic-ai models: the tools, messages and retries of a model."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.unit.orchestrations.handoff_team import refund, talked, to_public

from perdure import InMemoryCheckpointStorage
from perdure.agents.pydantic.agent import Agent
from perdure.orchestrations.handoff import HandoffSentEvent
from perdure.orchestrations.handoff_builder import HandoffBuilder
from perdure.workflows.workflow import Workflow


class Model:
    """Gives one reply after the other, and records its requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[list[ModelMessage]] = []
        self.offered: list[list[str]] = []

    def agent(self, name: str, **options: Any) -> Agent:
        return Agent(FunctionModel(self._reply), name=name, **options)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(list(messages))
        self.offered.append([tool.name for tool in info.function_tools])
        reply = self.replies.pop(0)
        return ModelResponse(parts=[TextPart(reply) if isinstance(reply, str) else reply])


def prompts(messages: list[ModelMessage]) -> list[Any]:
    requests = (message for message in messages if isinstance(message, ModelRequest))
    return [part.content for request in requests for part in request.parts if isinstance(part, UserPromptPart)]


async def test_models_hand_off_request_approval_and_answer_across_objects() -> None:
    storage = InMemoryCheckpointStorage()
    triage = Model(ToolCallPart("handoff_to_nobody", {}), ToolCallPart("handoff_to_refunds", {}))
    refunds = Model(ToolCallPart("refund", {"item": "lamp", "amount": 90}, tool_call_id="pay"), "It is paid.", "Bye.")

    def build() -> Workflow:
        participants = [triage.agent("triage"), refunds.agent("refunds", tools=[refund])]
        return HandoffBuilder(participants=participants, checkpoint_storage=storage).build()

    asked = await build().run("My lamp is broken.", thread_id="t")
    assert [event.data for event in asked if event.type == "handoff_sent"] == [HandoffSentEvent("triage", "refunds")]
    assert triage.offered[0] == ["handoff_to_refunds"]
    assert refunds.offered == [["refund", "handoff_to_triage"]]
    assert prompts(refunds.requests[0]) == ["My lamp is broken."]
    [request] = asked.get_request_info_events()
    paid = await build().run(responses={str(request.request_id): request.data.approve()}, thread_id="t")
    assert len(refunds.requests) == 2  # the request before the approval is not repeated
    [question] = paid.get_request_info_events()
    await build().run(responses={str(question.request_id): "Thanks."}, thread_id="t")
    assert to_public(await talked(storage, "t")) == [
        ("user", "My lamp is broken."),
        ("refunds", "It is paid."),
        ("user", "Thanks."),
        ("refunds", "Bye."),
    ]
    assert len(triage.requests) == 2


async def test_model_is_asked_again_when_the_floor_returns_without_a_message() -> None:
    first = Model(ToolCallPart("handoff_to_second", {}), "Mine again.")
    second = Model(ToolCallPart("handoff_to_first", {}))
    workflow = HandoffBuilder(participants=[first.agent("first"), second.agent("second")]).build()
    result = await workflow.run("Hello")
    assert [output.text for output in result.get_outputs()] == ["", "", "Mine again."]
    assert prompts(first.requests[1]) == ["Hello"]
