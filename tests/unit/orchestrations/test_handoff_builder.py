"""What HandoffBuilder refuses, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Executor, InMemoryCheckpointStorage, WorkflowContext, handler
from perdure.agents.tools import tool
from perdure.errors import DuplicateExecutorId
from perdure.orchestrations.handoff_builder import HandoffBuilder, get_handoff_tool_name
from perdure.testing.scripted import ScriptedAgent


def agent(name: str, **options: Any) -> ScriptedAgent:
    return ScriptedAgent(name, [], **options)


def team(*names: str) -> HandoffBuilder:
    return HandoffBuilder(participants=[agent(name) for name in names])


class Simple:
    """A custom agent that accepts only messages."""

    name = "simple"

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None) -> Any:
        raise NotImplementedError


class Node(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None: ...


def test_default_name_lists_the_participants_and_can_be_set() -> None:
    workflow = team("a", "b").build()
    assert (workflow.name, workflow.description) == ("handoff-a-b", None)
    storage = InMemoryCheckpointStorage()
    named = HandoffBuilder(name="support", description="Helps.", participants=[agent("a")]).with_checkpointing(storage)
    assert (named.build().name, named.build().description) == ("support", "Helps.")


def test_at_least_one_participant_is_required() -> None:
    with pytest.raises(ValueError, match="participants cannot be empty"):
        HandoffBuilder().participants([])
    with pytest.raises(ValueError, match="No participants provided"):
        HandoffBuilder(participants=[]).build()
    with pytest.raises(ValueError, match=r"Call participants\(...\) before with_start_agent\(...\)"):
        HandoffBuilder().with_start_agent("a")
    with pytest.raises(ValueError, match="already been assigned: a, b"):
        team("a", "b").participants([agent("c")])


def test_participants_with_the_same_name_are_rejected() -> None:
    with pytest.raises(DuplicateExecutorId, match="'a'"):
        team("a", "a")


def test_agent_without_tools_support_is_rejected_with_the_reason() -> None:
    with pytest.raises(TypeError, match=r"Agent 'simple' cannot hand off: its run\(\) does not accept `tools=`"):
        HandoffBuilder(participants=[agent("a"), Simple()])
    with pytest.raises(TypeError, match="'inner' cannot hand off"):
        HandoffBuilder(participants=[team("a", "b").build().as_agent("inner")])


def test_participant_that_is_not_an_agent_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"must be Agent instances\. Got 'node', an executor"):
        HandoffBuilder(participants=[Node("node")])
    with pytest.raises(TypeError, match="Got int: 7"):
        HandoffBuilder(participants=[7])


def test_participant_cannot_be_named_handoff() -> None:
    with pytest.raises(ValueError, match="cannot be named 'handoff'"):
        team("a", "handoff")


def test_start_agent_that_is_not_a_participant_is_rejected() -> None:
    with pytest.raises(ValueError, match="Start agent 'triagge' is not in the participants list"):
        team("triage", "refunds").with_start_agent("triagge")


def test_handoffs_are_between_participants_and_not_to_oneself() -> None:
    with pytest.raises(ValueError, match="Source agent 'x' is not in the participants list"):
        team("a", "b").add_handoff("x", ["a"])
    with pytest.raises(ValueError, match="Target agent 'y' is not in the participants list"):
        team("a", "b").add_handoff("a", ["b", "y"])
    with pytest.raises(ValueError, match="'a' cannot hand off to itself"):
        team("a", "b").add_handoff("a", ["b", "a"])
    with pytest.raises(ValueError, match="needs a list of target agents"):
        team("a", "b").add_handoff("a", [])
    with pytest.raises(ValueError, match="needs a list of target agents, got 'b'"):
        team("a", "b").add_handoff("a", "b")


def test_handoff_tools_with_the_same_name_are_rejected() -> None:
    with pytest.raises(ValueError, match="A handoff to 'b c' and 'b_c' would be the same tool, 'handoff_to_b_c'"):
        team("a", "b c", "b_c").build()

    @tool(name="handoff_to_b")
    def own() -> str:
        return ""

    with pytest.raises(ValueError, match="Agent 'a' already has a tool named 'handoff_to_b'"):
        HandoffBuilder(participants=[agent("a", tools=[own]), agent("b")]).build()


def test_a_tool_is_named_as_models_accept_it() -> None:
    assert get_handoff_tool_name("Ann's desk (2)") == "handoff_to_Ann_s_desk__2_"
    assert len(get_handoff_tool_name("a" * 100)) == 64


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ({"agents": ["x"]}, "with_autonomous_mode 'x' is not in the participants list"),
        ({"prompts": {"x": "Go on."}}, "prompts 'x' is not in the participants list"),
        ({"turn_limits": {"x": 1}}, "turn_limits 'x' is not in the participants list"),
        ({"turn_limits": {"a": -1}}, "turn limit of 'a' must be a whole number of turns, got -1"),
        ({"turn_limits": {"a": True}}, "got True"),
        ({"agents": ["a"], "turn_limits": {"b": 3}}, "'b' has a prompt or a turn limit, but is not among agents="),
    ],
)
def test_invalid_autonomous_mode_is_rejected(mode: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        team("a", "b").with_autonomous_mode(**mode)


def test_a_termination_condition_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="a function of the conversation, got True"):
        HandoffBuilder(participants=[agent("a")], termination_condition=True)  # type: ignore[arg-type]


def test_output_from_must_name_participants() -> None:
    with pytest.raises(ValueError, match="Unknown output participant 'x' is not in the participants list"):
        HandoffBuilder(participants=[agent("a")], output_from=["x"]).build()
