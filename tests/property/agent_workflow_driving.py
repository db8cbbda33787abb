"""A planned workflow taken to its end: a driver answers its requests and repairs its failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.property.agent_workflow_plans import Plan, is_granted

from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.instance import AgentWorkflowInstance

STAMP = {"stamp": "seen"}
"""What an approval puts into the outputs."""


def nothing_to_repair() -> None:
    raise AssertionError("the execution failed, and nothing in it was to be repaired")


async def taken_to_its_end(
    workflow: AgentWorkflowInstance,
    plan: Plan,
    execution_id: str,
    repair: Callable[[], Any] = nothing_to_repair,
    **options: Any,
) -> WorkflowResult:
    """Starts it, or resumes it from wherever it stands. `options` are those of the first call."""
    result = await workflow.run(plan.input, execution_id, **options)
    while result.state != "completed":
        if result.state == "failed":
            repair()
            result = await workflow.resume(execution_id)
        else:
            asked = result.pending[0]
            if is_granted(plan.node(asked.agent_id), asked.outputs):
                result = await workflow.approve(asked.request_id, data=STAMP)
            else:
                result = await workflow.deny(asked.request_id, reason="no")
    return result
