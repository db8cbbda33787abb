"""RecordedWork: what the writes of a store say about what is not to be done again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.unit.testing.flows import fan_out, nested, strip

from perdure import InMemoryCheckpointStorage, RetryPolicy, Workflow, WorkflowBuilder, WorkflowContext, executor
from perdure.testing import FakeClock, Faults, ProcessGone
from perdure.testing.recorded import Doing, RecordedWork


async def recorded(make: Any, message: str, faults: Faults) -> Counter[Doing]:
    """After a run of the workflow, or after its crash."""
    workflow: Workflow = make(faults.wrap(InMemoryCheckpointStorage()))
    work = RecordedWork(workflow.graph)
    faults.watch(work.take)
    try:
        await workflow.run(message)
    except ProcessGone:
        pass
    return work.counts


async def test_recorded_counts_each_piece_of_work_once() -> None:
    done = await recorded(fan_out, "hi", Faults())
    assert done == {("start", None): 1, ("left", None): 1, ("right", None): 1, ("right/strip", None): 1}


async def test_children_are_distinguished() -> None:
    done = await recorded(nested, "a bcd", Faults())
    [first, second] = [child_id for path, child_id in done if path == "inner/measure/length"]
    assert first != second
    assert done["inner/measure", first] == done["inner/measure", second] == 1
    assert done["inner", None] == done["tell", None] == 2


@pytest.mark.parametrize(
    ("nth", "when", "more"),
    [
        (1, "before", {}),
        (1, "after", {("left", None): 1}),
        (2, "before", {("left", None): 1}),
        (2, "after", {("left", None): 1, ("right/strip", None): 1}),
    ],
)
async def test_recorded_work_in_mid_superstep_is_that_of_the_journal(nth: int, when: Any, more: Any) -> None:
    faults = Faults()
    faults.crash("journal", nth=nth, when=when)
    assert await recorded(fan_out, "hi", faults) == {("start", None): 1, **more}


async def test_a_step_whose_failure_was_taken_back_is_to_be_called_again() -> None:
    clock = FakeClock()

    async def fail(text: str) -> str:
        raise OSError(text)

    def make(storage: Any) -> Workflow:
        @executor(retry=RetryPolicy(2))
        async def failing(text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.step(strip, text)
            await ctx.step(fail, text)

        return WorkflowBuilder(start_executor=failing, checkpoint_storage=storage, clock=clock).build()

    faults = Faults()
    faults.crash("commit", nth=2)
    assert await recorded(make, "hi", faults) == {("failing/strip", None): 1}
