"""assert_survives_crash: holds for workflows that keep their promises, and says where one does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

import pytest
from tests.six_methods import SixMethods
from tests.unit.testing.durable import parcels
from tests.unit.testing.flows import fan_out, nested, two_steps

from perdure import (
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    step,
    workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import JournalEntry, Lease
from perdure.stores.memory.store import MemoryStore
from perdure.testing import Ask, FakeClock, ScriptedExecutor, assert_survives_crash


class Forgetful(MemoryStore):
    """Says that it recorded, and did not."""

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        pass


def forgetful() -> StoreCheckpointStorage:
    return StoreCheckpointStorage(Forgetful())


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def interview(number: int, ctx: RunContext) -> str:
    first, second = await asyncio.gather(double(number), double(number + 1))
    ctx.set_state("sum", first + second)
    name = await ctx.request_info("who?", str)
    await ctx.sleep(3600)
    age = await ctx.request_info("how old?", int)
    return f"{name}, {age}: {await double(first + second)}"


async def test_every_write_of_a_graph_is_tried_before_and_after() -> None:
    survival = await assert_survives_crash(fan_out, "hi")
    writes = ["commit 1", "commit 2", "commit 3", "journal 1", "journal 2"]
    assert survival.points == tuple(f"{when} {write}" for write in writes for when in ("before", "after"))


async def test_a_function_workflow_with_questions_and_sleep_survives() -> None:
    clock = FakeClock()
    answers = {"who?": "Ada", "how old?": 36}
    survival = await assert_survives_crash(
        lambda storage: interview.build(storage, clock=clock), 3, answers=answers, clock=clock
    )
    assert "after journal 5" in survival.points and clock.monotonic() >= 3600


async def test_function_workflow_is_accepted_without_a_factory() -> None:
    survival = await assert_survives_crash(interview, 3)  # no answer is given: it ends where it asks
    assert "after journal 2" in survival.points


async def test_sub_workflows_survive() -> None:
    assert "after journal 1" in (await assert_survives_crash(nested, "a bcd")).points


async def test_answers_may_come_from_a_function() -> None:
    await assert_survives_crash(parcels, "hat", answers=lambda event: f"{event.data} yes")


async def test_retries_of_a_script_survive() -> None:
    clock = FakeClock()

    def make(storage: Any) -> Workflow:
        shaky = ScriptedExecutor(
            "shaky", [OSError("no"), Ask("go on?", bool)], input=str, workflow_output=bool, retry=RetryPolicy(4)
        )
        return WorkflowBuilder(name="shaky", start_executor=shaky, checkpoint_storage=storage, clock=clock).build()

    await assert_survives_crash(make, "hi", answers={"go on?": True}, clock=clock)


async def test_a_step_before_a_failed_attempt_survives_beside_a_sibling() -> None:
    clock = FakeClock()

    def make(storage: Any) -> Workflow:
        start = ScriptedExecutor("start", lambda text: text, input=str, output=str)

        @executor(retry=RetryPolicy(3), on_error="skip")
        async def failing(text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.step(str.upper, text, name="upper")
            raise OSError("always")

        quick = ScriptedExecutor("quick", ["done"], input=str, workflow_output=str)
        builder = WorkflowBuilder(name="steps", start_executor=start, checkpoint_storage=storage, clock=clock)
        return builder.add_fan_out_edges(start, [failing, quick]).build()

    await assert_survives_crash(make, "hi", clock=clock)


async def test_a_storage_of_six_methods_is_crashed_at_its_saves() -> None:
    survival = await assert_survives_crash(two_steps, "hi", storage=SixMethods)
    assert survival.points == tuple(f"{when} commit {nth}" for nth in (1, 2, 3) for when in ("before", "after"))


# ---------------------------------------------------------------- what does not survive


def counting(name: str) -> Callable[[Any], Workflow]:
    """Keeps what it counts where no checkpoint sees it."""

    def make(storage: Any) -> Workflow:
        seen: list[str] = []

        @executor
        async def first(text: str, ctx: WorkflowContext[str]) -> None:
            seen.append(text)
            await ctx.send_message(text)

        @executor
        async def second(text: str, ctx: WorkflowContext[Never, int]) -> None:
            ctx.set_state("seen", list(seen))
            await ctx.yield_output(len(seen))

        builder = WorkflowBuilder(name=name, start_executor=first, checkpoint_storage=storage)
        return builder.add_edge(first, second).build()

    return make


async def test_memory_lost_with_the_process_is_reported_with_its_place() -> None:
    with pytest.raises(AssertionError) as raised:
        await assert_survives_crash(counting("forgets"), "hi")
    text = str(raised.value)
    assert text.startswith("Workflow 'forgets' does not survive a crash after commit 2.")
    assert "at rest[0].outputs[0]: expected 1, got 0" in text
    assert 'state.seen: expected ["hi"], got []' in text
    assert "it survived 3 interruptions: before commit 1, after commit 1, before commit 2" in text


@pytest.mark.parametrize(
    ("make", "message", "who"),
    [
        (fan_out, "hi", "'left' is called 1 times in an undisturbed run; 1 of these were recorded"),
        (interview, 3, "'double' is called 2 times in an undisturbed run; 2 of these were recorded"),
        (nested, "a", r"'inner/measure/length' of child 2 is called 1 times"),
    ],
    ids=["delivery", "step of a function", "step in a child"],
)
async def test_recorded_work_that_is_done_again_is_reported_by_name(make: Any, message: Any, who: str) -> None:
    with pytest.raises(AssertionError, match=who):
        await assert_survives_crash(make, message, storage=forgetful)


async def test_a_resume_that_fails_is_reported_with_its_error() -> None:
    lives: list[int] = []

    def make(storage: Any) -> Workflow:
        lives.append(len(lives))

        @executor
        async def once(text: str, ctx: WorkflowContext[Never, str]) -> None:
            if len(lives) > 2:  # the undisturbed run, and the first that crashed
                raise RuntimeError("not a second time")
            await ctx.yield_output(text)

        return WorkflowBuilder(name="once", start_executor=once, checkpoint_storage=storage).build()

    with pytest.raises(AssertionError, match=r"a crash before commit 1.*\n  it raised RuntimeError: not a second time"):
        await assert_survives_crash(make, "hi")


async def test_an_undisturbed_run_that_fails_raises_its_own_error() -> None:
    def make(storage: Any) -> Workflow:
        failing = ScriptedExecutor("failing", [OSError("always")], input=str)
        return WorkflowBuilder(start_executor=failing, checkpoint_storage=storage).build()

    with pytest.raises(OSError, match="always") as raised:
        await assert_survives_crash(make, "hi")
    assert raised.value.__notes__ == ["This was the undisturbed run: nothing has crashed yet."]


async def test_storage_object_instead_of_a_factory_is_refused() -> None:
    with pytest.raises(TypeError, match="makes an empty storage"):
        await assert_survives_crash(two_steps, "hi", storage=InMemoryCheckpointStorage())  # type: ignore[arg-type]  # as a user would


async def test_something_that_makes_no_workflow_is_refused() -> None:
    with pytest.raises(TypeError, match="return a Workflow, got None"):
        await assert_survives_crash(lambda storage: None, "hi")  # type: ignore[arg-type,return-value]  # as a user would
