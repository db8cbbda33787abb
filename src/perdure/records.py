"""Frozen data that crosses rooms: messages, checkpoints, commits and journal entries of a thread.

`gc=False`: a store may hold many thousands of these. None can be part of a cycle, so the garbage collector need not
visit them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from itertools import chain
from typing import Annotated, Any, Literal, TypeAlias

import msgspec


class MessageType(str, Enum):
    """Whether a message was sent by an executor or answers a request."""

    STANDARD = "standard"
    RESPONSE = "response"


class WorkflowMessage(msgspec.Struct, frozen=True):
    """One due delivery: the data, its sender and its target."""

    data: Any
    source_id: str
    target_id: str | None = None
    type: MessageType = MessageType.STANDARD
    original_request_info_event: Any = None
    """RESPONSE: the `request_info` event that `data` answers."""
    source_ids: tuple[str, ...] | None = None
    """All senders, where a fan-in joined several; otherwise None, and `source_id` is the sender."""
    delivery_id: int = 0
    """Unique in its thread and the same over every resume; the order of delivery."""
    in_place_of: str | None = None
    """The executor that failed at it, if the message was forwarded to a fallback."""

    def to_dict(self) -> dict[str, Any]:
        """Its main fields; `data` is the object itself."""
        fields = {name: getattr(self, name) for name in ("data", "source_id", "target_id")}
        return {**fields, "type": self.type.value, "original_request_info_event": self.original_request_info_event}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> WorkflowMessage:
        """Raises KeyError without `data` and `source_id`."""
        for name in ("data", "source_id"):
            if name not in data:
                raise KeyError(f"Missing {name!r} field in WorkflowMessage dictionary.")
        request = data.get("original_request_info_event")
        kind = MessageType(data.get("type", "standard"))
        return WorkflowMessage(data["data"], data["source_id"], data.get("target_id"), kind, request)


RecordKind: TypeAlias = Literal[
    "step", "failed", "cancelled", "answered", "expired", "slept", "sleeping", "asked", "attempt", "gone"
]
AwareTime: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""Of a stored time msgspec checks that it has a zone."""


class Record(msgspec.Struct, frozen=True):
    """One recorded fact of a delivery that is not repeated: a finished step, a sleep, an answer, a failed attempt.

    Records of a delivery are found by their key. They are in the order in which they occurred.
    """

    kind: RecordKind
    """These settle a call: `step` (success), `failed` (it raised), `cancelled` (by the code itself), `answered`,
    `expired`, `slept`. `sleeping` and `attempt` record progress, and `asked` the id of a request, as its name. `gone`
    replaces a revoked record."""
    key: str = ""
    """The call of the delivery; empty for an attempt of the delivery itself."""
    name: str = ""
    """The call's name, for people."""
    after: str | None = None
    """The call before it in the same flow of control."""
    within: str | None = None
    """The enclosing step."""
    value: Any = None
    """The result, answer or error; `Encoded` if the run has a storage."""
    effects: Any = None
    """Messages, outputs and writes of a step; encoded like the value."""
    until: AwareTime | None = None
    """`sleeping`, `attempt`: when to continue."""
    run_id: str | None = None
    """The run that made it."""


class SuspendedDelivery(msgspec.Struct, frozen=True):
    """A delivery that waits for a time, answers, or its next attempt. It then runs from the start, with its records."""

    message: WorkflowMessage
    due_at: datetime | None = None
    """When it runs next; None if only an answer can wake it."""
    waits: tuple[str, ...] = ()
    """The requests whose answers it waits for."""
    records: tuple[Record, ...] = ()
    is_ready: bool = False
    """Whether it runs in the next superstep because an answer arrived."""
    emitted: tuple[str, ...] = ()
    """Digests of the events that it has emitted, so that a later run does not emit them as new."""
    run_id: str | None = None
    """The run that suspended it."""


class CheckpointInfo(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint without its payload. Accepted wherever a checkpoint id is."""

    checkpoint_id: str
    thread_id: str
    workflow_name: str
    number: int
    """The commit that made it; grows by one with every commit of the thread."""
    iteration_count: int
    previous_checkpoint_id: str | None
    """The checkpoint that it continues from, or the nearest ancestor that is still stored."""
    timestamp: str
    """ISO 8601, UTC."""
    run_id: str | None = None
    status: str = ""
    """The run's state when it was made."""
    is_pinned: bool = False
    """Whether retention and pruning keep it."""

    def __str__(self) -> str:
        return self.checkpoint_id


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to write to a thread. Every write proves it."""

    thread_id: str
    owner: str
    """The run that holds it."""
    fence: int
    """Grows with every new owner. The store rejects a commit with an old fence."""


class LoggedEvents(msgspec.Struct, frozen=True, gc=False):
    """The durable events of one commit, packed: their seqs are first_seq, first_seq + 1, ..."""

    first_seq: int
    count: int
    body: bytes
    refers: bool = False
    """Whether they refer to chunks of their checkpoint, which then stay as long as they do."""
    own: Sequence[str] = ()
    """Digests of chunks of their own commit that only they refer to."""
    number: int = 0
    """This and the fields below repeat their commit. The store fills them in when it reads events."""
    run_id: str = ""
    timestamp: str = ""
    info: CheckpointInfo | None = None


class PendingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request waiting for an answer. Its data is in the thread's latest checkpoint."""

    thread_id: str
    request_id: str
    executor_id: str
    asked_at: datetime
    deadline: datetime | None = None
    assignee: str | None = None
    workflow_name: str = ""
    """The store fills it in when it lists requests."""


class RequestPart(msgspec.Struct, omit_defaults=True):
    """A `PendingRequest` in the file of its thread."""

    request_id: str
    executor_id: str
    asked_at: datetime
    deadline: datetime | None = None
    assignee: str | None = None


class ThreadInfo(msgspec.Struct, frozen=True, gc=False):
    """A thread's status, read without its content."""

    thread_id: str
    workflow_name: str
    number: int
    """Its last commit."""
    status: str
    updated_at: str
    """The time of that commit."""
    checkpoint_id: str | None = None
    """Its head."""
    due_at: datetime | None = None
    """When it continues without input, or a deadline passes."""
    run_id: str | None = None
    """The run that owns it now; None without an owner, or if the owner's process is dead. A dead process on the same
    host and in the same container is detected immediately, any other when its lease expires, within ten seconds. So
    a thread that is IN_PROGRESS without a run was interrupted; one with a run may still turn out to be."""


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One numbered, atomic act of a thread's owner."""

    lease: Lease
    number: int
    """One more than the number of the head it extends."""
    info: CheckpointInfo | None = None
    """None for a commit without a checkpoint, which has only events or a status."""
    root: bytes | None = None
    """The checkpoint's encoded body, with references to chunks."""
    events: LoggedEvents | None = None
    unsettled: Sequence[int] = ()
    """Deliveries that are still due after it. A checkpoint deletes the journal entries of all others."""
    consumed: Sequence[str] = ()
    """Ids of the inbox items that this commit takes in."""
    status: str = ""
    """The thread's status after it; equals that of `info`."""
    run_id: str = ""
    timestamp: str = ""
    parent: int | None = None
    """The commit whose checkpoint it continues from. Chunks of the parent's checkpoint may be left out."""
    chunks: Mapping[str, bytes] = {}
    """New chunks, by digest."""
    dropped: Sequence[str] = ()
    """Chunks that only the parent refers to, by the first characters of their digests and by commit."""
    requests: Sequence[PendingRequest] | None = None
    """All pending requests; None if they did not change."""
    due_at: datetime | None = None
    """When the thread continues without input, or a deadline passes."""
    prunes: Sequence[int] = ()
    """Numbers of checkpoints that retention deletes with it. The head and pinned checkpoints stay."""
    prunes_events_before: int = 0
    """Delete the events of all commits before this number."""
    carried: Sequence[str] = ()
    """Only in a commit that is read back: its references to commits that are no longer its ancestors."""


class ThreadHeader(msgspec.Struct, frozen=True, gc=False):
    """All of a thread except its commits. A copy of the thread in another store starts with it."""

    thread_id: str
    workflow_name: str
    number: int
    """Of its last commit."""
    fence: int
    status: str
    updated_at: str
    last_seq: int
    first_seq: int = 1
    """The oldest stored event; those before were pruned."""
    head: int | None = None
    """Number of the newest checkpoint."""
    due_at: datetime | None = None
    requests: Sequence[PendingRequest] = ()
    journal: Sequence[JournalEntry] = ()
    inbox: Sequence[InboxItem] = ()
    consumed: Sequence[str] = ()
    """Ids of consumed inbox items."""
    pins: Sequence[int] = ()
    """Numbers of pinned checkpoints."""


class Damage(msgspec.Struct, frozen=True, gc=False):
    """A part of a store that differs from what was written."""

    reason: str
    thread_id: str | None = None
    checkpoint_id: str | None = None


class StoreContents(msgspec.Struct, frozen=True, gc=False):
    """The content of a store, counted: what `perdure doctor` reports, without a judgement."""

    threads: int = 0
    owned: int = 0
    """Threads that a living run owns."""
    left_behind: int = 0
    """Threads whose owner is dead: its process has ended, or its lease has expired."""
    overdue: int = 0
    """Threads without an owner that have been due for more than a minute."""
    commits: int = 0
    checkpoints: int = 0
    is_estimated: bool = False
    """Whether commits and checkpoints were too many to be counted."""
    requests: int = 0
    late_requests: int = 0
    """Requests whose deadline has passed."""
    inbox: int = 0
    """Items that were posted to threads, and not consumed yet."""
    processes: int = 0
    """Living processes that may own threads."""
    is_encrypted: bool = False


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """A record of one delivery before the commit of its superstep: a step, an answer, an attempt, or its outcome."""

    number: int
    """The head that it extends. The entry is obsolete once the head is another."""
    delivery_id: int
    body: bytes


class InboxItem(msgspec.Struct, frozen=True, gc=False):
    item_id: str
    kind: str
    body: bytes


class OpenedThread(msgspec.Struct, frozen=True):
    """A claimed thread, read by `open` in one round trip."""

    lease: Lease
    number: int
    """Number of the last commit; 0 for a new thread."""
    info: CheckpointInfo | None
    root: bytes | None
    last_seq: int
    journal: Sequence[JournalEntry] = ()
    inbox: Sequence[InboxItem] = ()
    status: str = ""
    damage: str | None = None
    """Why the head cannot be read. `root` is None then, and the thread can still rewind to an older checkpoint."""
    is_encrypted: bool = False
    """Whether the store has the reserved thread of encrypted stores. False from a layer that has the key."""


class StoredCheckpoint(msgspec.Struct, frozen=True, gc=False):
    info: CheckpointInfo
    root: bytes


class Answer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How a request was settled: answered, expired or withdrawn. A second answer is rejected."""

    answered_at: AwareTime
    answered_by: str | None = None
    expired_for: str | None = None
    """The executor that asked, if the deadline passed without an answer or a default."""
    is_withdrawn: bool = False
    """Whether the delivery that asked continued without an answer."""

    @property
    def outcome(self) -> str:
        """`answered`, `expired` (the deadline passed first), or `withdrawn`."""
        settled = "answered" if self.expired_for is None else "expired"
        return "withdrawn" if self.is_withdrawn else settled


class ExecutorMemory(msgspec.Struct, frozen=True):
    """The memory of one executor: its `on_checkpoint_save` dict and its `ctx.private`."""

    saved: Any = None
    """The dict; `Encoded` on its way into a checkpoint."""
    private: Mapping[str, Any] | None = None


class Counters(msgspec.Struct, frozen=True, gc=False):
    """Numbers that a resumed run continues to count from."""

    since_input: int = 0
    """Supersteps since the last outside input; `max_iterations` limits this."""
    next_delivery_id: int = 1
    epoch: int = 0
    """The commit of the last rewind; 0 before the first. It is a part of each delivery's idempotency key."""


class ChildCheckpoint(msgspec.Struct, frozen=True):
    """A sub-workflow that has not ended: the same parts as its parent's, kept apart."""

    executor_id: str
    """The WorkflowExecutor that started it."""
    message: WorkflowMessage
    """The delivery that started it."""
    messages: dict[str, list[WorkflowMessage]] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    pending_request_info_events: dict[str, Any] = msgspec.field(default_factory=dict)
    """The `request_info` events, by request."""
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
    """When the engine starts it again."""

    @property
    def deliveries(self) -> list[WorkflowMessage]:
        return in_order(self.messages)


def in_order(messages: Mapping[str, list[Any]]) -> list[WorkflowMessage]:
    due = (each for each in chain.from_iterable(messages.values()) if isinstance(each, WorkflowMessage))
    return sorted(due, key=lambda message: message.delivery_id)
