"""WorkflowResult: what an execution has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from perdure.orchestrations.agent_workflow.events import WorkflowApprovalRequestedEvent

State: TypeAlias = Literal["completed", "failed", "waiting", "running", "cancelled"]


@dataclass(frozen=True)
class WorkflowResult:
    """What an execution gave, or has given so far."""

    execution_id: str
    state: State
    """`completed`: it has come to its end, well or not. `failed`: it stopped at a failure, and `resume` tries again
    from there. `waiting`: for somebody's approval. `running`: in another call."""
    final_answer: str | None = None
    """Of the nodes at which it ended, one after the other where there are several."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """By `node.key`."""
    success: bool = False
    """Whether it is completed and no node failed without a fallback."""
    duration: float = 0.0
    """Seconds since it began."""
    error: str | None = None
    exception: BaseException | None = None
    """What a node raised in this call."""
    pending: tuple[WorkflowApprovalRequestedEvent, ...] = ()
    """Approvals that it waits for."""
    usage: dict[str, int] = field(default_factory=dict)
    """What its agents used: tokens and the like, by name."""
    checkpoint_id: str | None = None
