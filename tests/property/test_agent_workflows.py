"""Generated workflows of agents come to what a plain interpreter of their definitions comes to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, strategies as st
from tests.property.agent_workflow_driving import taken_to_its_end
from tests.property.agent_workflow_model import Expected, expected_of
from tests.property.agent_workflow_plans import Plan, a_plan, built

from holdfast.orchestrations.agent_workflow import events as told
from holdfast.orchestrations.agent_workflow.result import WorkflowResult
from holdfast.testing import FakeClock

PLANS = st.randoms(use_true_random=False).map(lambda chance: a_plan(chance, stops=False, delay=60.0))
EXECUTION = "one"


class Watched:
    """A planned workflow, run to its end, and what was seen of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.calls: Counter[str] = Counter()
        self.events: list[Any] = []

    async def run(self) -> WorkflowResult:
        clock = FakeClock()
        workflow = built(
            self.plan,
            lambda one: one.with_checkpointing().with_in_memory_workflow_store().with_clock(clock),
            log=lambda call: self.calls.update([call["agent"]]),
        )
        workflow.subscribe_any(self.events.append)
        async with clock.skipping():
            return await taken_to_its_end(workflow, self.plan, EXECUTION)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


@given(PLANS)
async def test_an_execution_ends_as_the_definition_says(plan: Plan) -> None:
    seen, expected = Watched(plan), expected_of(plan)

    result = await seen.run()

    assert result.state == "completed"
    assert (result.outputs, result.final_answer) == (expected.outputs, expected.final_answer)
    assert (result.success, result.error is None) == (expected.success, expected.success)
    assert seen.calls == expected.calls
    told_of_events(seen, expected)


def told_of_events(seen: Watched, expected: Expected) -> None:
    """What was told adds up to how it ended."""
    last: dict[str, str] = {}
    for event in seen.events:
        if isinstance(event, told.WorkflowAgentSkippedEvent):
            last[event.agent_id] = "skipped"
        elif isinstance(event, told.WorkflowAgentCompletedEvent):
            last[event.agent_id] = "done" if event.success else "failed"
    assert last == expected.nodes
    [ended] = seen.of(told.WorkflowCompletedEvent)
    statuses = list(expected.nodes.values())
    assert (ended.successful_nodes, ended.skipped_nodes) == (statuses.count("done"), statuses.count("skipped"))
    assert (ended.success, ended.failed_nodes == 0) == (expected.success, expected.success)
    limits = [one for one in seen.of(told.WorkflowDiagnosticEvent) if "max_iterations" in one.message]
    assert len(limits) == (expected.left_by == "limit")
