"""A group chat that an agent leads: its input, its decisions, and the handling of its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.unit.orchestrations.teams import Recorder, assert_no_request_is_repeated, kept_by, lines, texts

from perdure import AgentSession, InMemoryCheckpointStorage, Message, Workflow
from perdure.agents.pydantic.agent import Agent
from perdure.errors import InvalidSelection
from perdure.orchestrations.group_chat import OrchestrationState
from perdure.orchestrations.group_chat_builder import AgentBasedGroupChatOrchestrator, GroupChatBuilder
from perdure.testing.scripted import ScriptedAgent

LEADER = "chair"


def next_is(name: Any) -> dict[str, Any]:
    return {"terminate": False, "reason": "it is their turn", "next_speaker": name, "final_message": None}


END = {"terminate": True, "reason": "all is said", "next_speaker": None, "final_message": "Agreed."}


def duo(log: Path | None = None) -> list[Any]:
    ann = ScriptedAgent("ann", ["One.", "Two.", "Three."], description="knows the sea", log=log)
    return [ann, ScriptedAgent("bob", ["Uno.", "Dos."], log=log)]


def led(replies: Any, storage: Any = None, log: Path | None = None, **options: Any) -> Workflow:
    leader = replies if not isinstance(replies, list) else ScriptedAgent("chair", replies, log=log)
    options = {"participants": duo(log), "orchestrator_agent": leader, "name": "talk", **options}
    return GroupChatBuilder(checkpoint_storage=storage, **options).build()


async def conversation(storage: Any) -> list[str]:
    return texts(OrchestrationState.from_dict(await kept_by(storage, LEADER)).conversation)


# ---------------------------------------------------------------- decisions


async def test_leader_names_the_speakers_and_ends_the_chat_with_its_message() -> None:
    storage = InMemoryCheckpointStorage()
    result = await led([next_is("bob"), next_is("ann"), END], storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "One.", "Agreed."]
    assert [output.messages for output in result.get_outputs()] == [[Message("assistant", "Agreed.", "chair")]]


async def test_leader_may_answer_in_text_without_structured_output() -> None:
    storage = InMemoryCheckpointStorage()
    fenced = f"I think it is ann.\n```json\n{json.dumps(next_is('ann'))}\n```"
    await led([json.dumps(next_is("bob")), fenced, json.dumps(END)], storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "One.", "Agreed."]


async def test_leader_may_end_the_chat_without_a_message() -> None:
    result = await led([{"terminate": True, "reason": ""}]).run("Talk.")
    assert texts(result.get_outputs()) == ["The conversation has been terminated by the agent."]


async def test_leader_receives_only_new_messages_and_the_participants() -> None:
    recorder = Recorder()
    await led(recorder.agent("chair", [next_is("bob"), next_is("ann"), END])).run("Talk.")
    inputs = recorder.received["chair"]
    assert [messages[:-1] for messages in inputs] == [["Talk."], ["Uno."], ["One."]]
    for *_, instruction in inputs:
        assert "ann: knows the sea\nbob: " in instruction
        assert '"next_speaker"' in instruction


async def test_limits_apply_to_a_leading_agent_too() -> None:
    result = await led([next_is("bob")] * 2, max_rounds=2).run("Talk.")
    assert texts(result.get_outputs()) == ["The group chat has reached the maximum number of rounds."]
    result = await led([next_is("bob")], termination_condition=lambda messages: len(messages) == 2).run("Talk.")
    assert texts(result.get_outputs()) == ["The group chat has reached its termination condition."]


async def test_second_run_continues_in_the_session_of_the_leader() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()
    replies = [next_is("bob"), END, next_is("ann"), END]
    for message in ("Talk.", "Go on."):
        await led(recorder.agent("chair", replies), storage).run(message, thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "Agreed.", "Go on.", "One.", "Agreed."]
    assert [messages[:-1] for messages in recorder.received["chair"]] == [["Talk."], ["Uno."], ["Go on."], ["One."]]


async def test_leader_may_come_from_a_factory_and_start_with_a_session() -> None:
    storage = InMemoryCheckpointStorage()
    begun = AgentSession(messages=[Message("user", "Be brief.")])
    leader = AgentBasedGroupChatOrchestrator(ScriptedAgent("chair", [next_is("ann"), END]), session=begun)
    result = await led(None, storage, orchestrator_agent=None, orchestrator=leader).run("Talk.", thread_id="t")
    assert texts(result.get_outputs()) == ["Agreed."]
    assert texts((await kept_by(storage, LEADER))["session"].messages)[:2] == ["Be brief.", "Talk."]
    assert begun.version == 1
    made = await led(None, orchestrator_agent=lambda: ScriptedAgent("chair", [END])).run("Talk.")
    assert texts(made.get_outputs()) == ["Agreed."]


async def test_usage_includes_the_leader() -> None:
    result = await led([next_is("bob"), END]).run("Talk.")
    assert result.usage == {"input_token_count": 3, "output_token_count": 3}


async def test_output_of_the_leader_is_not_streamed() -> None:
    stream = led([next_is("bob"), END], output_from="all").run("Talk.", stream=True)
    seen = [event async for event in stream if event.type in ("data", "output")]
    assert [event.data.text for event in seen if event.executor_id == LEADER] == ["Agreed."]
    assert {event.executor_id for event in seen} == {"bob", LEADER}


def test_participant_cannot_lead_the_chat() -> None:
    with pytest.raises(ValueError, match="Duplicate executor ID 'ann' detected"):
        led(ScriptedAgent("ann", []))


# ---------------------------------------------------------------- mistakes


async def test_unknown_speaker_is_reported_to_the_leader_which_is_asked_again() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()
    chair = recorder.agent("chair", [next_is("bobby"), next_is(None), next_is("bob"), END])
    await led(chair, storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "Agreed."]
    [_, [first], [second], _] = recorder.received["chair"]
    assert "Orchestrator agent selected unknown participant 'bobby'. Valid participants: ann, bob." in first
    assert "next_speaker must be provided" in second


async def test_invalid_decision_is_reported_to_the_leader_which_is_asked_again() -> None:
    recorder = Recorder()
    chair = recorder.agent("chair", ["Let bob speak.", {"terminate": "maybe"}, END])
    result = await led(chair).run("Talk.")
    assert texts(result.get_outputs()) == ["Agreed."]
    assert "Not a AgentOrchestrationOutput" in recorder.received["chair"][1][0]


async def test_repeated_mistakes_raise_and_the_fixed_thread_resumes(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    wrong = [next_is("ann"), *[next_is("carl")] * 5]
    with pytest.raises(InvalidSelection, match=r"Agent 'chair'.* gave 3 unusable answers.*'carl'.* resume thread 't'"):
        await led(wrong, storage, log).run("Talk.", thread_id="t")
    with pytest.raises(InvalidSelection, match="gave 3 unusable answers"):
        await led([*wrong, next_is("carl")], storage, log).run(thread_id="t")
    await led([*[None] * 7, next_is("bob"), END], storage, log).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "One.", "Uno.", "Agreed."]
    asked = [(line["agent"], line["place"]) for line in lines(log)]
    assert len(asked) == len(set(asked)), "no agent is asked twice"


async def test_unknown_speaker_can_be_fixed_by_adding_the_participant() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(InvalidSelection, match="'carl'"):
        await led([next_is("carl")] * 3, storage).run("Talk.", thread_id="t")
    team = [*duo(), ScriptedAgent("carl", ["Here I am."])]
    await led([next_is("carl"), END], storage, participants=team).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "Here I am.", "Agreed."]


@pytest.mark.parametrize(("attempts", "answers"), [(None, 1), (0, 1), (1, 2), (3, 4)])
async def test_retry_attempts_limits_how_often_the_leader_is_asked(
    attempts: int | None, answers: int, tmp_path: Path
) -> None:
    chair = ScriptedAgent("chair", [next_is("carl")] * 5, log=tmp_path / "log")
    leader = AgentBasedGroupChatOrchestrator(chair, retry_attempts=attempts)
    with pytest.raises(InvalidSelection, match=f"gave {answers} unusable answers"):
        await led(None, orchestrator_agent=None, orchestrator=leader).run("Talk.")
    assert len(lines(tmp_path / "log")) == answers


async def test_failing_model_does_not_count_as_a_wrong_answer() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(ConnectionError, match="down"):
        await led([next_is("ann"), ConnectionError("down")], storage).run("Talk.", thread_id="t")
    await led([next_is("ann"), END], storage).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "One.", "Agreed."]


# ---------------------------------------------------------------- stopped


async def test_stop_at_any_write_changes_no_result_and_repeats_no_request(tmp_path: Path) -> None:
    def build(storage: Any, log: Path) -> Workflow:
        return led([next_is("bob"), next_is("carl"), next_is("ann"), END], storage, log)

    await assert_no_request_is_repeated(build, "Talk.", tmp_path)


async def test_leader_model_uses_its_own_structured_output() -> None:
    decisions = [next_is("carl"), next_is("ann"), END]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, decisions.pop(0))])

    storage = InMemoryCheckpointStorage()
    await led(Agent(FunctionModel(answer), name="chair"), storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "One.", "Agreed."]
