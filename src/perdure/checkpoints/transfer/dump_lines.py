"""The lines of an exported thread's file, as data: of the thread, of each commit, and the last one."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from perdure.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    PendingRequest,
    ThreadHeader,
)

VERSION = 1
NOTHING = Raw(b"null")
_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Id = Annotated[str, Meta(min_length=1)]


class AnyFirstLine(msgspec.Struct):
    """As much of a first line as is the same in all versions."""

    line: str
    version: int
    thread_id: _Id


class ThreadLine(msgspec.Struct, tag="perdure thread", tag_field="line", omit_defaults=True):
    version: int
    """Always written: a newer perdure says a higher one."""
    thread_id: _Id
    workflow: str
    number: _Count
    fence: _Count
    status: str
    updated_at: str
    last_seq: _Count
    first_seq: _Count = 1
    head: _Count | None = None
    due_at: datetime | None = None
    requests: list[RequestPart] = []
    journal: list[tuple[int, int, Raw]] = []
    """Head, delivery and body of each entry."""
    inbox: list[tuple[str, str, Raw]] = []
    """Id, kind and body of each item."""
    consumed: list[str] = []
    pins: list[int] = []


class RequestPart(msgspec.Struct, omit_defaults=True):
    request_id: str
    executor_id: str
    asked_at: datetime
    deadline: datetime | None = None
    assignee: str | None = None


class CommitLine(msgspec.Struct, tag="commit", tag_field="line", omit_defaults=True):
    number: _Count
    status: str = ""
    timestamp: str = field(name="at", default="")
    run_id: str = field(name="run", default="")
    parent: int | None = None
    checkpoint: CheckpointPart | None = None
    root: Raw = NOTHING
    chunks: dict[str, Raw] = {}
    dropped: Sequence[str] = ()
    carried: Sequence[str] = ()
    events: EventsPart | None = None


class CheckpointPart(msgspec.Struct, omit_defaults=True):
    """What the commit says itself is left out."""

    checkpoint_id: _Id = field(name="id")
    workflow: str
    iteration: _Count
    previous: str | None = None
    timestamp: str | UnsetType = field(name="at", default=UNSET)
    run_id: str | UnsetType | None = field(name="run", default=UNSET)
    status: str | UnsetType = UNSET


class EventsPart(msgspec.Struct, omit_defaults=True):
    first_seq: _Count = field(name="seq")
    count: _Count
    body: Raw
    refers: bool = False
    own: Sequence[str] = ()


class EndLine(msgspec.Struct, tag="end", tag_field="line"):
    commits: int
    sha256: str
    """Of all bytes before this line."""


# ---------------------------------------------------------------- from records


def thread_line(standing: ThreadHeader) -> ThreadLine:
    return ThreadLine(
        VERSION,
        standing.thread_id,
        standing.workflow_name,
        standing.number,
        standing.fence,
        standing.status,
        standing.updated_at,
        standing.last_seq,
        standing.first_seq,
        standing.head,
        standing.due_at,
        [
            RequestPart(one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)
            for one in sorted(standing.requests, key=lambda one: one.request_id)
        ],
        [(one.number, one.delivery_id, Raw(one.body)) for one in standing.journal],
        [(one.item_id, one.kind, Raw(one.body)) for one in standing.inbox],
        sorted(standing.consumed),
        sorted(standing.pins),
    )


def commit_line(commit: Commit, standing: ThreadHeader) -> CommitLine:
    """What is not settled is said by the thread's line. A checkpoint and events that were forgotten, and only wait for
    their space to be freed, are left out; what others may have from that commit is not."""
    info, events = commit.info, commit.events
    chunks = dict(commit.chunks)
    if events is not None and events.first_seq < standing.first_seq:
        for digest in events.own:
            chunks.pop(digest, None)
        events = None
    return CommitLine(
        commit.number,
        commit.status,
        commit.timestamp,
        commit.run_id,
        commit.parent,
        None if info is None else _checkpoint_part(info, commit),
        NOTHING if info is None or commit.root is None else Raw(commit.root),
        {digest: Raw(chunks[digest]) for digest in sorted(chunks)},
        tuple(sorted(commit.dropped)),
        tuple(sorted(commit.carried)),
        None
        if events is None
        else EventsPart(events.first_seq, events.count, Raw(events.body), events.refers, tuple(events.own)),
    )


def _checkpoint_part(info: CheckpointInfo, commit: Commit) -> CheckpointPart:
    return CheckpointPart(
        info.checkpoint_id,
        info.workflow_name,
        info.iteration_count,
        info.previous_checkpoint_id,
        UNSET if info.timestamp == commit.timestamp else info.timestamp,
        UNSET if info.run_id == (commit.run_id or None) else info.run_id,
        UNSET if info.status == commit.status else info.status,
    )


def visible_part(commit: Commit, standing: ThreadHeader) -> bytes:
    """All that a reader can see of a commit: the same in every store that has it. Empty if that is nothing.

    Which chunks there are is no part of it: a store may have freed some already that nobody needs. Roots and events
    name theirs by their digests.
    """
    line = commit_line(commit, standing)
    if line.checkpoint is None and line.events is None:
        return b""
    told = None if line.events is None else [line.events.first_seq, line.events.count, line.events.body]
    return msgspec.json.encode([line.number, line.timestamp, line.run_id, line.checkpoint, line.root, told])


# ---------------------------------------------------------------- back


def standing_of(line: ThreadLine) -> ThreadHeader:
    return ThreadHeader(
        line.thread_id,
        line.workflow,
        line.number,
        line.fence,
        line.status,
        line.updated_at,
        line.last_seq,
        line.first_seq,
        line.head,
        line.due_at,
        [
            PendingRequest(line.thread_id, one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)
            for one in line.requests
        ],
        [JournalEntry(number, delivery_id, bytes(body)) for number, delivery_id, body in line.journal],
        [InboxItem(item_id, kind, bytes(body)) for item_id, kind, body in line.inbox],
        line.consumed,
        line.pins,
    )


def commit_of(line: CommitLine, thread_id: str, pins: Container[int]) -> Commit:
    one, info = line.checkpoint, None
    if one is not None:
        info = CheckpointInfo(
            one.checkpoint_id,
            thread_id,
            one.workflow,
            line.number,
            one.iteration,
            one.previous,
            line.timestamp if one.timestamp is UNSET else one.timestamp,
            (line.run_id or None) if one.run_id is UNSET else one.run_id,
            line.status if one.status is UNSET else one.status,
            line.number in pins,
        )
    return Commit(
        Lease(thread_id, "", 0),
        line.number,
        info,
        None if line.root == NOTHING else bytes(line.root),
        None if line.events is None else _events_of(line.events, line, info),
        status=line.status,
        run_id=line.run_id,
        timestamp=line.timestamp,
        parent=line.parent,
        chunks={digest: bytes(chunk) for digest, chunk in line.chunks.items()},
        dropped=line.dropped,
        carried=line.carried,
    )


def _events_of(events: EventsPart, line: CommitLine, info: CheckpointInfo | None) -> LoggedEvents:
    of_commit = (line.number, line.run_id, line.timestamp, info)
    return LoggedEvents(events.first_seq, events.count, bytes(events.body), events.refers, events.own, *of_commit)
