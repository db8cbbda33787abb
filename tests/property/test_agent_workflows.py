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

from perdure.agent_workflow import events as workflow_events
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
    """A node has to be repaired before the execution can continue."""


def _break() -> None:
    raise Broken


class Watched:
    """A planned workflow, run to its end, and what was seen of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.calls: Counter[str] = Counter()
        self.events: list[Any] = []
        self.is_repaired = not plan.is_stopping
        self._storage = InMemoryCheckpointStorage()
        self._clock = FakeClock()

    async def run(self) -> WorkflowResult:
        """Runs it to its end. Raises Broken where a node needs a repair."""
        workflow = built(
            self.plan,
            lambda builder: builder.with_checkpointing().with_workflow_store(self._storage).with_clock(self._clock),
            is_repaired=lambda: self.is_repaired,
            log=lambda call: self.calls.update([call["agent"]]),
        )
        workflow.subscribe_any(self.events.append)
        async with self._clock.skipping():
            return await taken_to_its_end(workflow, self.plan, EXECUTION, _break)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@given(plans(stops=0))
async def test_execution_ends_as_its_definition_requires(plan: Plan) -> None:
    seen, expected = Watched(plan), expected_of(plan)

    result = await seen.run()

    assert result.state == "completed"
    assert (result.outputs, result.final_answer) == (expected.outputs, expected.final_answer)
    assert (result.success, result.error is None) == (expected.success, expected.success)
    assert_asked(seen, expected)
    assert_emitted(seen, expected)


def assert_asked(seen: Watched, expected: Expected, *but: str) -> None:
    """Each node is asked as often as the interpreter expects. A template asks for `message`, which any node may give.
    The interpreter does not know which node gave it, so in a loop such a node may be asked once in each pass."""
    for node in seen.plan.nodes:
        asked, wanted = seen.calls[node.id], expected.calls[node.id]
        if node.id in but:
            continue
        if node.has_template and seen.plan.converges:
            assert min(wanted, 1) <= asked <= max(wanted, expected.passes), node.id
        else:
            assert asked == wanted, node.id


def assert_emitted(seen: Watched, expected: Expected) -> None:
    """The emitted events match the end of the execution."""
    last: dict[str, str] = {}
    for event in seen.events:
        if isinstance(event, workflow_events.WorkflowAgentSkippedEvent):
            last[event.agent_id] = "skipped"
        elif isinstance(event, workflow_events.WorkflowAgentCompletedEvent):
            last[event.agent_id] = "done" if event.success else "failed"
    assert last == expected.nodes
    [ended] = seen.of(workflow_events.WorkflowCompletedEvent)
    assert ended.successful_nodes == expected.succeeded
    not_failed = [name for name, status in expected.nodes.items() if status != "failed"]
    assert ended.skipped_nodes == len(not_failed) - expected.succeeded
    assert (ended.success, ended.failed_nodes == 0) == (expected.success, expected.success)
    limits = [event for event in seen.of(workflow_events.WorkflowDiagnosticEvent) if "max_iterations" in event.message]
    assert len(limits) == (expected.left_by == "limit")


@FEW
@given(plans(stops=0.6))
async def test_stopped_execution_ends_the_same_once_its_failure_is_repaired(plan: Plan) -> None:
    seen, expected = Watched(plan), expected_of(plan)
    broken = [node.id for node in plan.nodes if node.fails == "at first"]
    with suppress(Broken):
        await seen.run()
        assert not any(expected.calls[name] for name in broken), "it ended although a node that it needs is broken"
    seen.is_repaired = True

    # The resume reports a failure that was recorded beside the one that stopped it. The next resume tries again.
    with suppress(Broken):
        await seen.run()
    result = await seen.run()

    assert (result.outputs, result.final_answer) == (expected.outputs, expected.final_answer)
    assert result.success == expected.success
    # Nodes that answered before are not asked again, except those that failed.
    assert_asked(seen, expected, *broken)
