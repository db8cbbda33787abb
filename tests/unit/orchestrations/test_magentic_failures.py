"""What goes wrong in a Magentic team: answers of no use, speakers that are not there, models that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.orchestrations.magentic_team import (
    PLAIN,
    TASK,
    Judgement,
    Manager,
    crew,
    judged,
    kinds,
    remembered,
    team,
    warned,
)

from perdure import InMemoryCheckpointStorage
from perdure.errors import AgentFailed
from perdure.testing.scripted import ScriptedAgent


def first(*judgements: Judgement) -> list[Any]:
    """The plain rounds, with these before the first of them is good."""
    return [[*judgements, PLAIN[0]], *PLAIN[1:]]


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("I think the researcher should go on.", "Not a ProgressAnswer"),
        ('{"is_in_loop": {"reason": "", "answer": false}}', "missing required field"),
        ({**judged(), "is_in_loop": {"reason": "", "answer": "perhaps"}}, "is_in_loop.answer"),
        (judged("captain"), "'captain' is not on the team. Choose one of: researcher, writer"),
        ("", "Not a ProgressAnswer"),
    ],
)
async def test_unusable_judgement_is_returned_with_its_problem(bad: Judgement, complaint: str) -> None:
    manager = Manager(first(bad))
    result = await team(manager=manager).run(TASK)
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]
    again = manager.received[3]
    assert complaint in again[-1]
    assert again[-1].startswith("This cannot be used:")
    assert kinds(result).count("progress_ledger_updated") == 3, "a judgement of no use is none"


@pytest.mark.parametrize(
    "form",
    ["Here it is:\n```json\n{}\n```", "Sure! {} That is my judgement.", "{}"],
    ids=["fenced", "with words", "bare"],
)
async def test_a_judgement_is_found_in_a_text(form: str) -> None:
    rounds: list[Judgement] = [form.replace("{}", json.dumps(judgement)) for judgement in PLAIN]
    result = await team(None, rounds).run(TASK)
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]


async def test_verdicts_given_as_texts_are_read_as_booleans() -> None:
    ledger = judged("researcher", "Look.")
    ledger["is_request_satisfied"]["answer"] = "false"
    ledger["is_progress_being_made"]["answer"] = "true"
    result = await team(None, [ledger, *PLAIN[1:]]).run(TASK)
    [_, progress, *_] = [event.data.content for event in result if event.type == "magentic_orchestrator"]
    assert progress.is_request_satisfied.answer is False
    assert progress.is_progress_being_made.answer is True


async def test_missing_judgement_raises_and_a_resumed_run_asks_again(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    bad = Manager(first("No.", "No!", "No!!", "Never."))
    with pytest.raises(AgentFailed, match="Agent 'manager': it was asked for a progress ledger 3 times") as caught:
        await team(storage, manager=bad, log=log).run(TASK, thread_id="t")
    assert "Resume the thread" in str(caught.value)
    assert len(log.read_text().splitlines()) == 5

    with_one_more = await team(storage, manager=bad, log=log).run(thread_id="t")
    assert [output.text for output in with_one_more.get_outputs()] == ["Answer from: It is 7 metres."]
    # Facts, plan and the three bad ones were recorded: only a fourth and a fifth were asked for, and then the rest.
    assert len(log.read_text().splitlines()) == 5 + 2 + 2 + 2 + 1


async def test_unusable_manager_fails_each_run_after_three_questions(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    for asked in (5, 8, 11):
        workflow = team(storage, [["No."]], log=log)
        with pytest.raises(AgentFailed, match="3 times"):
            await workflow.run(TASK if asked == 5 else None, thread_id="t")
        assert len(log.read_text().splitlines()) == asked


async def test_unknown_speaker_ends_the_task_with_the_existing_replies() -> None:
    manager = Manager([judged("researcher", "Look."), [judged("captain")]])
    result = await team(manager=manager).run(TASK)
    assert [output.text for output in result.get_outputs()] == ["Answer from: 7 metres."]
    assert "The manager selected 'captain', which is not on the team." in warned(result)[0]
    assert sum("Judge where" in text for texts in manager.received for text in texts) == 1 + 3


@pytest.mark.parametrize("empty", ["", "  \n"])
async def test_an_empty_plan_is_asked_for_again(empty: str) -> None:
    storage = InMemoryCheckpointStorage()
    await team(storage, manager=Manager(PLAIN, plans={1: empty})).run(TASK, thread_id="t")
    plan = (await remembered(storage, "t")).plan
    assert plan is not None
    assert "Plan 1" in plan.text


async def test_plan_that_stays_empty_is_an_error_and_starts_no_work(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"

    def blank(messages: list[Any]) -> str:
        return "Facts 1" if "take stock" in messages[-1].text else " "

    with pytest.raises(AgentFailed, match="asked for a plan 3 times, and gave no"):
        await team(storage, manager=blank, log=log).run(TASK, thread_id="t")
    assert "researcher" not in log.read_text()

    result = await team(storage, log=log).run(thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]


@pytest.mark.parametrize("where", ["the manager", "a participant"])
async def test_a_model_that_fails_leaves_the_thread_to_be_resumed(where: str, tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    failing = ScriptedAgent("writer", [ConnectionError("the model is away")], log=log)
    broken: dict[str, Any] = {"manager": Manager([*PLAIN[:2], ConnectionError("the model is away")])}
    if where == "a participant":
        broken = {"participants": [crew(log)[0], failing]}
    with pytest.raises(ConnectionError, match="away"):
        await team(storage, log=log, **broken).run(TASK, thread_id="t")
    before = log.read_text().splitlines()

    result = await team(storage, log=log).run(thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]
    undisturbed = tmp_path / "undisturbed"
    await team(log=undisturbed).run(TASK)
    # Only the call that failed is made again.
    assert len(log.read_text().splitlines()) == len(undisturbed.read_text().splitlines()) + 1
    assert len(before) == (6 if where == "a participant" else 7)
