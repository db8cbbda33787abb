"""A function workflow whose function, steps and types are called otherwise takes what the old one recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.promises.changing import Case, Ticket, Version, falls_asleep, first, resumes
from tests.promises.stages import Does
from tests.promises.test_change_of_values import rename_ticket

from perdure import FunctionalWorkflow, RunContext, StorageFailed, Workflow, step, workflow
from perdure.checkpoints.migration.stored_form import StoredForm
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit


class Desk:
    """Two versions of a function workflow, and what their steps did."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def before(self) -> FunctionalWorkflow[Any, Any]:
        calls = self.calls

        @step
        async def classify(work: Ticket) -> Ticket:
            calls.append(f"classify {work.text}")
            return Ticket(f"{work.text} is hard")

        @workflow(name="triage")
        async def triage(ticket: Ticket, ctx: RunContext) -> str:
            result = await classify(ticket)
            answer = await ctx.request_info(result, Ticket, request_id="really?")
            return f"{result.text}, {answer.text}"

        return triage

    def after(self) -> FunctionalWorkflow[Any, Any]:
        calls = self.calls

        @step
        async def assess(work: Case) -> Case:
            calls.append(f"assess {work.text}")
            return Case(f"{work.text} is easy")

        @workflow(name="triage", migrations=[renamed])
        async def sort_out(case: Case, ctx: RunContext) -> str:
            result = await assess(case)
            answer = await ctx.request_info(result, Case, request_id="really?")
            return f"{result.text}, {answer.text}"

        return sort_out


def renamed(stored: StoredForm) -> None:
    stored.rename_type(f"{__name__}:Desk.before.<locals>.triage", f"{__name__}:Desk.after.<locals>.sort_out")
    stored.rename_type("shop:Ticket", Case)
    stored.rename_step("classify", "assess")


async def test_waiting_function_continues_under_new_names(any_storage: Any) -> None:
    desk = Desk()
    await desk.before().build(any_storage).run(Ticket("it"), thread_id="t")
    answered = {"really?": Case("indeed")}
    result = await desk.after().build(any_storage).run(responses=answered, thread_id="t")
    assert result.get_outputs() == ["it is hard, indeed"]
    assert desk.calls == ["classify it"]
    warnings = [event.data for event in result if event.type == "warning"]
    assert warnings[0] == "Migrations were applied to the checkpoint: renamed."


async def test_renamed_function_finds_the_steps_in_its_journal(storage: StoreCheckpointStorage) -> None:
    """It was stopped after a step, before anything else was committed."""
    desk = Desk()
    write = storage.store.commit
    entered = 0

    async def only_the_entry(commit: Commit) -> None:
        nonlocal entered
        entered += 1
        if entered > 1:
            raise OSError("the disk is gone")
        await write(commit)

    storage.store.commit = only_the_entry  # type: ignore[method-assign]  # a tap on the real method
    with pytest.raises(StorageFailed, match="the disk is gone"):
        await desk.before().build(storage).run(Ticket("it"), thread_id="t")
    storage.store.commit = write  # type: ignore[method-assign]  # a tap on the real method

    changed = desk.after().build(storage)
    await changed.run(thread_id="t")
    result = await changed.run(responses={"really?": Case("indeed")}, thread_id="t")
    assert result.get_outputs() == ["it is hard, indeed"]
    assert desk.calls == ["classify it"]


@dataclass
class Paper:
    """What a third version calls it."""

    text: str


Paper.__module__ = "shop"


def rename_case(stored: StoredForm) -> None:
    stored.rename_type("shop:Case", Paper)


async def test_step_is_found_after_its_argument_type_is_renamed_twice(any_storage: Any) -> None:
    """Also what was recorded under the name in between. Each version is stopped in a sleep."""
    calls: list[str] = []

    async def note(work: Any) -> None:
        calls.append(work.text)

    def noting(version: Version) -> Workflow:
        async def act(message: Any, ctx: Any) -> None:
            await ctx.step(note, message)
            for _ in range(3):
                await ctx.sleep(60)
                await ctx.step(note, version.kind("more"))
            await ctx.yield_output(type(message).__name__)

        return version.start(Does("notes", act), any_storage).build()

    oldest = first()
    middle = Version(Case, "", oldest.stage, oldest.clock, [rename_ticket])
    newest = Version(Paper, "", oldest.stage, oldest.clock, [rename_ticket, rename_case])
    await falls_asleep(oldest, noting(oldest))
    for version in (middle, newest):
        version.clock.advance(60)
        await falls_asleep(version, noting(version), resumes)
    oldest.clock.advance(60)
    result = await resumes(newest, noting(newest))
    assert result.get_outputs() == ["Paper"]
    assert calls == ["x", "more", "more", "more"]
