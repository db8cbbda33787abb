"""Approvals of a node's outputs, before other nodes use them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

import msgspec

from perdure.agent_workflow.definition.config import ApprovalConfig
from perdure.agents.recording import current_delivery
from perdure.graph.context import WorkflowContext


class ApprovalContext(msgspec.Struct, frozen=True):
    """The argument of a predicate: `requires_approval(when=lambda context: ...)`."""

    node_id: str
    outputs: dict[str, Any]
    original_input: Any
    workflow_data: dict[str, dict[str, Any]] = {}  # msgspec copies it
    """Outputs of the other nodes, by node."""

    def has_output(self, key: str) -> bool:
        return key in self.outputs


class ApprovalRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to approve outputs of a node."""

    node_id: str
    message: str
    outputs: dict[str, Any]
    original_input: Any = None
    description: str | None = None


class ApprovalDecision(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer to an approval request; as JSON `{"approved": true}`, or just `true`."""

    sample_answer: ClassVar[str] = '{"approved": true}'
    """The command line shows it with the request."""
    approved: bool
    reason: str | None = None
    data: dict[str, Any] = {}  # msgspec copies it
    """Merged into the node's outputs; its keys win."""
    timed_out: bool = False


Predicate: TypeAlias = Callable[[ApprovalContext], bool]


def is_needed(config: ApprovalConfig, predicate: Predicate | None, context: ApprovalContext) -> bool:
    if config.when is not None and not config.when.holds(context.outputs):
        return False
    return predicate is None or bool(predicate(context))


async def request_decision(
    config: ApprovalConfig, context: ApprovalContext, ctx: WorkflowContext[Any, Any], latest: datetime | None
) -> ApprovalDecision:
    """Wait for the answer, which may arrive in another process. `latest`: the deadline of the whole execution."""
    delivery = current_delivery()
    assert delivery is not None  # noqa: S101  # called inside a handler
    # The terms of the first request are recorded: after a restart it is the same request, with the same deadline.
    is_limited = bool(config.timeout) and config.timeout_behavior != "suspend"
    own = delivery.clock.now() + timedelta(seconds=config.timeout or 0) if is_limited else None
    deadline = min((limit for limit in (own, latest) if limit is not None), default=None)
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
