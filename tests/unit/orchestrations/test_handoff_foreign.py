"""Agents of other frameworks in a handoff: those that can be given tools take part as they are."""

from __future__ import annotations

from typing import Any

import agent_framework
import pytest
from agent_framework import BaseChatClient, ChatMiddlewareLayer, ChatResponse, FunctionInvocationLayer
from langchain_core.runnables import RunnableLambda
from tests.unit.orchestrations.handoff_team import talked, to_public

from perdure import InMemoryCheckpointStorage
from perdure.orchestrations.handoff_builder import HandoffBuilder
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.workflow import Workflow


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]  # an untyped base
    """A model that replies what is written down."""

    def __init__(self, *replies: Any) -> None:
        super().__init__()
        self.replies = list(replies)
        self.requests: list[list[Any]] = []

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        self.requests.append(list(messages))

        async def reply() -> ChatResponse:
            message = agent_framework.Message(role="assistant", contents=[self.replies.pop(0)])
            return ChatResponse(messages=[message])

        return reply()


async def test_an_agent_of_agent_framework_hands_off_and_gets_the_floor_back() -> None:
    storage = InMemoryCheckpointStorage()
    call = agent_framework.Content.from_function_call("1", "handoff_to_clerk", arguments="{}")
    client = Client(call, "Welcome back.")

    def build() -> Workflow:
        triage = agent_framework.Agent(client=client, name="triage", require_per_service_call_history_persistence=True)
        clerk = ScriptedAgent("clerk", ["Here.", Call("handoff_to_triage")])
        return HandoffBuilder(participants=[triage, clerk], checkpoint_storage=storage).build()

    result = await build().run("Hello", thread_id="t")
    [asked] = result.get_request_info_events()
    assert asked.source_executor_id == "clerk"
    await build().run(responses={str(asked.request_id): "Bye"}, thread_id="t")
    assert to_public(await talked(storage, "t")) == [
        ("user", "Hello"),
        ("clerk", "Here."),
        ("user", "Bye"),
        ("triage", "Welcome back."),
    ]
    assert client.replies == []
    # The result of the handoff is sent before the messages since then.
    assert [message.role for message in client.requests[1]] == ["user", "assistant", "tool", "assistant", "user"]


def test_agents_that_accept_no_tools_per_turn_are_rejected() -> None:
    with pytest.raises(TypeError, match="Agent 'foreign' cannot hand off"):
        HandoffBuilder(participants=[RunnableLambda(lambda state: state, name="foreign")])
