"""The file of one exported thread: JSON lines in UTF-8, each with a checksum. Readable with any tool.

The first line has the kind and version of the file, and the header of the thread. One line for each commit follows, in
order. The last line has their count and the SHA-256 of all bytes before it, which detects a file that was cut off. The
checksum of a line covers the thread's id and the line's index: a line that was moved, repeated, or taken from another
file fails it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from perdure.errors import NewerFormat, NoThreadFile
from perdure.names import digest_of
from perdure.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    PendingRequest,
    RequestPart,
    ThreadHeader,
)

_START = b'{"sum":"'
_AFTER_SUM = len(_START) + 22 + 2
_NOT_OURS = "it is not a file that export_thread wrote"
T = TypeVar("T")

VERSION = 1
NOTHING = Raw(b"null")
_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Id = Annotated[str, Meta(min_length=1)]


class AnyFirstLine(msgspec.Struct):
    """The fields of a first line that all versions have."""

    line: str
    version: int
    thread_id: _Id


class ThreadLine(msgspec.Struct, tag="perdure thread", tag_field="line", omit_defaults=True):
    """A `ThreadHeader`, whose fields have the same names."""

    version: int
    """Always written: a newer perdure writes a higher one."""
    thread_id: _Id
    workflow_name: str = field(name="workflow")
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
    """A `CheckpointInfo` without the fields that equal those of its commit."""

    checkpoint_id: _Id = field(name="id")
    workflow_name: str = field(name="workflow")
    iteration_count: _Count = field(name="iteration")
    previous_checkpoint_id: str | None = field(name="previous", default=None)
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


def _thread_line(header: ThreadHeader) -> ThreadLine:
    requests = sorted(header.requests, key=lambda request: request.request_id)
    parts = {
        "requests": msgspec.convert(requests, list[RequestPart], from_attributes=True),
        "journal": [(entry.number, entry.delivery_id, Raw(entry.body)) for entry in header.journal],
        "inbox": [(item.item_id, item.kind, Raw(item.body)) for item in header.inbox],
        "consumed": sorted(header.consumed),
        "pins": sorted(header.pins),
    }
    return ThreadLine(VERSION, **{**msgspec.structs.asdict(header), **parts})


def _commit_line(commit: Commit, header: ThreadHeader) -> CommitLine:
    """The line of a commit. It omits a pruned checkpoint and pruned events whose space is not freed yet, but not the
    chunks that other commits may need."""
    info, events = commit.info, commit.events
    chunks = dict(commit.chunks)
    if events is not None and events.first_seq < header.first_seq:
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
    names = (info.checkpoint_id, info.workflow_name, info.iteration_count, info.previous_checkpoint_id)
    repeated = _repeated_fields(commit)
    own = {name: getattr(info, name) for name, value in repeated.items() if getattr(info, name) != value}
    return CheckpointPart(*names, **own)


def _repeated_fields(commit: Commit | CommitLine) -> dict[str, Any]:
    """The fields of a commit that most checkpoints repeat."""
    return {"timestamp": commit.timestamp, "run_id": commit.run_id or None, "status": commit.status}


def visible_part(commit: Commit, header: ThreadHeader) -> bytes:
    """The readable content of a commit, equal in every store that has it; empty for a commit without any.

    It omits the chunks: a store may have freed some that no reader needs. Roots and events name theirs by digest.
    """
    line = _commit_line(commit, header)
    if line.checkpoint is None and line.events is None:
        return b""
    events = None if line.events is None else [line.events.first_seq, line.events.count, line.events.body]
    return msgspec.json.encode([line.number, line.timestamp, line.run_id, line.checkpoint, line.root, events])


def _read_header(line: ThreadLine) -> ThreadHeader:
    fields = msgspec.structs.asdict(line)
    del fields["version"]
    parts = {
        "requests": [PendingRequest(line.thread_id, *msgspec.structs.astuple(each)) for each in line.requests],
        "journal": [JournalEntry(number, delivery_id, bytes(body)) for number, delivery_id, body in line.journal],
        "inbox": [InboxItem(item_id, kind, bytes(body)) for item_id, kind, body in line.inbox],
    }
    return ThreadHeader(**{**fields, **parts})


def _read_commit(line: CommitLine, thread_id: str, pins: Container[int]) -> Commit:
    number, info, events = line.number, None, None
    if line.checkpoint is not None:
        fields = _repeated_fields(line)
        fields |= {key: value for key, value in msgspec.structs.asdict(line.checkpoint).items() if value is not UNSET}
        info = CheckpointInfo(**fields, thread_id=thread_id, number=number, is_pinned=number in pins)
    if line.events is not None:
        part, of_commit = line.events, (number, line.run_id, line.timestamp, info)
        events = LoggedEvents(part.first_seq, part.count, bytes(part.body), part.refers, part.own, *of_commit)
    whole = msgspec.structs.asdict(line)
    del whole["checkpoint"]
    root = None if line.root == NOTHING else bytes(line.root)
    chunks = {digest: bytes(chunk) for digest, chunk in line.chunks.items()}
    parts = {"lease": Lease(thread_id, "", 0), "info": info, "root": root, "events": events, "chunks": chunks}
    return Commit(**{**whole, **parts})


_first_lines = msgspec.json.Decoder(AnyFirstLine)
_thread_lines = msgspec.json.Decoder(ThreadLine)
_lines = msgspec.json.Decoder(CommitLine | EndLine)


def _checksum(thread_id: str, index: int, content: bytes) -> bytes:
    return digest_of(b"%b\0%d\0%b" % (thread_id.encode(), index, content)).encode()


class DumpWriter:
    """Writes a thread to an open file, commit by commit."""

    def __init__(self, file: BinaryIO, header: ThreadHeader) -> None:
        self._file = file
        self._header = header
        self._digest = sha256()
        self.count = 0
        """Written commits."""
        self.size = 0
        """Written bytes."""
        self._write(_thread_line(header), 0)

    def add(self, commit: Commit) -> None:
        self.count += 1
        self._write(_commit_line(commit, self._header), self.count)

    def end(self) -> str:
        """Write the last line, which completes the file. Returns the digest of all before it."""
        digest = self._digest.hexdigest()
        self._write(EndLine(self.count, digest), self.count + 1)
        self._file.flush()
        return digest

    def _write(self, line: ThreadLine | CommitLine | EndLine, index: int) -> None:
        data = msgspec.json.encode(line)
        if b"\n" in data:
            raise ValueError("A store keeps JSON without line breaks, but this commit has one.")
        whole = b'%b%b",%b\n' % (_START, _checksum(self._header.thread_id, index, data), data[1:])
        self._digest.update(whole)
        self._file.write(whole)
        self.size += len(whole)


class DumpReader:
    """Reads the file of a `DumpWriter`. Raises NoThreadFile with the line of the damage."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """`name`: of the file, for messages. Raises NoThreadFile, or NewerFormat for a file of a newer perdure."""
        self._file = file
        self._name = name
        self._digest = sha256()
        self._index = 0
        """The index of the last read line."""
        self.digest = ""
        """The digest of all before the last line, after that was read."""
        file.seek(0)
        self.header = self._read_first()

    def _read_first(self) -> ThreadHeader:
        start = self._file.read(len(_START))
        if start != _START:
            raise NoThreadFile(self._name, _NOT_OURS if start else "it is empty")
        self._file.seek(0)
        data = self._file.readline()
        content = self._content(data)
        first = self._decode(_first_lines, content)
        if first.line != "perdure thread":
            raise NoThreadFile(self._name, _NOT_OURS)
        self._verify(data, content, first.thread_id)
        if first.version > VERSION:
            raise NewerFormat(self._name, first.version, VERSION)
        return _read_header(self._decode(_thread_lines, content))

    def commits(self) -> Iterator[Commit]:
        """In order, each verified. Verifies the last line of the file before the iteration ends."""
        pins = frozenset(self.header.pins)
        while data := self._file.readline():
            self._index += 1
            digest = self._digest.hexdigest()
            content = self._content(data)
            self._verify(data, content, self.header.thread_id)
            line = self._decode(_lines, content)
            if isinstance(line, EndLine):
                if line.commits != self._index - 1:
                    raise self.error(f"it counts {line.commits} commits, but the file has {self._index - 1}")
                if line.sha256 != digest:
                    raise self.error("the lines before it do not match its digest")
                if self._file.read(1):
                    raise NoThreadFile(self._name, f"something follows line {self._index + 1}, which is its last")
                self.digest = digest
                return
            yield _read_commit(line, self.header.thread_id, pins)
        raise NoThreadFile(self._name, f"it was cut off after line {self._index + 1}")

    def error(self, reason: str) -> NoThreadFile:
        return NoThreadFile(self._name, f"line {self._index + 1} is damaged: {reason}")

    def _content(self, data: bytes) -> bytes:
        if not data.startswith(_START) or len(data) < _AFTER_SUM:
            raise self.error("it is not a line that export_thread wrote")
        if not data.endswith(b"\n"):
            raise self.error("it was cut off")
        return b"{" + data[_AFTER_SUM:-1]

    def _verify(self, data: bytes, content: bytes, thread_id: str) -> None:
        checksum = data[len(_START) : _AFTER_SUM]
        if checksum != _checksum(thread_id, self._index, content) + b'",':
            raise self.error("its content does not match its checksum, or it belongs to another line")
        self._digest.update(data)

    def _decode(self, decoder: msgspec.json.Decoder[T], content: bytes) -> T:
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.error(f"it was changed: {error}") from error
