"""Values that tools of teams return, and handoffs that are rejected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure import InMemoryCheckpointStorage, Workflow
from perdure.orchestrations import GroupChatBuilder, HandoffBuilder, SequentialBuilder
from perdure.testing import Call, ScriptedAgent


class Weather(msgspec.Struct, frozen=True):
    degrees: int


def weather() -> Weather:
    """How warm it is."""
    return Weather(12)


def asking() -> ScriptedAgent:
    return ScriptedAgent("ann", [Call("weather"), "Twelve degrees."], tools=[weather])


def sequential(storage: Any) -> Workflow:
    return SequentialBuilder(participants=[asking()], checkpoint_storage=storage).build()


def group_chat(storage: Any) -> Workflow:
    builder = GroupChatBuilder(participants=[asking()], selection_func=lambda state: "ann", max_rounds=1)
    return builder.with_checkpointing(storage).build()


def handoff(storage: Any) -> Workflow:
    team = [asking(), ScriptedAgent("bob", ["Hello."])]
    return HandoffBuilder(participants=team, checkpoint_storage=storage).build()


@pytest.mark.parametrize("team", [sequential, group_chat, handoff])
async def test_a_tool_of_any_team_may_give_a_data_type(team: Any) -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage).run("How warm is it?", thread_id="t")
    assert "Twelve degrees." in str([event.data for event in result])
    assert await storage.get_latest(thread_id="t") is not None


async def test_rejected_handoff_call_is_not_a_handoff() -> None:
    malformed = Call("handoff_to_bob", '{"reason": ')
    ann = ScriptedAgent("ann", [malformed, "I will do it myself."])
    result = await HandoffBuilder(participants=[ann, ScriptedAgent("bob", [])]).build().run("Help")
    assert [event for event in result if event.type == "handoff_sent"] == []
    [asked] = result.get_request_info_events()
    assert asked.data.agent_response.messages[-1].text == "I will do it myself."


async def test_handoff_after_a_rejected_handoff_counts() -> None:
    calls = [Call("handoff_to_bob", "no JSON"), Call("handoff_to_cy", {"reason": "money"})]
    team = [ScriptedAgent("ann", calls), ScriptedAgent("bob", []), ScriptedAgent("cy", ["Paid."])]
    result = await HandoffBuilder(participants=team).build().run("Help")
    assert [event.data.target for event in result if event.type == "handoff_sent"] == ["cy"]
