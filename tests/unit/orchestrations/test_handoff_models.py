"""A handoff between agents of pydantic-ai's models: what the model is offered, told, and asked again."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.unit.orchestrations.handoff_team import refund, talked, to_public

from perdure import InMemoryCheckpointStorage
from perdure.agents.pydantic.agent import Agent
from perdure.orchestrations.handoff.builder import HandoffBuilder
from perdure.orchestrations.handoff.executor import HandoffSentEvent
from perdure.workflows.workflow import Workflow


class Model:
    """Replies one after the other, and notes what it was given."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.given: list[list[ModelMessage]] = []
        self.offered: list[list[str]] = []

    def agent(self, name: str, **options: Any) -> Agent:
        return Agent(FunctionModel(self._reply), name=name, **options)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.given.append(list(messages))
        self.offered.append([one.name for one in info.function_tools])
        reply = self.replies.pop(0)
        return ModelResponse(parts=[TextPart(reply) if isinstance(reply, str) else reply])


def prompts(messages: list[ModelMessage]) -> list[Any]:
    requests = (one for one in messages if isinstance(one, ModelRequest))
    return [part.content for one in requests for part in one.parts if isinstance(part, UserPromptPart)]


async def test_models_hand_off_ask_for_approval_and_answer_across_workflow_objects() -> None:
    storage = InMemoryCheckpointStorage()
    triage = Model(ToolCallPart("handoff_to_nobody", {}), ToolCallPart("handoff_to_refunds", {}))
    refunds = Model(ToolCallPart("refund", {"item": "lamp", "amount": 90}, tool_call_id="pay"), "It is paid.", "Bye.")

    def build() -> Workflow:
        participants = [triage.agent("triage"), refunds.agent("refunds", tools=[refund])]
        return HandoffBuilder(participants=participants, checkpoint_storage=storage).build()

    asked = await build().run("My lamp is broken.", thread_id="t")
    assert [one.data for one in asked if one.type == "handoff_sent"] == [HandoffSentEvent("triage", "refunds")]
    assert triage.offered[0] == ["handoff_to_refunds"]
    assert refunds.offered == [["refund", "handoff_to_triage"]]
    assert prompts(refunds.given[0]) == ["My lamp is broken."]
    [request] = asked.get_request_info_events()
    paid = await build().run(responses={str(request.request_id): request.data.approve()}, thread_id="t")
    assert len(refunds.given) == 2  # what it said before the approval is not asked again
    [question] = paid.get_request_info_events()
    await build().run(responses={str(question.request_id): "Thanks."}, thread_id="t")
    assert to_public(await talked(storage, "t")) == [
        ("user", "My lamp is broken."),
        ("refunds", "It is paid."),
        ("user", "Thanks."),
        ("refunds", "Bye."),
    ]
    assert len(triage.given) == 2


async def test_a_model_that_gets_the_floor_back_without_a_word_is_asked_again_and_knows_why() -> None:
    first = Model(ToolCallPart("handoff_to_second", {}), "Mine again.")
    second = Model(ToolCallPart("handoff_to_first", {}))
    workflow = HandoffBuilder(participants=[first.agent("first"), second.agent("second")]).build()
    result = await workflow.run("Hello")
    assert [one.text for one in result.get_outputs()] == ["", "", "Mine again."]
    assert prompts(first.given[1]) == ["Hello"]
