"""MagenticBuilder: the options that it rejects, and custom managers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.orchestrations.magentic_team import PLAIN, TASK, Manager, crew, kinds, remembered, team

from perdure import InMemoryCheckpointStorage
from perdure.agents.conversation.message import Message
from perdure.errors import DuplicateExecutorId, WorkflowRunnerException
from perdure.orchestrations.magentic import (
    MagenticContext,
    MagenticManagerBase,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
)
from perdure.orchestrations.magentic_builder import MagenticBuilder
from perdure.orchestrations.magentic_manager import DEFAULTS, StandardMagenticManager
from perdure.testing import Faults, ProcessGone
from perdure.testing.scripted import ScriptedAgent


class Foreman(MagenticManagerBase):
    """Has each of the team speak once, and counts what it did."""

    def __init__(self, plans: list[str] | None = None, **limits: Any) -> None:
        super().__init__(**limits)
        self.plans = plans if plans is not None else []
        """In all threads."""
        self.judged = 0
        """In this thread."""

    async def plan(self, magentic_context: MagenticContext) -> Message:
        self.plans.append(magentic_context.task)
        magentic_context.chat_history.append(Message("assistant", "I know this one.", "foreman"))
        return Message("assistant", f"Everybody works on {magentic_context.task}", "foreman")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        return await self.plan(magentic_context)

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        await asyncio.sleep(0)
        names = list(magentic_context.participant_descriptions)
        place, self.judged = self.judged, self.judged + 1
        is_done = place >= len(names)
        answers: list[str | bool] = [is_done, False, True, names[min(place, len(names) - 1)], "Do your part."]
        return MagenticProgressLedger(*(MagenticProgressLedgerItem("", answer) for answer in answers))

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        return Message("assistant", f"{magentic_context.task}: judged {self.judged} times", "foreman")

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {"judged": self.judged}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.judged = state["judged"]


def with_foreman(foreman: MagenticManagerBase, storage: Any = None, **options: Any) -> Any:
    return MagenticBuilder(participants=crew(), manager=foreman, checkpoint_storage=storage, **options).build()


async def test_custom_manager_leads_the_team_and_keeps_state_by_thread() -> None:
    foreman, storage = Foreman(), InMemoryCheckpointStorage()
    workflow = with_foreman(foreman, storage)
    results = await asyncio.gather(*(workflow.run(task, thread_id=task) for task in ("one", "two", "three")))
    assert [result.get_outputs()[0].text for result in results] == [
        f"{task}: judged 3 times" for task in ("one", "two", "three")
    ]
    assert foreman.judged == 3, "it serves the first thread itself"
    history = (await remembered(storage, "one")).context.chat_history
    assert [message.text for message in history[:2]] == ["one", "Everybody works on one"], "its context is a copy"


async def test_plan_is_not_made_again_after_its_review() -> None:
    storage, plans = InMemoryCheckpointStorage(), list[str]()
    paused = await with_foreman(Foreman(plans), storage, enable_plan_review=True).run("one", thread_id="t")
    [asked] = paused.get_request_info_events()
    restarted = with_foreman(Foreman(plans), storage, enable_plan_review=True)
    result = await restarted.run(thread_id="t", responses={asked.request_id: asked.data.approve()})
    assert result.get_outputs()[0].text == "one: judged 3 times"
    assert plans == ["one"]


async def test_work_of_a_custom_manager_is_not_repeated_after_a_crash() -> None:
    storage, plans, faults = InMemoryCheckpointStorage(), list[str](), Faults()
    faults.crash("journal", nth=2, when="before")  # its plan is recorded, its first judgement is not
    with pytest.raises(ProcessGone):
        await with_foreman(Foreman(plans), faults.wrap(storage)).run("one", thread_id="t")
    result = await with_foreman(Foreman(plans), storage).run(thread_id="t", takeover=True)
    assert result.get_outputs()[0].text == "one: judged 3 times"
    assert plans == ["one"]


@pytest.mark.parametrize("thread_id", ["t", None])
async def test_state_left_by_a_failed_manager_call_is_discarded(thread_id: str | None) -> None:
    failures = [ConnectionError("the model is away")]

    class Flaky(Foreman):
        async def plan(self, magentic_context: MagenticContext) -> Message:
            if failures:
                self.judged = 100
                raise failures.pop()
            return await super().plan(magentic_context)

    workflow = with_foreman(Flaky(), InMemoryCheckpointStorage())
    with pytest.raises(ConnectionError, match="away"):
        await workflow.run("one", thread_id=thread_id)
    result = await workflow.run(thread_id=thread_id)
    assert result.get_outputs()[0].text == "one: judged 3 times"


async def test_first_thread_uses_the_manager_itself_and_others_copies() -> None:
    foreman = Foreman()
    workflow = with_foreman(foreman)
    await workflow.run("one")
    assert foreman.judged == 3
    result = await workflow.run("two", thread_id="t")
    assert result.get_outputs()[0].text == "two: judged 3 times"
    assert foreman.judged == 3


@pytest.mark.parametrize(
    ("plan", "error"), [("no message", TypeError), (Message("assistant", " "), WorkflowRunnerException)]
)
async def test_invalid_plan_names_the_manager_and_a_fixed_manager_resumes(plan: Any, error: type[Exception]) -> None:
    class Lazy(Foreman):
        async def plan(self, magentic_context: MagenticContext) -> Message:
            return plan  # type: ignore[no-any-return]

    storage = InMemoryCheckpointStorage()
    with pytest.raises(error, match=r"Lazy\.plan returned"):
        await with_foreman(Lazy(), storage).run("one", thread_id="t")
    result = await with_foreman(Foreman(), storage).run(thread_id="t")
    assert result.get_outputs()[0].text == "one: judged 3 times"


@pytest.mark.parametrize(
    "options",
    [
        {"manager": Foreman()},
        {"manager_factory": Foreman},
        {"manager_agent": ScriptedAgent("manager", Manager(PLAIN))},
        {"manager_agent_factory": lambda: ScriptedAgent("manager", Manager(PLAIN))},
        {"manager": StandardMagenticManager(ScriptedAgent("manager", Manager(PLAIN)))},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_manager_can_be_passed_in_each_of_four_ways(options: dict[str, Any]) -> None:
    result = await MagenticBuilder(participants=crew(), **options).build().run(TASK)
    assert kinds(result) == ["plan_created", *["progress_ledger_updated"] * 3]


def an_agent() -> ScriptedAgent:
    return ScriptedAgent("manager", ["."])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "No manager configured. Pass one of manager, manager_agent, manager_factory"),
        (
            {"manager": Foreman(), "manager_agent": an_agent()},
            ValueError,
            "must be provided, got manager and manager_agent",
        ),
        ({"manager": an_agent()}, TypeError, "manager= expects a MagenticManagerBase"),
        ({"manager_agent": "gpt"}, TypeError, "manager_agent= expects an agent"),
        ({"manager_factory": Foreman()}, TypeError, "manager_factory= expects a function"),
        ({"manager_factory": an_agent}, TypeError, "A manager is a MagenticManagerBase"),
        ({"manager_agent_factory": dict}, TypeError, "manager_agent_factory= expects an agent"),
        ({"manager_agent": an_agent(), "max_round_count": 0}, ValueError, "max_round_count is a number of at least 1"),
        ({"manager_agent": an_agent(), "max_reset_count": -1}, ValueError, "max_reset_count is a number of at least 0"),
        ({"manager_agent": an_agent(), "max_stall_count": 1.5}, ValueError, "max_stall_count is a number"),
        ({"manager_agent": an_agent(), "task_ledger": "plan"}, TypeError, "task_ledger is a MagenticTaskLedger"),
        ({"manager_agent": an_agent(), "final_answer_prompt": "{tsk}"}, ValueError, "KeyError: 'tsk'.*may name {task}"),
        ({"manager_agent": an_agent(), "progress_ledger_prompt": '{"a": 1}'}, ValueError, "written twice"),
        ({"manager_agent": an_agent(), "task_ledger_plan_prompt": 5}, TypeError, "task_ledger_plan_prompt is a text"),
        ({"manager_agent": an_agent(), "participants": []}, ValueError, "participants cannot be empty"),
        ({"manager_agent": an_agent(), "participants": [*crew(), crew()[0]]}, DuplicateExecutorId, "researcher"),
        ({"manager_agent": an_agent(), "output_from": ["captain"]}, ValueError, "captain"),
        ({"manager_agent": an_agent(), "name": ""}, ValueError, "name"),
    ],
)
def test_invalid_options_are_rejected_at_build(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MagenticBuilder(**{"participants": crew(), **options}).build()


def test_options_of_an_agent_beside_a_manager_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    MagenticBuilder(participants=crew(), manager=Foreman(), max_round_count=5, final_answer_prompt="").build()
    [record] = caplog.records
    assert "ignores max_round_count, final_answer_prompt: a manager has its own" in record.message


def test_a_participant_with_the_name_of_the_orchestrator_is_rejected() -> None:
    with pytest.raises(DuplicateExecutorId):
        team(participants=[ScriptedAgent("magentic_orchestrator", [""])])


async def test_every_prompt_can_be_replaced() -> None:
    prompts: list[str] = []
    own = Manager(PLAIN)

    def script(messages: list[Message]) -> Any:
        prompts.append(messages[-1].text)
        if "Own full" in messages[-1].text:
            raise AssertionError("the full text goes to the team, not to the manager")
        return own(messages)

    # Ours with a mark before it, so that the script knows what it is asked for.
    marked: dict[str, Any] = {name: f"Own {name}\n{text}" for name, text in DEFAULTS.items()}
    storage = InMemoryCheckpointStorage()
    workflow = team(storage, manager=script, enable_plan_review=True, **marked)
    paused = await workflow.run(TASK, thread_id="t")
    [asked] = paused.get_request_info_events()
    again = await workflow.run(thread_id="t", responses={asked.request_id: asked.data.revise("Shorter.")})
    [asked] = again.get_request_info_events()
    assert asked.data.plan.text.startswith("Own task_ledger_full_prompt")
    await workflow.run(thread_id="t", responses={asked.request_id: asked.data.approve()})
    used = {text.splitlines()[0].removeprefix("Own ") for text in prompts}
    assert used == set(DEFAULTS) - {"task_ledger_full_prompt"}


def test_a_builder_makes_workflows_that_share_nothing_but_their_name() -> None:
    made: list[Foreman] = []

    def make() -> Foreman:
        made.append(Foreman())
        return made[-1]

    builder = MagenticBuilder(participants=crew(), manager_factory=make, name="tide")
    first, second = builder.build(), builder.build()
    assert first.name == second.name == "tide"
    assert first is not second
    assert len(made) == 2
