"""The lines of a thread's file: JSON, one line for each thing that was acknowledged, each proved by a checksum.

The first line says which thread it is, and where it stood when the file was last written anew. The checksum covers the
thread's id, so that a line in another thread's file is none of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec

from perdure.digests import digest_of
from perdure.errors import NewerFormat
from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents, PendingRequest
from perdure.stores.packing import from_timestamp, to_timestamp

VERSION = 2
START = b'{"sum":"'
_AFTER_SUM = len(START) + 22 + 2


class FileThreadLine(msgspec.Struct, tag="thread", tag_field="line", omit_defaults=True):
    thread_id: str
    version: int
    """Always written: a newer perdure says a higher one."""
    number: int = 0
    fence: int = 0
    last_seq: int = 0
    written: str = ""
    """Tells a file that was written anew from the one before."""
    workflow_name: str | None = msgspec.field(name="workflow", default=None)
    status: str = ""
    updated_at: str = ""
    consumed: Sequence[str] = ()
    """Items that were in the inbox: posting them again does nothing."""
    first_seq: int = 1
    """The oldest event that is kept."""
    silent_before: int = 0
    """Events of commits before this one are forgotten."""
    pins: Sequence[int] = ()
    """Numbers of the checkpoints that are pinned."""
    requests: Sequence[FileRequestPart] = ()
    """Those that were pending then."""
    forgotten: int = 0
    """Commits of which something may still have to be freed."""


class FileRequestPart(msgspec.Struct, omit_defaults=True):
    request_id: str
    executor_id: str
    asked_at: datetime
    deadline: datetime | None = None
    assignee: str | None = None


class FileCommitLine(msgspec.Struct, omit_defaults=True):
    """The one kind that does not say what it is: most lines are commits."""

    number: int
    fence: int
    body: msgspec.Raw
    """As `packing.py` packs it."""
    status: str = ""
    timestamp: int | str = msgspec.field(name="at", default="")
    """Microseconds since 1970, UTC, where these say all of it."""
    run_id: str | None = msgspec.field(name="run", default=None)
    """None: that of the commit before."""
    checkpoint_id: str | None = msgspec.field(name="id", default=None)
    workflow_name: str | None = msgspec.field(name="workflow", default=None)
    """None: that of the checkpoint before."""
    iteration_count: int = msgspec.field(name="iteration", default=0)
    previous_checkpoint_id: str | None = msgspec.field(name="previous", default=None)
    """Where it belongs to another thread; else `parent` says which it is."""
    parent: int | None = None
    first_seq: int = msgspec.field(name="seq", default=0)
    """0: that after the last one before."""
    events: int = 0
    unsettled: Sequence[int] = ()
    consumed: Sequence[str] = ()
    requests: Sequence[FileRequestPart] | None = None
    due_at: datetime | None = None
    prunes: Sequence[int] = msgspec.field(name="forgets", default=())
    """Numbers of checkpoints that go with it."""
    silent_before: int = 0
    """Events of commits before this one go, too."""


class JournalLine(msgspec.Struct, tag="journal", tag_field="line"):
    """Entries that were written together: one line, so that a power cut leaves all of them or none."""

    fence: int
    entries: list[tuple[int, msgspec.Raw]]
    """Delivery and body of each."""


class PostLine(msgspec.Struct, tag="post", tag_field="line"):
    item_id: str
    kind: str
    body: msgspec.Raw


class PinLine(msgspec.Struct, tag="pin", tag_field="line"):
    number: int
    is_pinned: bool


Line: TypeAlias = FileThreadLine | FileCommitLine | JournalLine | PostLine | PinLine

_decoder = msgspec.json.Decoder(FileThreadLine | JournalLine | PostLine | PinLine)
_commit_decoder = msgspec.json.Decoder(FileCommitLine)


class NotALine(ValueError):
    """Bytes that are not a line as it was written."""


def to_line(thread_id: str, line: Line) -> bytes:
    data = msgspec.json.encode(line)
    if b"\n" in data:
        raise ValueError("What a file store keeps is JSON without line breaks.")
    return b'%b%b",%b\n' % (START, digest_of(thread_id.encode() + b"\0" + data).encode(), data[1:])


def from_line(thread_id: str, data: bytes) -> Line:
    """Raises NotALine, or NewerFormat for what a newer perdure wrote."""
    if not data.startswith(START) or not data.endswith(b"\n"):
        raise NotALine("it is not a line that was written whole")
    content = b"{" + data[_AFTER_SUM:-1]
    if digest_of(thread_id.encode() + b"\0" + content).encode() != data[len(START) : len(START) + 22]:
        raise NotALine("its content does not have its checksum")
    try:
        is_commit = not content.startswith(b'{"line":')
        line: Line = _commit_decoder.decode(content) if is_commit else _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise NotALine(str(error)) from error
    if isinstance(line, FileThreadLine) and line.version > VERSION:
        raise NewerFormat(f"the file of thread {thread_id}", line.version, VERSION)
    return line


class Before(NamedTuple):
    """What the commits before a line said, and it need not say again."""

    workflow_name: str | None = None
    run_id: str | None = None
    last_seq: int = 0
    version: int = VERSION
    """Of the file."""

    def after(self, line: Line) -> Before:
        """What is said once there is this line too, which is complete."""
        if isinstance(line, FileThreadLine):
            return Before(line.workflow_name or self.workflow_name, self.run_id, max(self.last_seq, line.last_seq))
        if not isinstance(line, FileCommitLine):
            return self
        last = line.first_seq + line.events - 1 if line.events else 0
        return Before(line.workflow_name, line.run_id, max(self.last_seq, last))


def commit_line(commit: Commit, body: bytes, before: Before) -> FileCommitLine:
    info, events, asked = commit.info, commit.events, commit.requests
    name = None if info is None else info.workflow_name
    return FileCommitLine(
        commit.number,
        commit.lease.fence,
        msgspec.Raw(body),
        commit.status,
        from_timestamp(commit.timestamp),
        None if commit.run_id == before.run_id else commit.run_id,
        None if info is None else info.checkpoint_id,
        None if name == before.workflow_name else name,
        0 if info is None else info.iteration_count,
        None if info is None or commit.parent is not None else info.previous_checkpoint_id,
        commit.parent,
        0 if events is None or events.first_seq == before.last_seq + 1 else events.first_seq,
        0 if events is None else events.count,
        tuple(commit.unsettled),
        tuple(commit.consumed),
        None if asked is None else [request_part(one) for one in asked],
        commit.due_at,
        tuple(commit.prunes),
        commit.prunes_events_before,
    )


def request_part(one: PendingRequest) -> FileRequestPart:
    return FileRequestPart(one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)


def pending_request(thread_id: str, one: FileRequestPart) -> PendingRequest:
    return PendingRequest(thread_id, one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)


def completed(line: FileCommitLine, before: Before) -> FileCommitLine:
    """The line with all that it left to those before it."""
    return msgspec.structs.replace(
        line,
        run_id=before.run_id if line.run_id is None else line.run_id,
        workflow_name=before.workflow_name if line.workflow_name is None else line.workflow_name,
        first_seq=before.last_seq + 1 if line.events and not line.first_seq else line.first_seq,
    )


def commit_of(thread_id: str, line: FileCommitLine) -> Commit:
    """The commit again, as far as an index needs it: its payload stays in the line. For one that is complete."""
    info = None
    timestamp = to_timestamp(line.timestamp)
    if line.checkpoint_id is not None:
        info = CheckpointInfo(
            line.checkpoint_id,
            thread_id,
            line.workflow_name or "",
            line.number,
            line.iteration_count,
            line.previous_checkpoint_id,
            timestamp,
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
        line.run_id or "",
        timestamp,
        line.parent,
        {},
        (),
        None if asked is None else [pending_request(thread_id, one) for one in asked],
        line.due_at,
        line.prunes,
        line.silent_before,
    )
