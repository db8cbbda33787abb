"""The file of one exported thread: JSON lines in UTF-8, each proved by a checksum. Readable with any tool.

The first line says what the file is, its version, and where the thread stands. A line for each commit follows, in
order. The last line says how many there are, and the SHA-256 of all bytes before it, so that a file that was cut off is
known. A line's checksum covers the thread's id and the line's place: one that was moved, repeated, or taken from
another file does not have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import BinaryIO, TypeVar

import msgspec

from perdure.checkpoints.transfer.dump_lines import (
    VERSION,
    AnyFirstLine,
    CommitLine,
    EndLine,
    ThreadLine,
    commit_line,
    commit_of,
    standing_of,
    thread_line,
)
from perdure.digests import digest_of
from perdure.errors import NewerFormat, NoThreadFile
from perdure.records import Commit, ThreadHeader

_START = b'{"sum":"'
_AFTER_SUM = len(_START) + 22 + 2
_NOT_OURS = "it is not a file that export_thread wrote"
T = TypeVar("T")

_first_lines = msgspec.json.Decoder(AnyFirstLine)
_thread_lines = msgspec.json.Decoder(ThreadLine)
_lines = msgspec.json.Decoder(CommitLine | EndLine)


def _sum(thread_id: str, place: int, content: bytes) -> bytes:
    return digest_of(b"%b\0%d\0%b" % (thread_id.encode(), place, content)).encode()


class DumpWriter:
    """Writes a thread to a file that is open for it, commit by commit."""

    def __init__(self, file: BinaryIO, standing: ThreadHeader) -> None:
        self._file = file
        self._standing = standing
        self._digest = sha256()
        self.count = 0
        """Commits that were written."""
        self.size = 0
        """Bytes that were written."""
        self._write(thread_line(standing), 0)

    def add(self, commit: Commit) -> None:
        self.count += 1
        self._write(commit_line(commit, self._standing), self.count)

    def end(self) -> str:
        """The last line: only now is the file whole. Gives the digest of what is before it."""
        digest = self._digest.hexdigest()
        self._write(EndLine(self.count, digest), self.count + 1)
        self._file.flush()
        return digest

    def _write(self, line: ThreadLine | CommitLine | EndLine, place: int) -> None:
        data = msgspec.json.encode(line)
        if b"\n" in data:
            raise ValueError("What a store keeps is JSON without line breaks.")
        whole = b'%b%b",%b\n' % (_START, _sum(self._standing.thread_id, place, data), data[1:])
        self._digest.update(whole)
        self._file.write(whole)
        self.size += len(whole)


class DumpReader:
    """Reads what a `DumpWriter` wrote. Whatever is wrong with the file is a NoThreadFile that says where."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """`name`: of the file, for messages. Raises NoThreadFile, or NewerFormat for one of a newer perdure."""
        self._file = file
        self._name = name
        self._digest = sha256()
        self._place = 0
        """Of the line that was read last: how many are before it."""
        self.digest = ""
        """Of all before the last line, once that was read."""
        file.seek(0)
        self.standing = self._first()

    def _first(self) -> ThreadHeader:
        start = self._file.read(len(_START))
        if start != _START:
            raise NoThreadFile(self._name, _NOT_OURS if start else "it is empty")
        self._file.seek(0)
        data = self._file.readline()
        content = self._content(data)
        first = self._decoded(_first_lines, content)
        if first.line != "perdure thread":
            raise NoThreadFile(self._name, _NOT_OURS)
        self._prove(data, content, first.thread_id)
        if first.version > VERSION:
            raise NewerFormat(self._name, first.version, VERSION)
        return standing_of(self._decoded(_thread_lines, content))

    def commits(self) -> Iterator[Commit]:
        """In order, each proved. What follows the last one is proved, too, before this ends."""
        pins = frozenset(self.standing.pins)
        while data := self._file.readline():
            self._place += 1
            digest = self._digest.hexdigest()
            content = self._content(data)
            self._prove(data, content, self.standing.thread_id)
            line = self._decoded(_lines, content)
            if isinstance(line, EndLine):
                self._end(line, digest)
                return
            yield commit_of(line, self.standing.thread_id, pins)
        raise NoThreadFile(self._name, f"it was cut off after line {self._place + 1}")

    def wrong(self, reason: str) -> NoThreadFile:
        """About the line that was read last."""
        return NoThreadFile(self._name, f"line {self._place + 1} is damaged: {reason}")

    def _end(self, line: EndLine, digest: str) -> None:
        if line.commits != self._place - 1:
            raise self.wrong(f"it counts {line.commits} commits, and there are {self._place - 1}")
        if line.sha256 != digest:
            raise self.wrong("the lines before it are not those that it was written for")
        if self._file.read(1):
            raise NoThreadFile(self._name, f"something follows line {self._place + 1}, which is its last")
        self.digest = digest

    def _content(self, data: bytes) -> bytes:
        if not data.startswith(_START) or len(data) < _AFTER_SUM:
            raise self.wrong("it is not a line that export_thread wrote")
        if not data.endswith(b"\n"):
            raise self.wrong("it was cut off")
        return b"{" + data[_AFTER_SUM:-1]

    def _prove(self, data: bytes, content: bytes, thread_id: str) -> None:
        said = data[len(_START) : _AFTER_SUM]
        if said != _sum(thread_id, self._place, content) + b'",':
            raise self.wrong("its content does not have its checksum, or it belongs elsewhere")
        self._digest.update(data)

    def _decoded(self, decoder: msgspec.json.Decoder[T], content: bytes) -> T:
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.wrong(f"it is not what was written: {error}") from error


# ---------------------------------------------------------------- under another id


def renamed_standing(standing: ThreadHeader, thread_id: str) -> ThreadHeader:
    requests = [msgspec.structs.replace(one, thread_id=thread_id) for one in standing.requests]
    return msgspec.structs.replace(standing, thread_id=thread_id, requests=requests)


def renamed_commits(commits: Iterable[Commit], thread_id: str, checkpoint_ids: Iterable[str]) -> Iterator[Commit]:
    """As those of another thread. Each of these checkpoint ids gets a new one, wherever it stands; others are left."""
    new = {one: os.urandom(12).hex() for one in checkpoint_ids}
    for commit in commits:
        info, events = commit.info, commit.events
        if info is not None:
            info = msgspec.structs.replace(
                info,
                checkpoint_id=new[info.checkpoint_id],
                thread_id=thread_id,
                previous_checkpoint_id=new.get(info.previous_checkpoint_id or "", info.previous_checkpoint_id),
            )
        if events is not None:
            events = msgspec.structs.replace(events, info=info)
        lease = msgspec.structs.replace(commit.lease, thread_id=thread_id)
        yield msgspec.structs.replace(commit, lease=lease, info=info, events=events)
