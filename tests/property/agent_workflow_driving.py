"""A planned workflow taken to its end by somebody who answers what it asks and mends what is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.property.agent_workflow_plans import Plan, is_granted

from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.instance import AgentWorkflowInstance

STAMP = {"stamp": "seen"}
"""What whoever approves puts into the outputs."""


def nothing_to_mend() -> None:
    raise AssertionError("the execution failed, and nothing in it was to be mended")


async def taken_to_its_end(
    workflow: AgentWorkflowInstance,
    plan: Plan,
    execution_id: str,
    mend: Callable[[], Any] = nothing_to_mend,
    **options: Any,
) -> WorkflowResult:
    """Begun, or gone on with from wherever it stands. `options` are those of the first call."""
    result = await workflow.run(plan.input, execution_id, **options)
    while result.state != "completed":
        if result.state == "failed":
            mend()
            result = await workflow.resume(execution_id)
        else:
            asked = result.pending[0]
            if is_granted(plan.node(asked.agent_id), asked.outputs):
                result = await workflow.approve(asked.request_id, data=STAMP)
            else:
                result = await workflow.deny(asked.request_id, reason="no")
    return result
