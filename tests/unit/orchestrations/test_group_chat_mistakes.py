"""Mistakes of those who build or lead a group chat: a clear error, and a thread that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.orchestrations.chats import LEADER, LONG_ENOUGH, AsksTheShortest, chat, conversation, in_turn, trio

from perdure import InMemoryCheckpointStorage, Message
from perdure.errors import InvalidSelection
from perdure.orchestrations.group_chat import BaseGroupChatOrchestrator, GroupChatState
from perdure.orchestrations.group_chat_builder import GroupChatBuilder
from perdure.testing.scripted import ScriptedAgent


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wrong", ["anne", None, 3])
async def test_unknown_speaker_raises_and_the_fixed_thread_resumes(wrong: Any, is_async: bool, tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"

    def choosing(second: Any) -> Any:
        def choose(state: GroupChatState) -> Any:
            return second if state.current_round == 1 else in_turn(state)

        async def choose_later(state: GroupChatState) -> Any:
            return choose(state)

        return choose_later if is_async else choose

    with pytest.raises(InvalidSelection, match=f"returned unknown participant {wrong!r} .*resume thread 't'"):
        await chat(storage, log, selection_func=choosing(wrong)).run("Talk.", thread_id="t")
    await chat(storage, log, selection_func=choosing("cy")).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", "cy 1.", "cy 2.", "ann 2.", LONG_ENOUGH]
    assert len(log.read_text().splitlines()) == 4


async def test_condition_that_raises_leaves_the_thread_resumable() -> None:
    storage = InMemoryCheckpointStorage()

    def broken(messages: list[Message]) -> bool:
        return bool(1 / (2 - len(messages)))

    with pytest.raises(ZeroDivisionError):
        await chat(storage, termination_condition=lambda messages: len(messages) == 2 and broken(messages)).run(
            "Talk.", thread_id="t"
        )
    await chat(storage, max_rounds=2).run(thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", "bob 1.", LONG_ENOUGH]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"selection_func": None}, "No orchestrator has been configured"),
        ({"orchestrator_agent": ScriptedAgent("led", [])}, "got 2 of them"),
        ({"selection_func": "ann"}, "a function of the GroupChatState, got 'ann'"),
        ({"participants": None}, "Either participants or participant_factories must be provided"),
        ({"participants": []}, "participants cannot be empty"),
        ({"max_rounds": 0}, "at least 1, or None, got 0"),
        ({"max_rounds": "many"}, "at least 1, or None, got 'many'"),
        ({"termination_condition": "later"}, "a function of the conversation, got 'later'"),
        ({"participants": [ScriptedAgent("a", []), ScriptedAgent("a", [])]}, "Duplicate participant name 'a' detected"),
        ({"participants": [ScriptedAgent(LEADER, [])]}, f"ID '{LEADER}'"),
        ({"output_from": ["dora"]}, "Unknown output participant 'dora'"),
        ({"selection_func": None, "orchestrator": AsksTheShortest("")}, "belong to AsksTheShortest"),
        ({"selection_func": None, "orchestrator": "ann"}, "must return Agent or BaseGroupChatOrchestrator"),
        ({"selection_func": None, "orchestrator": trio}, "must return Agent or BaseGroupChatOrchestrator"),
        ({"selection_func": None, "orchestrator_agent": "ann"}, "must return Agent or BaseGroupChatOrchestrator"),
        ({"selection_func": None, "orchestrator_agent": trio}, "must return Agent or BaseGroupChatOrchestrator"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint):
        chat(**options)


def test_participants_and_factories_together_are_rejected() -> None:
    with pytest.raises(ValueError, match="Cannot provide both participants and participant_factories"):
        GroupChatBuilder(participants=trio(), participant_factories=[trio], selection_func=in_turn)


async def test_orchestrator_that_decides_nothing_raises_a_clear_error() -> None:
    class Silent(BaseGroupChatOrchestrator):
        async def decide(self, state: GroupChatState, ctx: Any) -> Any:
            return None

    builder = GroupChatBuilder(participants=[ScriptedAgent("ann", ["Hi."])], orchestrator=Silent())
    with pytest.raises(InvalidSelection, match=r"Silent\.decide returned None, expected an AgentOrchestrationOutput"):
        await builder.build().run("Talk.")
