"""Frozen data that crosses rooms: what a thread's messages, checkpoints, commits and journal look like.

`gc=False`: a store may hold many thousands of these, and none of them can be part of a cycle, so the collector of
garbage need not visit them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec


class MessageType(str, Enum):
    """Whether a message was sent by an executor or answers a request."""

    STANDARD = "standard"
    RESPONSE = "response"


class WorkflowMessage(msgspec.Struct, frozen=True):
    """One delivery that is due: which executor gets what, and from whom."""

    data: Any
    source_id: str
    target_id: str | None = None
    type: MessageType = MessageType.STANDARD
    original_request_info_event: Any = None
    """RESPONSE: the `request_info` event that `data` answers."""
    source_ids: tuple[str, ...] | None = None
    """All senders, where a fan-in joined several; otherwise None and `source_id` is the one."""
    delivery_id: int = 0
    """Unique in its thread and the same over every resume; the order of delivery."""
    in_place_of: str | None = None
    """The executor that failed at it, if it came to a fallback."""


class Record(msgspec.Struct, frozen=True):
    """One thing that a delivery need not do again: a step that ended, a sleep, an answer, an attempt that failed.

    Records of a delivery are found by their key; their order is that in which the things happened.
    """

    kind: str
    """`step` ended well, `failed` it raised, `cancelled` by the code itself, `answered`, `expired`, `slept`: these
    settle a call. `sleeping` and `attempt` only tell how far it is. `gone` stands where a record was taken back."""
    key: str = ""
    """Which call of the delivery it is about; empty for an attempt of the delivery itself."""
    name: str = ""
    """The call's name, for people."""
    after: str | None = None
    """The call before it in the same flow of control."""
    within: str | None = None
    """The step that it was made in."""
    value: Any = None
    """The result, answer or error; an `Encoded` one where there is a storage."""
    effects: Any = None
    """What a step sent, yielded and wrote; encoded like the value."""
    until: datetime | None = None
    """`sleeping`, `attempt`: when to go on."""
    run_id: str | None = None
    """The run that made it."""


SETTLES = frozenset({"step", "failed", "cancelled", "answered", "expired", "slept"})
"""Kinds of records that give a call its result."""


class SuspendedDelivery(msgspec.Struct, frozen=True):
    """A delivery that waits: for a time, for answers, or to be tried again. It then runs from the top, and takes
    what is recorded from its records."""

    message: WorkflowMessage
    due_at: datetime | None = None
    """When it is to run; None if only an answer can wake it."""
    waits: tuple[str, ...] = ()
    """The requests whose answers it waits for."""
    records: tuple[Record, ...] = ()
    is_ready: bool = False
    """Whether to run it in the next superstep: an answer has come."""
    told: tuple[str, ...] = ()
    """Digests of the events that it has told, so that they are not told as new again."""
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
    """The one it continues from, or the nearest before that which is still stored."""
    timestamp: str
    """ISO 8601, UTC."""
    run_id: str | None = None
    status: str = ""
    """The run's state when it was made."""
    is_pinned: bool = False
    """Whether it stays, whatever retention and pruning say."""

    def __str__(self) -> str:
        return self.checkpoint_id


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to move a thread, proved with every write."""

    thread_id: str
    owner: str
    """The run that holds it."""
    fence: int
    """Grows with every new owner; a commit with an old one is refused."""


class LoggedEvents(msgspec.Struct, frozen=True, gc=False):
    """The durable events of one commit, packed: their seqs are first_seq, first_seq + 1, ..."""

    first_seq: int
    count: int
    body: bytes
    refers: bool = False
    """Whether they refer to chunks of their checkpoint, which then stay as long as they do."""
    own: Sequence[str] = ()
    """Digests of chunks of their own commit that nothing but they refers to."""
    number: int = 0
    """This and what follows is what their commit says, filled in by the store that gives them back."""
    run_id: str = ""
    timestamp: str = ""
    info: CheckpointInfo | None = None


class PendingRequest(msgspec.Struct, frozen=True, gc=False):
    """That somebody is asked. What is asked is in the thread's head."""

    thread_id: str
    request_id: str
    executor_id: str
    asked_at: datetime
    deadline: datetime | None = None
    assignee: str | None = None
    workflow_name: str = ""
    """Filled in by the store that lists it."""


class ThreadInfo(msgspec.Struct, frozen=True, gc=False):
    """Where a thread stands, without reading what is in it."""

    thread_id: str
    workflow_name: str
    number: int
    """Its last commit."""
    status: str
    updated_at: str
    """When that was."""
    checkpoint_id: str | None = None
    """Its head."""
    due_at: datetime | None = None
    """When it goes on by itself, or a deadline passes."""
    run_id: str | None = None
    """The run that owns it now. None if nobody does: also if its owner's process is dead, at once where that can be
    seen (on the same host, in the same container), elsewhere when its lease has run out, within ten seconds. So a
    thread that is IN_PROGRESS and has none was interrupted, and one that has one may still turn out to be."""


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One numbered, atomic act of a thread's owner."""

    lease: Lease
    number: int
    """One more than the number of the head it extends."""
    info: CheckpointInfo | None = None
    """None for a commit without a checkpoint: only events or a status."""
    root: bytes | None = None
    """The checkpoint's encoded body, with references to chunks."""
    events: LoggedEvents | None = None
    unsettled: Sequence[int] = ()
    """Deliveries that are still due after it: their journal entries stay, all others go with a checkpoint."""
    consumed: Sequence[str] = ()
    """Ids of the inbox items that this commit takes in."""
    status: str = ""
    """How the thread stands after it; `info` says the same."""
    run_id: str = ""
    timestamp: str = ""
    parent: int | None = None
    """The commit whose checkpoint it continues from: chunks that one refers to may be left out."""
    chunks: Mapping[str, bytes] = {}
    """New ones, by digest."""
    dropped: Sequence[str] = ()
    """Chunks that the parent refers to and this does not, by the first characters of their digests and by commit."""
    requests: Sequence[PendingRequest] | None = None
    """All that are pending now; None if they are as before."""
    due_at: datetime | None = None
    """When the thread goes on by itself, or a deadline passes."""
    prunes: Sequence[int] = ()
    """Numbers of checkpoints of the thread that go with it: retention at work. The head and what is pinned stay."""
    prunes_events_before: int = 0
    """The events of all commits before this number go, too."""
    carried: Sequence[str] = ()
    """Only of a commit that is read back: references that it has from commits which are no longer in its line."""


class ThreadHeader(msgspec.Struct, frozen=True, gc=False):
    """All of a thread but its commits: what a copy of it in another store begins with."""

    thread_id: str
    workflow_name: str
    number: int
    """Of its last commit."""
    fence: int
    status: str
    updated_at: str
    last_seq: int
    first_seq: int = 1
    """The oldest event that is kept; those before were forgotten."""
    head: int | None = None
    """Number of the newest checkpoint."""
    due_at: datetime | None = None
    requests: Sequence[PendingRequest] = ()
    journal: Sequence[JournalEntry] = ()
    inbox: Sequence[InboxItem] = ()
    consumed: Sequence[str] = ()
    """Ids of items that were in the inbox."""
    pins: Sequence[int] = ()
    """Numbers of the checkpoints that are pinned."""


class Damage(msgspec.Struct, frozen=True, gc=False):
    """Something in a store that is not as it was written."""

    reason: str
    thread_id: str | None = None
    checkpoint_id: str | None = None


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """What one delivery recorded before its superstep is committed: a step, an answer, an attempt, or its outcome."""

    number: int
    """The head that it extends; of no use once the head is another."""
    delivery_id: int
    body: bytes


class InboxItem(msgspec.Struct, frozen=True, gc=False):
    item_id: str
    kind: str
    body: bytes


class OpenedThread(msgspec.Struct, frozen=True):
    """What `open` finds, in one round trip."""

    lease: Lease
    number: int
    """Number of the last commit; 0 where there is none."""
    info: CheckpointInfo | None
    root: bytes | None
    last_seq: int
    journal: Sequence[JournalEntry] = ()
    inbox: Sequence[InboxItem] = ()
    status: str = ""
    damage: str | None = None
    """Why the head cannot be read; `root` is None then, and the thread can still be sent to an older checkpoint."""


class StoredCheckpoint(msgspec.Struct, frozen=True, gc=False):
    info: CheckpointInfo
    root: bytes


class Answer(msgspec.Struct, frozen=True, gc=False):
    """That a request is settled, answered or expired: another answer is refused."""

    answered_at: datetime
    answered_by: str | None = None
    expired_for: str | None = None
    """The executor that waited in vain: nobody answered by the deadline, and there was no default."""
    is_withdrawn: bool = False
    """Whoever asked went on without an answer."""


class ExecutorMemory(msgspec.Struct, frozen=True):
    """What one executor keeps: its `on_checkpoint_save` dict and its `ctx.private`."""

    saved: Any = None
    """The dict; an `Encoded` one while it is on its way into a checkpoint."""
    private: Mapping[str, Any] | None = None
