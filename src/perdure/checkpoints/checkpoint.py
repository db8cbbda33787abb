"""WorkflowCheckpoint: the whole state of a thread at a superstep boundary, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from time import time_ns
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.events import WorkflowEvent
from perdure.names import random_digits
from perdure.records import Answer, CheckpointInfo, ExecutorMemory, SuspendedDelivery, WorkflowMessage

if TYPE_CHECKING:
    from perdure.checkpoints.history.diff import CheckpointDiff

CheckpointID = str

FORMAT_VERSION = "1.0"


def new_checkpoint_id() -> str:
    """Time-ordered, so that an index of them grows at its end; random enough never to meet another."""
    return f"{time_ns() // 1_000_000:012x}{random_digits()[:12]}"


def utc_now() -> str:
    """As `datetime.isoformat` writes it, in half the time: every commit has one."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{str(nanoseconds // 1000).zfill(6)}+00:00"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


class Counters(msgspec.Struct, frozen=True, gc=False):
    """Numbers that a resumed run goes on counting from."""

    since_input: int = 0
    """Supersteps since the last outside input; `max_iterations` limits this."""
    next_delivery_id: int = 1
    epoch: int = 0
    """The commit of the last rewind; 0 before the first. Deliveries after it are others than those before."""


class ChildCheckpoint(msgspec.Struct, frozen=True):
    """A sub-workflow that has not ended: the same parts as its parent's, kept apart."""

    executor_id: str
    """The WorkflowExecutor that started it."""
    message: WorkflowMessage
    """The delivery that started it."""
    messages: dict[str, list[WorkflowMessage]] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    pending_request_info_events: dict[str, WorkflowEvent] = msgspec.field(default_factory=dict)
    executors: dict[str, ExecutorMemory] = msgspec.field(default_factory=dict)
    buffers: dict[str, dict[str, list[Any]]] = msgspec.field(default_factory=dict)
    answered: dict[str, Answer] = msgspec.field(default_factory=dict)
    suspended: dict[int, SuspendedDelivery] = msgspec.field(default_factory=dict)
    children: dict[int, ChildCheckpoint] = msgspec.field(default_factory=dict)
    asked: tuple[str, ...] = ()
    """Its requests that are pending outside of it."""
    since_input: int = 0
    attempts: int = 0
    """How often it was started and failed."""
    due_at: datetime | None = None
    """When it is to be started again."""

    @property
    def deliveries(self) -> list[WorkflowMessage]:
        return in_order(self.messages)


def in_order(messages: Mapping[str, list[WorkflowMessage]]) -> list[WorkflowMessage]:
    return sorted(chain.from_iterable(messages.values()), key=lambda message: message.delivery_id)


def every_delivery(level: WorkflowCheckpoint | ChildCheckpoint, path: str = "") -> Iterator[WorkflowMessage]:
    """What is due at a level and in the sub-workflows below it, where sender and target are told by their path."""
    for message in level.deliveries:
        yield (
            msgspec.structs.replace(
                message, source_id=f"{path}{message.source_id}", target_id=f"{path}{message.target_id}"
            )
            if path
            else message
        )
    for child in level.children.values():
        yield from every_delivery(child, f"{path}{child.executor_id}/")


class WorkflowCheckpoint(msgspec.Struct, frozen=True):
    """Enough to go on from here in another process, and readable without one.

    The checkpoint itself is frozen, and one that was loaded shares nothing with the storage or with another load:
    changing a value inside it changes nothing that is stored.
    """

    workflow_name: str
    graph_signature_hash: str
    checkpoint_id: str = msgspec.field(default_factory=new_checkpoint_id)
    previous_checkpoint_id: str | None = None
    """The checkpoint it continues from, also across runs and rewinds."""
    timestamp: str = msgspec.field(default_factory=utc_now)
    messages: dict[str, list[WorkflowMessage]] = msgspec.field(default_factory=dict)
    """Deliveries that are due in the next superstep, by sender."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    pending_request_info_events: dict[str, WorkflowEvent] = msgspec.field(default_factory=dict)
    iteration_count: int = 0
    """Supersteps since the last message; 0 for an entry checkpoint."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    version: str = FORMAT_VERSION
    thread_id: str = ""
    run_id: str | None = None
    outputs: list[WorkflowEvent] = msgspec.field(default_factory=list)
    """What was yielded since the last outside input."""
    executors: dict[str, ExecutorMemory] = msgspec.field(default_factory=dict)
    """What executors keep: hooks and `ctx.private`."""
    buffers: dict[str, dict[str, list[Any]]] = msgspec.field(default_factory=dict)
    """What fan-ins have received so far, by edge group and sender."""
    answered: dict[str, Answer] = msgspec.field(default_factory=dict)
    suspended: dict[int, SuspendedDelivery] = msgspec.field(default_factory=dict)
    """Deliveries that wait for a time or an answer, with what they have recorded."""
    children: dict[int, ChildCheckpoint] = msgspec.field(default_factory=dict)
    """Sub-workflows that have not ended, by the delivery that started them."""
    run_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Run arguments; secret ones are left out."""
    counters: Counters = Counters()
    graph_signature: dict[str, Any] = msgspec.field(default_factory=dict)
    migrations: tuple[str, ...] = ()
    """Those that it has behind it, in order. A new thread begins with all that its workflow has."""
    renamed_types: tuple[tuple[str, str, str], ...] = ()
    """What they renamed: migration, old name, new name."""
    number: int = 0
    """The commit that made it."""
    status: str = ""

    @property
    def deliveries(self) -> list[WorkflowMessage]:
        """All that is due, in the order of delivery."""
        return in_order(self.messages)

    @property
    def info(self) -> CheckpointInfo:
        return CheckpointInfo(
            checkpoint_id=self.checkpoint_id,
            thread_id=self.thread_id,
            workflow_name=self.workflow_name,
            number=self.number,
            iteration_count=self.iteration_count,
            previous_checkpoint_id=self.previous_checkpoint_id,
            timestamp=self.timestamp,
            run_id=self.run_id,
            status=self.status,
        )

    def diff(self, other: WorkflowCheckpoint) -> CheckpointDiff:
        """What differs from this checkpoint to the other: paths added, removed and changed, of any two threads.

        What always differs says nothing, and is left out: ids, numbers and times of checkpoints, threads and runs.
        """
        from perdure.checkpoints.history.diff import difference

        return difference(self, other)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: `from_dict(json.loads(json.dumps(checkpoint.to_dict())))` is the same checkpoint."""
        from perdure.checkpoints.encoding.checkpoint import encode_checkpoint, tool_codec

        tree: dict[str, Any] = encode_checkpoint(self, tool_codec())
        if self.graph_signature:
            tree["graph_signature"] = deepcopy(self.graph_signature)
        return tree

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorkflowCheckpoint:
        """Raises WorkflowCheckpointException for anything that is not a checkpoint."""
        from perdure.checkpoints.encoding.checkpoint import decode_checkpoint, tool_codec

        return decode_checkpoint(data, tool_codec())
