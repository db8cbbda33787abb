"""WorkflowCheckpoint: the whole state of a thread at a superstep boundary, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from time import time_ns
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.decode import StoredNames, decode_fields
from perdure.checkpoints.encode import FORMAT_VERSION, GRAPH_PARTS, INFO_FIELDS, encode_checkpoint, tool_codec
from perdure.codec import Codec, Tree
from perdure.errors import DamagedCheckpoint, UnreadableValue, UnsavableValue
from perdure.events import WorkflowEvent
from perdure.names import random_digits
from perdure.records import (
    Answer,
    CheckpointInfo,
    ChildCheckpoint,
    Counters,
    ExecutorMemory,
    SuspendedDelivery,
    WorkflowMessage,
    in_order,
)

if TYPE_CHECKING:
    from perdure.checkpoints.history.diff import CheckpointDiff
    from perdure.checkpoints.migration.migrations import Migrator

CheckpointID = str

_read_info = attrgetter(*INFO_FIELDS)


def new_checkpoint_id() -> str:
    """Time-ordered, so that an index of ids grows at its end; random enough to be unique."""
    return _millisecond(time_ns() // 1_000_000) + random_digits()[:12]


@lru_cache(maxsize=2)
def _millisecond(milliseconds: int) -> str:
    return f"{milliseconds:012x}"


def utc_now() -> str:
    """The time as `datetime.isoformat` writes it, in half the time: every commit has one."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{str(nanoseconds // 1000).zfill(6)}+00:00"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


class WorkflowCheckpoint(msgspec.Struct, frozen=True):
    """Enough to continue from here in another process, and readable without one.

    The checkpoint itself is frozen. A loaded checkpoint shares nothing with the storage or with another load: a change
    of a value inside it does not change what the storage holds.
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
    """Outputs since the last outside input."""
    executors: dict[str, ExecutorMemory] = msgspec.field(default_factory=dict)
    """The memories of executors: what their hooks saved, and `ctx.private`."""
    buffers: dict[str, dict[str, list[Any]]] = msgspec.field(default_factory=dict)
    """The messages that fan-ins have received so far, by edge group and sender."""
    answered: dict[str, Answer] = msgspec.field(default_factory=dict)
    suspended: dict[int, SuspendedDelivery] = msgspec.field(default_factory=dict)
    """Deliveries that wait for a time or an answer, with their records."""
    children: dict[int, ChildCheckpoint] = msgspec.field(default_factory=dict)
    """Sub-workflows that have not ended, by the delivery that started them."""
    run_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Run arguments, without secret ones."""
    counters: Counters = Counters()
    graph_signature: dict[str, Any] = msgspec.field(default_factory=dict)
    migrations: tuple[str, ...] = ()
    """The migrations applied to it, in order. A new thread starts with all migrations of its workflow."""
    renamed_types: tuple[tuple[str, str, str], ...] = ()
    """The types that they renamed: migration, old name, new name."""
    number: int = 0
    """The commit that made it."""
    status: str = ""

    @property
    def deliveries(self) -> list[WorkflowMessage]:
        """All due deliveries, in the order of delivery."""
        return in_order(self.messages)

    @property
    def info(self) -> CheckpointInfo:
        return CheckpointInfo(*_read_info(self))

    def diff(self, other: WorkflowCheckpoint) -> CheckpointDiff:
        """The differences from this checkpoint to the other, of any two threads: paths added, removed and changed.

        The diff ignores ids, numbers and times of checkpoints, threads and runs: these always differ.
        """
        from perdure.checkpoints.history.diff import compare_checkpoints

        if not isinstance(other, WorkflowCheckpoint):
            raise TypeError(f"diff expects a WorkflowCheckpoint, got {other!r}. Load it first: await storage.load(id).")
        return compare_checkpoints(self, other)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: `from_dict(json.loads(json.dumps(checkpoint.to_dict())))` is the same checkpoint."""
        tree: dict[str, Any] = encode_checkpoint(self, tool_codec())
        return {"messages": {}, "state": {}, "pending_request_info_events": {}, "metadata": {}, **tree}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorkflowCheckpoint:
        """The checkpoint of a `to_dict`, or one with these fields. Raises WorkflowCheckpointException for anything
        else."""
        fields = {"workflow_name", "graph_signature_hash"}
        if isinstance(data, dict) and "counters" not in data and fields <= data.keys() <= {*cls.__struct_fields__}:
            return WorkflowCheckpoint(**data)
        return decode_checkpoint(data, tool_codec())


class _MadeByHand(StoredNames):
    """The fields that a caller may set, with the types that can be stored."""

    messages: dict[str, list[Any]]
    state: dict[str, Any]
    pending_request_info_events: dict[str, Any]
    metadata: dict[str, Any]


def check_made_by_hand(checkpoint: WorkflowCheckpoint) -> None:
    """Raises UnsavableValue for a part that could not be loaded."""
    try:
        _ = msgspec.convert({name: getattr(checkpoint, name) for name in _MadeByHand.__struct_fields__}, _MadeByHand)
    except msgspec.ValidationError as error:
        raise UnsavableValue("checkpoint", str(error)) from error
    if checkpoint.version != FORMAT_VERSION:
        raise UnsavableValue("version", f"the format of stored checkpoints is {FORMAT_VERSION!r}")
    requests: Mapping[str, object] = checkpoint.pending_request_info_events
    for request_id, event in requests.items():
        path = f"pending_request_info_events[{request_id!r}]"
        if not isinstance(event, WorkflowEvent) or getattr(event, "source_executor_id", None) is None:
            raise UnsavableValue(path, f"expected a request, as WorkflowEvent.request_info makes it, got {event!r}")
        if event.request_id != request_id:
            raise UnsavableValue(path, f"the request has the id {event.request_id!r}")


def decode_checkpoint(tree: Tree, codec: Codec) -> WorkflowCheckpoint:
    """Raises WorkflowCheckpointException (UnreadableValue names the part) for anything that is not a checkpoint."""
    return WorkflowCheckpoint(**decode_fields(tree, codec))


def decode_body(tree: Tree, info: CheckpointInfo, codec: Codec) -> WorkflowCheckpoint:
    """The checkpoint of a tree that a store keeps beside its `info`. Raises like `decode_checkpoint`."""
    if not isinstance(tree, Mapping):
        raise UnreadableValue("checkpoint", "it is not a stored checkpoint")
    graph = tree.get("graph")
    whole = {**tree, **(graph if isinstance(graph, Mapping) else {}), **msgspec.structs.asdict(info)}
    return WorkflowCheckpoint(**decode_fields(whole, codec))


def copy_checkpoint(
    checkpoint: WorkflowCheckpoint, codec: Codec, migrator: Migrator | None = None
) -> WorkflowCheckpoint:
    """A copy that shares nothing with the live thread: a storage that keeps the object must not see it change.

    With a migrator the copy is migrated to the workflow of today.
    """
    if migrator is None or checkpoint.migrations == migrator.names:
        return decode_checkpoint(encode_checkpoint(checkpoint, codec), codec)
    whole: dict[str, Tree] = encode_checkpoint(checkpoint, tool_codec())  # the workflow of today may lack its types
    graph = {part: whole.pop(part) for part in GRAPH_PARTS if part in whole}
    info = checkpoint.info
    try:
        return decode_body(migrator.migrate({**whole, "graph": graph}, info, codec), info, codec)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error


def every_delivery(level: WorkflowCheckpoint | ChildCheckpoint, path: str = "") -> Iterator[WorkflowMessage]:
    """The due deliveries of a level and of the sub-workflows below it. Below it, paths name sender and target."""
    for message in level.deliveries:
        ends = {"source_id": f"{path}{message.source_id}", "target_id": f"{path}{message.target_id}"}
        yield msgspec.structs.replace(message, **ends) if path else message
    for child in level.children.values():
        yield from every_delivery(child, f"{path}{child.executor_id}/")


def due_at(level: WorkflowCheckpoint | ChildCheckpoint) -> datetime | None:
    """When the first suspended delivery is due or the first deadline passes, at this level or below."""
    if not (level.suspended or level.children or level.pending_request_info_events):
        return None
    requests = level.pending_request_info_events.values()
    times = [
        *(delivery.due_at for delivery in level.suspended.values()),
        *(event.terms.deadline for event in requests if event.terms is not None),
        *(child.due_at or due_at(child) for child in level.children.values()),
    ]
    return min((time for time in times if time is not None), default=None)
