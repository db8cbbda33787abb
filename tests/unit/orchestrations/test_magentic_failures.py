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
from perdure.errors import WorkflowRunnerException
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
async def test_a_judgement_of_no_use_is_sent_back_with_what_is_wrong_with_it(bad: Judgement, complaint: str) -> None:
    manager = Manager(first(bad))
    result = await team(manager=manager).run(TASK)
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]
    again = manager.heard[3]
    assert complaint in again[-1]
    assert again[-1].startswith("This cannot be used:")
    assert kinds(result).count("progress_ledger_updated") == 3, "a judgement of no use is none"


@pytest.mark.parametrize(
    "form",
    ["Here it is:\n```json\n{}\n```", "Sure! {} That is my judgement.", "{}"],
    ids=["fenced", "with words", "bare"],
)
async def test_a_judgement_is_found_in_a_text(form: str) -> None:
    rounds: list[Judgement] = [form.replace("{}", json.dumps(one)) for one in PLAIN]
    result = await team(None, rounds).run(TASK)
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]


async def test_verdicts_that_come_as_texts_are_read_as_what_they_say() -> None:
    ledger = judged("researcher", "Look.")
    ledger["is_request_satisfied"]["answer"] = "false"
    ledger["is_progress_being_made"]["answer"] = "true"
    result = await team(None, [ledger, *PLAIN[1:]]).run(TASK)
    [_, told, *_] = [one.data.content for one in result if one.type == "magentic_orchestrator"]
    assert told.is_request_satisfied.answer is False
    assert told.is_progress_being_made.answer is True


async def test_no_judgement_at_all_is_an_error_and_a_resumed_run_asks_again(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    bad = Manager(first("No.", "No!", "No!!", "Never."))
    with pytest.raises(WorkflowRunnerException, match="'manager' was asked for a progress ledger 3 times") as caught:
        await team(storage, manager=bad, log=log).run(TASK, thread_id="t")
    assert "Resume the thread" in str(caught.value)
    assert len(log.read_text().splitlines()) == 5

    with_one_more = await team(storage, manager=bad, log=log).run(thread_id="t")
    assert [one.text for one in with_one_more.get_outputs()] == ["Answer from: It is 7 metres."]
    # Facts, plan and the three bad ones were recorded: only a fourth and a fifth were asked for, and then the rest.
    assert len(log.read_text().splitlines()) == 5 + 2 + 2 + 2 + 1


async def test_a_manager_that_stays_useless_fails_each_run_after_as_many_questions(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    for asked in (5, 8, 11):
        workflow = team(storage, [["No."]], log=log)
        with pytest.raises(WorkflowRunnerException, match="3 times"):
            await workflow.run(TASK if asked == 5 else None, thread_id="t")
        assert len(log.read_text().splitlines()) == asked


async def test_a_speaker_who_is_never_on_the_team_ends_the_task_with_what_there_is() -> None:
    manager = Manager([judged("researcher", "Look."), [judged("captain")]])
    result = await team(manager=manager).run(TASK)
    assert [one.text for one in result.get_outputs()] == ["Answer from: 7 metres."]
    assert "The manager selected 'captain', which is not on the team." in warned(result)[0]
    assert sum("Judge where" in text for heard in manager.heard for text in heard) == 1 + 3


@pytest.mark.parametrize("empty", ["", "  \n"])
async def test_an_empty_plan_is_asked_for_again(empty: str) -> None:
    storage = InMemoryCheckpointStorage()
    await team(storage, manager=Manager(PLAIN, plans={1: empty})).run(TASK, thread_id="t")
    plan = (await remembered(storage, "t")).plan
    assert plan is not None
    assert "Plan 1" in plan.text


async def test_a_plan_that_stays_empty_is_an_error_and_nobody_works_by_it(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"

    def blank(messages: list[Any]) -> str:
        return "Facts 1" if "take stock" in messages[-1].text else " "

    with pytest.raises(WorkflowRunnerException, match="asked for a plan 3 times, and gave no"):
        await team(storage, manager=blank, log=log).run(TASK, thread_id="t")
    assert "researcher" not in log.read_text()

    result = await team(storage, log=log).run(thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]


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
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]
    undisturbed = tmp_path / "undisturbed"
    await team(log=undisturbed).run(TASK)
    # Only the call that failed is made again.
    assert len(log.read_text().splitlines()) == len(undisturbed.read_text().splitlines()) + 1
    assert len(before) == (6 if where == "a participant" else 7)
