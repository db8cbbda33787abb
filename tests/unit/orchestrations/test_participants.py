"""Who takes part in a team, and whose outputs count."""

from __future__ import annotations

from typing import Any, Never

import pydantic_ai
import pytest
from pydantic_ai.models.test import TestModel

from perdure import Executor, WorkflowBuilder, WorkflowContext, handler
from perdure.agents.conversation.message import Message
from perdure.agents.executor import AgentExecutor
from perdure.errors import DuplicateExecutorId
from perdure.orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
    StandardMagenticManager,
)
from perdure.orchestrations.participants import (
    InputConversation,
    Participant,
    designate,
    find_participant,
    read_participants,
)
from perdure.testing.scripted import ScriptedAgent


class Silent(Executor):
    """Yields nothing."""

    @handler
    async def receive(self, messages: list[Message], ctx: WorkflowContext[list[Message]]) -> None: ...


class Loud(Executor):
    @handler
    async def receive(self, messages: list[Message], ctx: WorkflowContext[Never, list[Message]]) -> None:
        await ctx.yield_output(messages)


def agent(name: str) -> ScriptedAgent:
    return ScriptedAgent(name, ["Yes."], description=f"is {name}")


def names(team: list[Participant]) -> list[str]:
    return [participant.name for participant in team]


# ---------------------------------------------------------------- who takes part


def test_agents_and_executors_take_part_under_their_names() -> None:
    ann, silent = agent("ann"), Silent("silent")
    team = read_participants([ann, silent])
    assert [(participant.name, participant.description) for participant in team] == [
        ("ann", "is ann"),
        ("silent", None),
    ]
    hosted, same = (participant.executor() for participant in team)
    assert isinstance(hosted, AgentExecutor)
    assert hosted.agent is ann
    assert same is silent


def test_an_agent_of_another_framework_takes_part_as_it_is() -> None:
    other = pydantic_ai.Agent(TestModel(), name="other")
    [participant] = read_participants([other])
    assert participant.name == "other"
    assert find_participant([participant], other, "who") is participant
    assert designate([participant], [other], None)["output_from"] == ["other"]


def test_factories_make_a_new_team_each_time() -> None:
    factories = [lambda: agent("ann"), lambda: Silent("silent")]
    first, second = read_participants(None, factories), read_participants(None, factories)
    assert names(first) == names(second) == ["ann", "silent"]
    assert first[0].source is not second[0].source


@pytest.mark.parametrize(
    ("pair", "kind"),
    [(("a", "a"), "agent"), (("a", Silent("a")), "executor"), ((Silent("a"), Silent("a")), "executor")],
)
def test_participants_with_the_same_name_are_rejected(pair: Any, kind: str) -> None:
    with pytest.raises(DuplicateExecutorId, match=f"Duplicate {kind} participant detected: id 'a'"):
        read_participants([agent(member) if isinstance(member, str) else member for member in pair])


@pytest.mark.parametrize(
    ("participants", "complaint"),
    [
        ([], "participants cannot be empty"),
        (None, "participants cannot be empty"),
        ("ann", "a list of agents and executors, got 'ann'"),
        (["ann"], "must be SupportsAgentRun or Executor instances.* Got str: 'ann'"),
        ([ScriptedAgent], "must be SupportsAgentRun or Executor .* Got type: <class"),
        ([object()], "must be SupportsAgentRun or Executor .* Got object: <object"),
    ],
)
def test_invalid_participants_are_rejected(participants: Any, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        read_participants(participants)


def test_a_workflow_takes_part_as_an_agent() -> None:
    workflow = WorkflowBuilder(start_executor=agent("ann"), name="inner").build()
    with pytest.raises(TypeError, match=r"pass .*\.as_agent\(\)"):
        read_participants([workflow])
    assert names(read_participants([workflow.as_agent()])) == ["inner"]


def test_participants_and_factories_together_are_rejected() -> None:
    with pytest.raises(ValueError, match="Cannot provide both participants and participant_factories"):
        read_participants([agent("ann")], [lambda: agent("bob")])


def test_a_factory_is_a_function() -> None:
    with pytest.raises(TypeError, match="a function that makes an agent"):
        read_participants(None, [agent("ann")])  # type: ignore[list-item]


def test_participants_are_found_by_name_or_by_object() -> None:
    ann, silent = agent("ann"), Silent("silent")
    team = read_participants([ann, silent])
    assert [find_participant(team, key, "who").name for key in ("ann", ann, "silent", silent)] == [
        "ann",
        "ann",
        "silent",
        "silent",
    ]
    with pytest.raises(ValueError, match=r"'anne' is not in the participants list \(did you mean 'ann'\?\). Part"):
        find_participant(team, "anne", "who")
    with pytest.raises(ValueError, match="'bob' is not in the participants list"):
        find_participant(team, agent("bob"), "who")


# ---------------------------------------------------------------- whose outputs count

TEAM = read_participants([agent("ann"), agent("bob"), Silent("silent"), Loud("loud")])


@pytest.mark.parametrize(
    ("output", "intermediate", "outputs", "intermediates"),
    [
        (None, None, ["led", "loud"], []),
        (["ann"], None, ["led", "ann"], []),
        ("all", None, ["led", "ann", "bob", "loud"], []),
        (["ann"], "all_other", ["led", "ann"], ["bob", "loud"]),
        (None, "all", ["led"], ["ann", "bob", "loud"]),
        (None, "all_other", ["led"], ["ann", "bob", "loud"]),
        (None, ["ann"], ["led", "loud"], ["ann"]),
        (None, ["loud"], ["led"], ["loud"]),
        ([TEAM[1].source], [TEAM[3].source, "ann"], ["led", "bob"], ["loud", "ann"]),
        ([], ["ann"], ["led"], ["ann"]),
    ],
)
def test_outputs_are_designated_by_name_or_by_object(
    output: Any, intermediate: Any, outputs: list[str], intermediates: list[str]
) -> None:
    designated = designate(TEAM, output, intermediate, default=["loud"], always=["led"])
    assert designated == {"output_from": outputs, "intermediate_output_from": intermediates}


@pytest.mark.parametrize(
    ("parameter", "literal", "choices"),
    [
        ("output_from", "ann", "literal 'ann': use 'all', or a list"),
        ("output_from", "all_other", "invalid: use intermediate_output_from='all_other'"),
        ("intermediate_output_from", "ann", "literal 'ann': use 'all' or 'all_other', or a list"),
    ],
)
def test_unknown_literal_is_rejected_by_the_builder(parameter: str, literal: Any, choices: str) -> None:
    with pytest.raises(ValueError, match=f"{parameter}.*{choices}"):
        SequentialBuilder(participants=[agent("ann")], **{parameter: literal})


@pytest.mark.parametrize(
    ("output", "intermediate", "complaint"),
    [
        ([], None, "cannot both be empty"),
        (None, [], "cannot both be empty"),
        (["ann", "ann"], None, "Duplicate output participant 'ann'"),
        (None, ["ann", "ann"], "Duplicate intermediate participant 'ann'"),
        (["ann"], ["ann"], "both output and intermediate designated: 'ann'"),
        (["cy"], None, "Unknown output participant 'cy' is not in the participants list"),
        (None, ["cy"], "Unknown intermediate participant 'cy' is not in the participants list"),
    ],
)
def test_invalid_designation_is_rejected(output: Any, intermediate: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        designate(TEAM, output, intermediate)


# ---------------------------------------------------------------- how a conversation begins


@pytest.mark.parametrize(
    "run_input",
    ["Hello", Message("user", "Hello"), ["Hello"], [Message("user", "Hello")]],
    ids=["text", "message", "texts", "messages"],
)
async def test_any_run_input_becomes_a_conversation(run_input: Any) -> None:
    start, end = InputConversation("start"), Loud("end")
    workflow = WorkflowBuilder(start_executor=start, name="input").add_edge(start, end).build()
    assert (await workflow.run(run_input)).get_outputs() == [[Message("user", "Hello")]]


@pytest.mark.parametrize("builder", [SequentialBuilder, ConcurrentBuilder, GroupChatBuilder, HandoffBuilder])
def test_a_misspelt_setting_names_the_builder_and_the_setting(builder: Any) -> None:
    team: dict[str, Any] = {"participants": [agent("ann"), agent("ben")]}
    more = {"selection_func": lambda state: "ann"} if builder is GroupChatBuilder else {}
    with pytest.raises(TypeError, match=rf"{builder.__name__}\(\) got an unexpected .* 'nam'.*'name'"):
        builder(**team, **more, nam="team")


def test_a_misspelt_option_of_a_magentic_team_is_rejected() -> None:
    misspelt: dict[str, Any] = {"max_rounds": 3}
    with pytest.raises(TypeError, match=r"MagenticBuilder\(\) got an unexpected .* 'max_rounds'"):
        MagenticBuilder(participants=[agent("ann")], manager_agent=agent("lead"), **misspelt)
    with pytest.raises(TypeError, match=r"StandardMagenticManager\(\) got an unexpected .* 'max_rounds'"):
        StandardMagenticManager(agent("lead"), **misspelt)
