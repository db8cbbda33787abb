"""How far an execution is: the state of each node, stored in the checkpoint, and the messages between nodes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agent_workflow.definition import START
from perdure.agent_workflow.events import EVENT, AgentWorkflowEvent
from perdure.agents.recording import current_delivery
from perdure.clock import Clock
from perdure.engine.delivery.context import DeliveryContext
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext

Status: TypeAlias = Literal["waiting", "running", "done", "skipped", "failed"]
DEFINITION = "definition"
"""The key of the shared state that holds the definition's version at the start of the execution."""


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    status: Status = "waiting"
    outputs: dict[str, Any] = {}  # msgspec copies it
    runs: int = 0
    reason: str | None = None
    """The reason of a skip or a failure."""
    has_changed: bool = False
    """Whether its outcome differs from that of the pass before."""
    last: Status | None = None
    """Its status in the pass before."""
    input_digest: str | None = None
    """A digest of the outputs that it could refer to in its last run, in a workflow with loops."""

    @property
    def is_settled(self) -> bool:
        return self.status in ("done", "skipped", "failed")

    @property
    def has_succeeded(self) -> bool:
        """In this pass, or in an earlier pass if it was skipped since."""
        return self.status == "done" or (self.status == "skipped" and bool(self.outputs))


class LayerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A layer whose first node has begun. Nodes of a layer may run at the same time."""

    began: datetime
    has_ended: bool = False


class SessionRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A conversation up to a version. Later entries are not part of it."""

    session_id: str
    thread_id: str
    version: str = ""
    """Empty: the thread has no entries yet."""
    parent: str | None = None
    """The version that the newest entry follows."""


class ExecutionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one execution, stored by the conductor."""

    input: Any
    began: datetime
    deadline: datetime | None = None
    nodes: dict[str, NodeState] = {}
    passes: int = 1
    """The number of the current pass through the loops."""
    back: tuple[str, ...] = ()
    """Names of the edges back that began this pass: their targets run in any case."""
    taken: dict[str, bool] = {}
    """Decided conditions of this pass: by name of the edge, whether it was taken."""
    layers: dict[int, LayerState] = {}
    stopped: str | None = None
    """Why no more nodes are started."""
    conversations: dict[str, SessionRef] = {}
    """By thread of the session."""
    result: ExecutionResult | None = None
    """Set when the execution has ended."""

    def outputs(self) -> dict[str, Any]:
        """By `node.key`. In a loop, the outputs of the pass before until the node runs again."""
        nodes = [(name, node) for name, node in self.nodes.items() if name != START]
        return {f"{name}.{key}": value for name, node in nodes for key, value in node.outputs.items()}


class ExecutionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an execution ended."""

    final_answer: str | None
    outputs: dict[str, Any]
    """By `node.key`."""
    success: bool
    duration: float
    error: str | None = None
    successful_nodes: int = 0
    failed_nodes: int = 0
    skipped_nodes: int = 0


class InnerInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a workflow that is a node of another workflow."""

    input: str
    deadline: datetime | None = None
    """The deadline of the outer workflow. The workflow's own timeout may be earlier."""


class NodeTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that the conductor sends to a node."""

    input: Any
    """The input of the execution."""
    sent_at: datetime
    outputs: dict[str, dict[str, Any]] = {}
    """Outputs of other nodes, by node."""
    sources: tuple[str, ...] = ()
    """Nodes whose edges led here, in the order of the edges."""
    waiting: tuple[str, ...] = ()
    """Nodes that have not run yet: in a first pass, the sources of edges that lead back here."""
    layer: int = 0
    delay: float | None = None
    """Seconds to wait before the node begins."""
    deadline: datetime | None = None
    """The deadline of the whole execution."""
    session: SessionRef | None = None

    @property
    def began(self) -> datetime:
        """When the node began. A repeated handler gives the same time."""
        return self.sent_at + timedelta(seconds=self.delay or 0)


class NodeOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The report of a node to the conductor."""

    node: str
    status: Status
    outputs: dict[str, Any] = {}
    reason: str | None = None
    ends_all: bool = False
    session: SessionRef | None = None


class OutOfTime(Exception):
    """The execution's deadline has passed. No more nodes start, whatever the error mode of the node is."""

    def __str__(self) -> str:
        return "the execution ran out of time"


def delivery() -> DeliveryContext:
    context = current_delivery()
    assert context is not None  # noqa: S101  # called inside a handler
    return context


def clock() -> Clock:
    return delivery().clock


async def emit(workflow_name: str, ctx: WorkflowContext[Any, Any], event: AgentWorkflowEvent) -> None:
    await ctx.add_event(WorkflowEvent(EVENT, msgspec.structs.replace(event, workflow_name=workflow_name)))


def limit(start: datetime, seconds: float | None, outer: datetime | None) -> datetime | None:
    """The deadline so many seconds after the start, or an earlier one of the outer work; None: there is none."""
    own = None if seconds is None else start + timedelta(seconds=seconds)
    return min((deadline for deadline in (own, outer) if deadline is not None), default=None)


def is_over(work: NodeTask | ExecutionState) -> bool:
    return work.deadline is not None and clock().now() >= work.deadline


def seconds_left(work: NodeTask | ExecutionState) -> float | None:
    """None: no deadline."""
    return None if work.deadline is None else max(0.0, (work.deadline - clock().now()).total_seconds())


def to_plain(value: Any) -> Any:
    """The value as JSON data."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else msgspec.to_builtins(value)
