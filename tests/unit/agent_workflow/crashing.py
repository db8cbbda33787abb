"""For the tests of AgentWorkflow: executions that are cut off at every write, and resumed each time."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from perdure import InMemoryCheckpointStorage
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.testing import Faults, ProcessGone
from perdure.testing.crash import POINTS

Log = Callable[[dict[str, Any]], object]
Make = Callable[[Any, Log], AgentWorkflowInstance]
"""With a storage, and what its agents call with each request to a model."""


class Calls:
    """Requests to models, counted by agent and place."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def __call__(self, what: dict[str, Any]) -> None:
        self.made[" ".join(f"{key}={value}" for key, value in sorted(what.items()))] += 1


async def to_the_end(workflow: AgentWorkflowInstance, workflow_input: Any, **options: Any) -> WorkflowResult:
    """Run, with every approval given."""
    result = await workflow.run(workflow_input, "e", **options)
    while result.pending:
        result = await workflow.approve(result.pending[0].request_id)
    return result


async def assert_survives(make: Make, workflow_input: Any, *, at_once: int = 1) -> WorkflowResult:
    """A crash after any write changes neither the outputs nor what was asked of models, but for the requests,
    `at_once` at most, that were being made."""
    faults, calm = Faults(), Calls()
    expected = await to_the_end(make(faults.wrap(InMemoryCheckpointStorage()), calm), workflow_input)
    assert expected.success, expected.error
    for point in POINTS:
        # After one write is before the next but for what is being asked then; tests/crash tries both.
        for nth in range(1, faults.counts[point] + 1):
            dying, storage, calls = Faults(), InMemoryCheckpointStorage(), Calls()
            dying.crash(point, nth=nth, when="after")
            with contextlib.suppress(ProcessGone):
                await to_the_end(make(dying.wrap(storage), calls), workflow_input)
            assert dying.is_crashed
            ended = await to_the_end(make(storage, calls), workflow_input, takeover=True)
            assert ended.outputs == expected.outputs, f"after {point} {nth}"
            again = calls.made - calm.made
            assert again.total() <= at_once, f"after {point} {nth}: {again}"
            assert set(calls.made) == set(calm.made), f"after {point} {nth}"
    return expected
