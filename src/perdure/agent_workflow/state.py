"""How far an execution is: the state of each node, stored in the checkpoint, and the messages between nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agent_workflow.definition.config import START
from perdure.agents.recording import working_for
from perdure.clock import Clock
from perdure.engine.delivery.context import DeliveryContext

Status: TypeAlias = Literal["waiting", "running", "done", "skipped", "failed"]
DEFINITION = "definition"
"""The key of the shared state that says with which version of the definition an execution was begun."""
SETTLED = frozenset({"done", "skipped", "failed"})


class NodeStanding(msgspec.Struct, frozen=True, omit_defaults=True):
    status: Status = "waiting"
    outputs: dict[str, Any] = {}  # msgspec copies it
    runs: int = 0
    reason: str | None = None
    """Why it was skipped, or failed."""
    has_changed: bool = False
    """Whether it came to something else than in the pass before."""
    last: Status | None = None
    """What became of it in the pass before."""
    told: str | None = None
    """A digest of what it could refer to when it ran last, in a workflow with loops."""

    @property
    def is_settled(self) -> bool:
        return self.status in SETTLED

    @property
    def has_succeeded(self) -> bool:
        """Also in an earlier pass, if it was skipped since."""
        return self.status == "done" or (self.status == "skipped" and bool(self.outputs))


class LayerStanding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes that may run at the same time, once one of them has begun."""

    began: datetime
    has_ended: bool = False


class SessionRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A conversation up to here: what is said later is not part of it."""

    session_id: str
    thread_id: str
    version: str = ""
    """Empty: nothing was said yet."""
    parent: str | None = None
    """Of what was just said: the version that it follows."""


class ExecutionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one execution."""

    input: Any
    began: datetime
    deadline: datetime | None = None
    nodes: dict[str, NodeStanding] = {}
    passes: int = 1
    """How often its loops were gone through."""
    back: tuple[str, ...] = ()
    """Edges back that began this pass, by name: what they lead to runs in any case."""
    taken: dict[str, bool] = {}
    """Whether edges with a condition were taken in this pass, by name, once that is known."""
    layers: dict[int, LayerStanding] = {}
    stopped: str | None = None
    """Why nothing more is begun."""
    conversations: dict[str, SessionRef] = {}
    """By thread of the session."""
    result: ExecutionResult | None = None
    """Once it has ended."""

    def outputs(self) -> dict[str, dict[str, Any]]:
        """Of each node that has given some, by node: in a loop, those of the pass before until there are others."""
        return {node: one.outputs for node, one in self.nodes.items() if one.outputs and node != START}


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


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a workflow that is a node of another."""

    input: str
    deadline: datetime | None = None
    """When it must have ended, whatever its own timeout is."""


class NodeTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node is to do."""

    input: Any
    """What was given to the execution."""
    given_at: datetime
    outputs: dict[str, dict[str, Any]] = {}
    """Of other nodes, by node."""
    sources: tuple[str, ...] = ()
    """Nodes whose edges led here, in the order of the edges."""
    waiting: tuple[str, ...] = ()
    """Nodes that have not run yet: those that lead back here, in a first pass."""
    layer: int = 0
    delay: float | None = None
    """Seconds to wait first."""
    deadline: datetime | None = None
    """Of the whole execution."""
    session: SessionRef | None = None

    @property
    def began(self) -> datetime:
        """When its node began: the same whenever its handler is run again."""
        return self.given_at + timedelta(seconds=self.delay or 0)


class NodeOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of it."""

    node: str
    status: Status
    outputs: dict[str, Any] = {}
    reason: str | None = None
    ends_all: bool = False
    """Whether the execution ends with it."""
    session: SessionRef | None = None


def flat(outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By `node.key`."""
    return {f"{node}.{key}": value for node, given in outputs.items() for key, value in given.items()}


class OutOfTime(Exception):
    """The execution's time is up, not the node's alone: whatever the node does about errors, nothing more is begun."""

    def __str__(self) -> str:
        return "the execution ran out of time"


def delivery() -> DeliveryContext:
    """What this handler works for."""
    context = working_for()
    assert context is not None  # noqa: S101  # asked in a handler
    return context


def raise_trouble() -> None:
    """Raises what keeps this handler's work from being recorded: that is no failure of its node."""
    trouble = delivery().delivery.broken
    if trouble is not None:
        raise trouble


def clock() -> Clock:
    return delivery().clock


def is_over(task: NodeTask) -> bool:
    return task.deadline is not None and clock().now() >= task.deadline


def seconds_left(task: NodeTask) -> float | None:
    """None: as many as it takes."""
    return None if task.deadline is None else max(0.0, (task.deadline - clock().now()).total_seconds())


def plain(value: Any) -> Any:
    """Only what JSON has."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else msgspec.to_builtins(value)
