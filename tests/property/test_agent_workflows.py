"""Generated workflows of agents come to what a plain interpreter of their definitions comes to."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import given, settings, strategies as st
from tests.chance import SOAK
from tests.property.agent_workflow_driving import taken_to_its_end
from tests.property.agent_workflow_model import Expected, expected_of
from tests.property.agent_workflow_plans import Plan, a_plan, built

from perdure.agent_workflow import events as told
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing import FakeClock

EXECUTION = "one"
FEW = settings() if SOAK else settings(max_examples=20)


def plans(**options: Any) -> st.SearchStrategy[Plan]:
    """By a seed, so that they are as unlike each other as can be; what is found is made smaller by the size."""
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(
        lambda seed, most: a_plan(random.Random(seed), most=most, delay=60.0, **options), seeds, st.integers(2, 8)
    )


class Broken(Exception):
    """Somebody has to mend something before it goes on."""


def _break() -> None:
    raise Broken


class Watched:
    """A planned workflow, run to its end, and what was seen of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.calls: Counter[str] = Counter()
        self.events: list[Any] = []
        self.is_mended = not plan.is_stopping
        self._storage = InMemoryCheckpointStorage()
        self._clock = FakeClock()

    async def run(self) -> WorkflowResult:
        """Until it ends. Raises Broken where somebody would have to mend something."""
        workflow = built(
            self.plan,
            lambda one: one.with_checkpointing().with_workflow_store(self._storage).with_clock(self._clock),
            is_mended=lambda: self.is_mended,
            log=lambda call: self.calls.update([call["agent"]]),
        )
        workflow.subscribe_any(self.events.append)
        async with self._clock.skipping():
            return await taken_to_its_end(workflow, self.plan, EXECUTION, _break)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


@given(plans(stops=0))
async def test_an_execution_ends_as_the_definition_says(plan: Plan) -> None:
    seen, expected = Watched(plan), expected_of(plan)

    result = await seen.run()

    assert result.state == "completed"
    assert (result.outputs, result.final_answer) == (expected.outputs, expected.final_answer)
    assert (result.success, result.error is None) == (expected.success, expected.success)
    assert_asked(seen, expected)
    assert_told(seen, expected)


def assert_asked(seen: Watched, expected: Expected, *but: str) -> None:
    """Each as often as the interpreter says. A template asks for `message`, which any node may give: who had given it
    by then is not the interpreter's to know, so in a loop its node may be asked once a pass, though it would say the
    same."""
    for node in seen.plan.nodes:
        asked, wanted = seen.calls[node.id], expected.calls[node.id]
        if node.id in but:
            continue
        if node.has_template and seen.plan.converges:
            assert min(wanted, 1) <= asked <= max(wanted, expected.passes), node.id
        else:
            assert asked == wanted, node.id


def assert_told(seen: Watched, expected: Expected) -> None:
    """What was told adds up to how it ended."""
    last: dict[str, str] = {}
    for event in seen.events:
        if isinstance(event, told.WorkflowAgentSkippedEvent):
            last[event.agent_id] = "skipped"
        elif isinstance(event, told.WorkflowAgentCompletedEvent):
            last[event.agent_id] = "done" if event.success else "failed"
    assert last == expected.nodes
    [ended] = seen.of(told.WorkflowCompletedEvent)
    assert ended.successful_nodes == expected.succeeded
    not_failed = [name for name, status in expected.nodes.items() if status != "failed"]
    assert ended.skipped_nodes == len(not_failed) - expected.succeeded
    assert (ended.success, ended.failed_nodes == 0) == (expected.success, expected.success)
    limits = [one for one in seen.of(told.WorkflowDiagnosticEvent) if "max_iterations" in one.message]
    assert len(limits) == (expected.left_by == "limit")


@FEW
@given(plans(stops=0.6))
async def test_an_execution_that_stopped_ends_the_same_once_what_failed_is_mended(plan: Plan) -> None:
    seen, expected = Watched(plan), expected_of(plan)
    broken = [one.id for one in plan.nodes if one.fails == "at first"]
    with suppress(Broken):
        await seen.run()
        assert not any(expected.calls[name] for name in broken), "it ended although a node that it needs is broken"
    seen.is_mended = True

    # A failure that was recorded beside the one that stopped it is told by the resume; the next one tries again.
    with suppress(Broken):
        await seen.run()
    result = await seen.run()

    assert (result.outputs, result.final_answer) == (expected.outputs, expected.final_answer)
    assert result.success == expected.success
    # Whoever was asked before is not asked again, but for those who failed.
    assert_asked(seen, expected, *broken)
