"""The lines of a thread's file: JSON, one line for each thing that was acknowledged, each proved by a checksum.

The first line says which thread it is, and where it stood when the file was last written anew. The checksum covers the
thread's id, so that a line in another thread's file is none of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from holdfast.errors import NewerFormat
from holdfast.records import CheckpointInfo, Commit, Lease, LoggedEvents, PendingRequest
from holdfast.stores.columns import digest

VERSION = 1
_SUM = b'{"sum":"'
_AFTER_SUM = len(_SUM) + 22 + 2


class ThreadLine(msgspec.Struct, tag="thread", tag_field="line", omit_defaults=True):
    thread_id: str
    version: int = VERSION
    number: int = 0
    fence: int = 0
    last_seq: int = 0
    written: str = ""
    """Tells a file that was written anew from the one before."""
    status: str = ""
    updated_at: str = ""
    consumed: Sequence[str] = ()
    """Items that were in the inbox: posting them again does nothing."""


class CheckpointPart(msgspec.Struct, omit_defaults=True):
    checkpoint_id: str = msgspec.field(name="id")
    workflow_name: str = msgspec.field(name="workflow")
    iteration_count: int = msgspec.field(name="iteration", default=0)
    previous_checkpoint_id: str | None = msgspec.field(name="previous", default=None)
    """Where it belongs to another thread; else `parent` says which it is."""


class RequestPart(msgspec.Struct, omit_defaults=True):
    request_id: str
    executor_id: str
    asked_at: datetime
    deadline: datetime | None = None
    assignee: str | None = None


class CommitLine(msgspec.Struct, tag="commit", tag_field="line", omit_defaults=True):
    number: int
    fence: int
    body: msgspec.Raw
    """As `packing.py` packs it."""
    status: str = ""
    run_id: str = msgspec.field(name="run", default="")
    timestamp: str = msgspec.field(name="at", default="")
    checkpoint: CheckpointPart | None = None
    parent: int | None = None
    first_seq: int = msgspec.field(name="seq", default=0)
    events: int = 0
    unsettled: Sequence[int] = ()
    consumed: Sequence[str] = ()
    requests: Sequence[RequestPart] | None = None
    due_at: datetime | None = None


class JournalLine(msgspec.Struct, tag="journal", tag_field="line"):
    fence: int
    delivery_id: int
    body: msgspec.Raw


class PostLine(msgspec.Struct, tag="post", tag_field="line"):
    item_id: str
    kind: str
    body: msgspec.Raw


Line: TypeAlias = ThreadLine | CommitLine | JournalLine | PostLine

_decoder = msgspec.json.Decoder(ThreadLine | CommitLine | JournalLine | PostLine)


class NoLine(ValueError):
    """Bytes that are not a line as it was written."""


def to_line(thread_id: str, line: Line) -> bytes:
    data = msgspec.json.encode(line)
    if b"\n" in data:
        raise ValueError("What a file store keeps is JSON without line breaks.")
    return b'%b%b",%b\n' % (_SUM, digest(thread_id.encode() + b"\0" + data).encode(), data[1:])


def from_line(thread_id: str, data: bytes) -> Line:
    """Raises NoLine, or NewerFormat for what a newer holdfast wrote."""
    if not data.startswith(_SUM) or not data.endswith(b"\n"):
        raise NoLine("it is not a line that was written whole")
    content = b"{" + data[_AFTER_SUM:-1]
    if digest(thread_id.encode() + b"\0" + content).encode() != data[len(_SUM) : len(_SUM) + 22]:
        raise NoLine("its content does not have its checksum")
    try:
        line: Line = _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise NoLine(str(error)) from error
    if isinstance(line, ThreadLine) and line.version > VERSION:
        raise NewerFormat(f"the file of thread {thread_id}", line.version, VERSION)
    return line


def commit_line(commit: Commit, body: bytes) -> CommitLine:
    info, events = commit.info, commit.events
    return CommitLine(
        commit.number,
        commit.lease.fence,
        msgspec.Raw(body),
        commit.status,
        commit.run_id,
        commit.timestamp,
        None
        if info is None
        else CheckpointPart(
            info.checkpoint_id,
            info.workflow_name,
            info.iteration_count,
            None if commit.parent is not None else info.previous_checkpoint_id,
        ),
        commit.parent,
        0 if events is None else events.first_seq,
        0 if events is None else events.count,
        tuple(commit.unsettled),
        tuple(commit.consumed),
        None
        if commit.requests is None
        else [
            RequestPart(one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)
            for one in commit.requests
        ],
        commit.due_at,
    )


def commit_of(thread_id: str, line: CommitLine) -> Commit:
    """The commit again, as far as an index needs it: its payload stays in the line."""
    part = line.checkpoint
    info = None
    if part is not None:
        info = CheckpointInfo(
            part.checkpoint_id,
            thread_id,
            part.workflow_name,
            line.number,
            part.iteration_count,
            part.previous_checkpoint_id,
            line.timestamp,
            line.run_id or None,
            line.status,
        )
    asked = line.requests
    return Commit(
        Lease(thread_id, "", line.fence),
        line.number,
        info,
        None,
        LoggedEvents(line.first_seq, line.events, b"") if line.events else None,
        line.unsettled,
        line.consumed,
        line.status,
        line.run_id,
        line.timestamp,
        line.parent,
        {},
        (),
        None
        if asked is None
        else [
            PendingRequest(thread_id, one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)
            for one in asked
        ],
        line.due_at,
    )
