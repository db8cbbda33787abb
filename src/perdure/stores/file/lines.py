"""The lines of a thread's file: JSON, one line for each write that was acknowledged, each proved by a checksum.

The first line names the thread, and its position when the file was last rewritten. The checksum covers the thread's id,
so that a line in another thread's file is not valid there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec

from perdure.errors import NewerFormat
from perdure.names import digest_of
from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents, PendingRequest, RequestPart, ThreadHeader
from perdure.stores.packing import from_timestamp, pack_body, to_timestamp

VERSION = 1
START = b'{"sum":"'
_AFTER_SUM = len(START) + 22 + 2


class FileThreadLine(msgspec.Struct, tag="thread", tag_field="line", omit_defaults=True):
    thread_id: str
    version: int
    """Always written: another format has another version."""
    number: int = 0
    fence: int = 0
    last_seq: int = 0
    generation: str = ""
    """Random: a rewritten file has another one."""
    workflow_name: str | None = msgspec.field(name="workflow", default=None)
    status: str = ""
    updated_at: str = ""
    consumed: Sequence[str] = ()
    """Items that were in the inbox: posting them again does nothing."""
    first_seq: int = 1
    """The oldest event that is kept."""
    events_dropped_before: int = 0
    """Commits before this one have lost their events."""
    pins: Sequence[int] = ()
    """Numbers of the checkpoints that are pinned."""
    requests: Sequence[RequestPart] = ()
    """The requests that were pending then."""
    garbage: int = 0
    """Not 0: commits may have something that can be freed."""


class FileCommitLine(msgspec.Struct, omit_defaults=True):
    """The only kind without a `line` field: most lines are commits."""

    number: int
    fence: int
    body: msgspec.Raw
    """As `packing.py` packs it."""
    status: str = ""
    timestamp: int | str = msgspec.field(name="at", default="")
    """Microseconds since 1970, UTC, where the text can be made from them."""
    run_id: str | None = msgspec.field(name="run", default=None)
    """None: that of the commit before."""
    checkpoint_id: str | None = msgspec.field(name="id", default=None)
    workflow_name: str | None = msgspec.field(name="workflow", default=None)
    """None: that of the checkpoint before."""
    iteration_count: int = msgspec.field(name="iteration", default=0)
    previous_checkpoint_id: str | None = msgspec.field(name="previous", default=None)
    """Where it belongs to another thread; otherwise `parent` names it."""
    parent: int | None = None
    first_seq: int = msgspec.field(name="seq", default=0)
    """0: the seq after the last event before."""
    events: int = 0
    unsettled: Sequence[int] = ()
    consumed: Sequence[str] = ()
    requests: Sequence[RequestPart] | None = None
    due_at: datetime | None = None
    prunes: Sequence[int] = ()
    """Numbers of checkpoints that this commit prunes."""
    events_dropped_before: int = 0
    """The commit drops the events of commits before this one."""


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
    """The bytes are not a line as it was written."""


def to_line(thread_id: str, line: Line) -> bytes:
    data = msgspec.json.encode(line)
    if b"\n" in data:
        raise ValueError("A payload of a file store must be JSON without line breaks.")
    return b'%b%b",%b\n' % (START, digest_of(thread_id.encode() + b"\0" + data).encode(), data[1:])


def from_line(thread_id: str, data: bytes) -> Line:
    """Raises NotALine, or NewerFormat for a file of another version."""
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
    if isinstance(line, FileThreadLine) and line.version != VERSION:
        raise NewerFormat(f"the file of thread {thread_id}", line.version, VERSION)
    return line


class LineContext(NamedTuple):
    """Fields of the lines before a line, which it need not repeat."""

    workflow_name: str | None = None
    run_id: str | None = None
    last_seq: int = 0


def commit_line(commit: Commit, context: LineContext) -> FileCommitLine:
    info, events, requests = commit.info, commit.events, commit.requests
    name = None if info is None else info.workflow_name
    return FileCommitLine(
        commit.number,
        commit.lease.fence,
        msgspec.Raw(pack_body(commit)),
        commit.status,
        from_timestamp(commit.timestamp),
        None if commit.run_id == context.run_id else commit.run_id,
        None if info is None else info.checkpoint_id,
        None if name == context.workflow_name else name,
        0 if info is None else info.iteration_count,
        None if info is None or commit.parent is not None else info.previous_checkpoint_id,
        commit.parent,
        0 if events is None or events.first_seq == context.last_seq + 1 else events.first_seq,
        0 if events is None else events.count,
        tuple(commit.unsettled),
        tuple(commit.consumed),
        None if requests is None else msgspec.convert(requests, list[RequestPart], from_attributes=True),
        commit.due_at,
        tuple(commit.prunes),
        commit.prunes_events_before,
    )


def _pending_requests(thread_id: str, parts: Sequence[RequestPart]) -> list[PendingRequest]:
    return [PendingRequest(thread_id, *msgspec.structs.astuple(part)) for part in parts]


_OF_COMMIT = ("unsettled", "consumed", "status", "parent", "due_at", "prunes")
"""The fields that a commit takes over from its line."""


def to_commit(thread_id: str, line: FileCommitLine, context: LineContext) -> Commit:
    """The commit of a line, without its payload."""
    info, timestamp = None, to_timestamp(line.timestamp)
    run_id = context.run_id if line.run_id is None else line.run_id
    if line.checkpoint_id is not None:
        workflow_name = (context.workflow_name if line.workflow_name is None else line.workflow_name) or ""
        position = (line.number, line.iteration_count, line.previous_checkpoint_id, timestamp)
        info = CheckpointInfo(line.checkpoint_id, thread_id, workflow_name, *position, run_id or None, line.status)
    return Commit(
        Lease(thread_id, "", line.fence),
        line.number,
        info,
        events=LoggedEvents(line.first_seq or context.last_seq + 1, line.events, b"") if line.events else None,
        run_id=run_id or "",
        timestamp=timestamp,
        requests=None if line.requests is None else _pending_requests(thread_id, line.requests),
        prunes_events_before=line.events_dropped_before,
        **{name: getattr(line, name) for name in _OF_COMMIT},
    )


# ---------------------------------------------------------------- a thread as a whole

_OF_HEADER = ("thread_id", "number", "fence", "last_seq", "status", "updated_at", "consumed", "first_seq", "pins")
"""The fields that a first line takes over from the header of its thread."""


def lines_of_thread(
    header: ThreadHeader, commits: Iterable[Commit], events_dropped_before: int, *, has_garbage: bool
) -> Iterator[Line]:
    """The lines of a file that is written as a whole: the first describes the thread, and each commit is complete."""
    yield FileThreadLine(
        version=VERSION,
        generation=os.urandom(8).hex(),
        workflow_name=header.workflow_name or None,
        events_dropped_before=events_dropped_before,
        requests=msgspec.convert(header.requests, list[RequestPart], from_attributes=True),
        garbage=int(has_garbage),
        **{name: getattr(header, name) for name in _OF_HEADER},
    )
    for commit in commits:
        line = commit_line(commit, LineContext(last_seq=-1))
        yield msgspec.structs.replace(line, due_at=header.due_at if commit.number == header.head else None)
    for item in header.inbox:
        yield PostLine(item.item_id, item.kind, msgspec.Raw(item.body))
    for entry in header.journal:
        yield JournalLine(header.fence, [(entry.delivery_id, msgspec.Raw(entry.body))])


def thread_header(line: FileThreadLine, head: int | None, due_at: datetime | None) -> ThreadHeader:
    """The thread that a first line describes, whose newest checkpoint is this."""
    return ThreadHeader(
        workflow_name=line.workflow_name or "",
        head=head,
        due_at=due_at,
        requests=_pending_requests(line.thread_id, line.requests),
        **{name: getattr(line, name) for name in _OF_HEADER},
    )
