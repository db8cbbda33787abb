"""Approvals of a node's outputs, before other nodes use them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

import msgspec

from perdure.agent_workflow.definition.config import ApprovalConfig
from perdure.agents.recording import working_for
from perdure.graph.context import WorkflowContext


class ApprovalContext(msgspec.Struct, frozen=True):
    """What a predicate decides by: `requires_approval(when=lambda context: ...)`."""

    node_id: str
    outputs: dict[str, Any]
    original_input: Any
    workflow_data: dict[str, dict[str, Any]] = {}  # msgspec copies it
    """Outputs of the other nodes, by node."""

    def has_output(self, key: str) -> bool:
        return key in self.outputs


class ApprovalRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody is asked."""

    node_id: str
    message: str
    outputs: dict[str, Any]
    original_input: Any = None
    description: str | None = None


class ApprovalDecision(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What somebody answers; as JSON `{"approved": true}`, or just `true`."""

    sample_answer: ClassVar[str] = '{"approved": true}'
    """Shown to people who are asked on the command line."""
    approved: bool
    reason: str | None = None
    data: dict[str, Any] = {}  # msgspec copies it
    """Put into the node's outputs, over what the agent gave."""
    timed_out: bool = False


Predicate: TypeAlias = Callable[[ApprovalContext], bool]


def is_needed(config: ApprovalConfig, predicate: Predicate | None, context: ApprovalContext) -> bool:
    if config.when is not None and not config.when.holds(context.outputs):
        return False
    return predicate is None or bool(predicate(context))


async def decided(
    config: ApprovalConfig, context: ApprovalContext, ctx: WorkflowContext[Any, Any], latest: datetime | None
) -> ApprovalDecision:
    """The answer, maybe weeks later and in another process. `latest`: when the whole execution runs out of time."""
    delivery = working_for()
    assert delivery is not None  # noqa: S101  # asked in a handler
    # What was agreed when it was first asked stands: asked again, after a restart, it is still the same request.
    is_limited = bool(config.timeout) and config.timeout_behavior != "suspend"
    own = delivery.clock.now() + timedelta(seconds=config.timeout or 0) if is_limited else None
    deadline = min((one for one in (own, latest) if one is not None), default=None)
    is_own = own is not None and deadline == own
    late = ApprovalDecision(is_own and config.timeout_behavior == "auto_approve", timed_out=True)
    request = ApprovalRequest(
        context.node_id, config.message, context.outputs, context.original_input, config.description
    )
    answer: bool | ApprovalDecision = await delivery.ask(
        request,
        bool | ApprovalDecision,
        request_id=delivery.delivery_name,  # not with the thread's id: a fork has the same request
        deadline=deadline,
        default=... if deadline is None else late,
    )
    return ApprovalDecision(answer) if isinstance(answer, bool) else answer
