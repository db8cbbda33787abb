"""A group chat that is led by an agent: what it is told, what it decides, and what becomes of its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.unit.orchestrations.teams import Hearing, assert_nothing_is_said_twice, kept_by, lines, texts

from perdure import AgentSession, InMemoryCheckpointStorage, Message, Workflow
from perdure.agents.pydantic.agent import Agent
from perdure.errors import InvalidSelection
from perdure.orchestrations.group_chat.builder import GroupChatBuilder
from perdure.orchestrations.group_chat.orchestrator import AgentBasedGroupChatOrchestrator
from perdure.orchestrations.group_chat.types import OrchestrationState
from perdure.testing.scripted import ScriptedAgent

LEADER = GroupChatBuilder.DEFAULT_ORCHESTRATOR_ID


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


# ---------------------------------------------------------------- what it decides


async def test_it_names_the_speakers_and_ends_the_chat_with_its_words() -> None:
    storage = InMemoryCheckpointStorage()
    result = await led([next_is("bob"), next_is("ann"), END], storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "One.", "Agreed."]
    assert [one.messages for one in result.get_outputs()] == [(Message("assistant", "Agreed.", "chair"),)]


async def test_it_may_answer_in_the_text_of_a_model_that_knows_no_structured_output() -> None:
    storage = InMemoryCheckpointStorage()
    fenced = f"I think it is ann.\n```json\n{json.dumps(next_is('ann'))}\n```"
    await led([json.dumps(next_is("bob")), fenced, json.dumps(END)], storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "One.", "Agreed."]


async def test_it_need_not_say_anything_when_it_ends_the_chat() -> None:
    result = await led([{"terminate": True, "reason": ""}]).run("Talk.")
    assert texts(result.get_outputs()) == ["The group chat was ended by its orchestrator."]


async def test_it_is_told_only_what_is_new_and_who_may_speak() -> None:
    hearing = Hearing()
    await led(hearing.agent("chair", [next_is("bob"), next_is("ann"), END])).run("Talk.")
    told = hearing.told["chair"]
    assert [one[:-1] for one in told] == [["Talk."], ["Uno."], ["One."]]
    for *_, instruction in told:
        assert "ann: knows the sea\nbob: " in instruction
        assert '"next_speaker"' in instruction


async def test_limits_hold_for_it_too() -> None:
    result = await led([next_is("bob")] * 2, max_rounds=2).run("Talk.")
    assert texts(result.get_outputs()) == ["The group chat has reached the maximum number of rounds."]
    result = await led([next_is("bob")], termination_condition=lambda messages: len(messages) == 2).run("Talk.")
    assert texts(result.get_outputs()) == ["The group chat has reached its termination condition."]


async def test_a_second_run_goes_on_in_its_session() -> None:
    hearing, storage = Hearing(), InMemoryCheckpointStorage()
    replies = [next_is("bob"), END, next_is("ann"), END]
    for message in ("Talk.", "Go on."):
        await led(hearing.agent("chair", replies), storage).run(message, thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "Agreed.", "Go on.", "One.", "Agreed."]
    assert [one[:-1] for one in hearing.told["chair"]] == [["Talk."], ["Uno."], ["Go on."], ["One."]]


async def test_it_may_be_made_by_a_factory_and_begin_with_a_session() -> None:
    storage = InMemoryCheckpointStorage()
    begun = AgentSession(messages=[Message("user", "Be brief.")])
    leader = AgentBasedGroupChatOrchestrator(ScriptedAgent("chair", [next_is("ann"), END]), session=begun)
    result = await led(None, storage, orchestrator_agent=None, orchestrator=leader).run("Talk.", thread_id="t")
    assert texts(result.get_outputs()) == ["Agreed."]
    assert texts((await kept_by(storage, LEADER))["session"].messages)[:2] == ["Be brief.", "Talk."]
    assert begun.version == 1
    made = await led(None, orchestrator_agent=lambda: ScriptedAgent("chair", [END])).run("Talk.")
    assert texts(made.get_outputs()) == ["Agreed."]


async def test_its_tokens_count_too() -> None:
    result = await led([next_is("bob"), END]).run("Talk.")
    assert result.usage == {"input_token_count": 3, "output_token_count": 3}


async def test_what_it_says_to_itself_is_not_streamed() -> None:
    seen = [event async for event in led([next_is("bob"), END]).run("Talk.", stream=True) if event.type == "data"]
    assert {event.executor_id for event in seen} == {"bob"}


def test_one_who_takes_part_cannot_lead() -> None:
    with pytest.raises(ValueError, match="'ann' cannot lead the chat and take part in it"):
        led(ScriptedAgent("ann", []))


# ---------------------------------------------------------------- mistakes


async def test_a_speaker_who_takes_no_part_is_told_to_it_and_it_is_asked_again() -> None:
    hearing, storage = Hearing(), InMemoryCheckpointStorage()
    chair = hearing.agent("chair", [next_is("bobby"), next_is(None), next_is("bob"), END])
    await led(chair, storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "Uno.", "Agreed."]
    [_, [first], [second], _] = hearing.told["chair"]
    assert "next_speaker is 'bobby', which is not a participant. Participants: ann, bob." in first
    assert "next_speaker is None" in second


async def test_an_answer_that_is_no_decision_is_told_to_it_and_it_is_asked_again() -> None:
    hearing = Hearing()
    chair = hearing.agent("chair", ["Let bob speak.", {"terminate": "maybe"}, END])
    result = await led(chair).run("Talk.")
    assert texts(result.get_outputs()) == ["Agreed."]
    assert "Not a AgentOrchestrationOutput" in hearing.told["chair"][1][0]


async def test_after_some_tries_it_is_an_error_and_the_thread_goes_on_once_it_is_mended(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    wrong = [next_is("ann"), *[next_is("carl")] * 5]
    with pytest.raises(InvalidSelection, match=r"Agent 'chair'.* gave 3 unusable answers.*'carl'.* resume thread 't'"):
        await led(wrong, storage, log).run("Talk.", thread_id="t")
    with pytest.raises(InvalidSelection, match="gave 3 unusable answers"):
        await led([*wrong, next_is("carl")], storage, log).run(thread_id="t")
    await led([*[None] * 7, next_is("bob"), END], storage, log).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "One.", "Uno.", "Agreed."]
    asked = [(one["agent"], one["place"]) for one in lines(log)]
    assert len(asked) == len(set(asked)), "nobody was asked twice"


async def test_the_mistake_may_also_be_mended_by_one_who_joins_the_team() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(InvalidSelection, match="'carl'"):
        await led([next_is("carl")] * 3, storage).run("Talk.", thread_id="t")
    team = [*duo(), ScriptedAgent("carl", ["Here I am."])]
    await led([next_is("carl"), END], storage, participants=team).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "Here I am.", "Agreed."]


@pytest.mark.parametrize(("attempts", "answers"), [(None, 1), (0, 1), (1, 2), (3, 4)])
async def test_how_often_it_is_asked_again_can_be_chosen(attempts: int | None, answers: int, tmp_path: Path) -> None:
    chair = ScriptedAgent("chair", [next_is("carl")] * 5, log=tmp_path / "log")
    leader = AgentBasedGroupChatOrchestrator(chair, retry_attempts=attempts)
    with pytest.raises(InvalidSelection, match=f"gave {answers} unusable answers"):
        await led(None, orchestrator_agent=None, orchestrator=leader).run("Talk.")
    assert len(lines(tmp_path / "log")) == answers


async def test_a_model_that_fails_is_no_wrong_answer() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(ConnectionError, match="down"):
        await led([next_is("ann"), ConnectionError("down")], storage).run("Talk.", thread_id="t")
    await led([next_is("ann"), END], storage).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "One.", "Agreed."]


# ---------------------------------------------------------------- stopped


async def test_stopped_anywhere_it_comes_to_the_same_end_and_asks_no_model_twice(tmp_path: Path) -> None:
    def build(storage: Any, log: Path) -> Workflow:
        return led([next_is("bob"), next_is("carl"), next_is("ann"), END], storage, log)

    await assert_nothing_is_said_twice(build, "Talk.", tmp_path)


async def test_a_model_leads_by_structured_output_of_its_own_kind() -> None:
    decisions = [next_is("carl"), next_is("ann"), END]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, decisions.pop(0))])

    storage = InMemoryCheckpointStorage()
    await led(Agent(FunctionModel(answer), name="chair"), storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "One.", "Agreed."]
