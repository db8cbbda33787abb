"""Payloads put in the place of others; and the lines of a thread's file written anew: without the checkpoints that go,
as those of another thread, or with other payloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import urandom

import msgspec

from perdure.records import Commit, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.file.lines import (
    Before,
    FileCommitLine,
    FileRequestPart,
    FileThreadLine,
    JournalLine,
    Line,
    PostLine,
    commit_line,
)
from perdure.stores.garbage import Changed, PackedCommit, prune_bodies
from perdure.stores.packing import NOTHING, Body, pack_body, repack_body, unpack_body


@dataclass(frozen=True)
class WaitingItems:
    """What is not settled in a thread."""

    requests: Sequence[FileRequestPart]
    posts: Sequence[PostLine]
    journal: Sequence[JournalLine]


def pruned_lines(
    lines: Sequence[Line], doomed: Collection[int], first: FileThreadLine, waiting: WaitingItems
) -> list[Line]:
    """`first` says where the thread stands and what it keeps, and `waiting` what waits in it, since the lines that did
    may be among those that go."""
    commits = {line.number: line for line in lines if isinstance(line, FileCommitLine)}
    packed = [
        PackedCommit(line.number, line.parent, line.checkpoint_id is not None, unpack_body(bytes(line.body)))
        for line in commits.values()
    ]
    changed = {one.number: one for one in prune_bodies(packed, doomed, first.silent_before)}
    kept = [
        line if number not in changed else _changed(line, changed[number])
        for number, line in commits.items()
        if number not in changed or not changed[number].is_empty
    ]
    head = max((line.number for line in kept if line.checkpoint_id is not None), default=0)
    is_moved = any(line.checkpoint_id is not None and line.number > head for line in commits.values())
    told = [
        msgspec.structs.replace(
            line,
            unsettled=(),
            consumed=(),
            requests=None,
            due_at=line.due_at if line.number == head and not is_moved else None,
            prunes=(),
            silent_before=0,
        )
        for line in kept
    ]
    first = msgspec.structs.replace(first, requests=() if is_moved else waiting.requests)
    return [first, *told, *waiting.posts, *(() if is_moved else waiting.journal)]


def _changed(line: FileCommitLine, change: Changed) -> FileCommitLine:
    return msgspec.structs.replace(
        line,
        body=msgspec.Raw(repack_body(change.body)),
        parent=change.parent,
        checkpoint_id=line.checkpoint_id if change.has_checkpoint else None,
        first_seq=line.first_seq if change.has_events else 0,
        events=line.events if change.has_events else 0,
    )


def copied_lines(lines: Sequence[Line], first: FileThreadLine) -> list[Line]:
    """As lines of the thread that `first` says, under new checkpoint ids; without journal and inbox."""
    # In a file that was pruned its own first line says what is asked, and not the commit that asked it.
    asked = next((line.requests for line in lines if isinstance(line, FileThreadLine)), ())
    copies: list[Line] = [
        msgspec.structs.replace(
            line,
            checkpoint_id=None if line.checkpoint_id is None else urandom(12).hex(),
            fence=0,
            unsettled=(),
            consumed=(),
            prunes=(),
            silent_before=0,
        )
        for line in lines
        if isinstance(line, FileCommitLine)
    ]
    return [msgspec.structs.replace(first, requests=asked), *copies]


def lines_of(standing: ThreadHeader, commits: Iterable[Commit], first: FileThreadLine) -> Iterator[Line]:
    """Those of a thread as another store had it."""
    yield first
    for commit in commits:
        line = commit_line(commit, pack_body(commit), Before(last_seq=-1))
        yield msgspec.structs.replace(line, due_at=standing.due_at) if commit.number == standing.head else line
    for item in standing.inbox:
        yield PostLine(item.item_id, item.kind, msgspec.Raw(item.body))
    for entry in standing.journal:
        yield JournalLine(standing.fence, [(entry.delivery_id, msgspec.Raw(entry.body))])


# ---------------------------------------------------------------- other payloads


class Changes:
    """Puts payloads through a change, and counts those that come back different."""

    def __init__(self, change: Rewrite) -> None:
        self._change = change
        self.count = 0

    def changed(self, kind: str, name: str, data: bytes) -> bytes:
        after = self._change(kind, name, data)
        self.count += after != data
        return after

    def body(self, number: int, body: Body) -> Body:
        """With all its payloads changed; the same one if none came back different."""
        before = self.count
        changed = Body(
            self._raw("root", str(number), body.root),
            {digest: self._raw("chunk", digest, chunk) for digest, chunk in body.chunks.items()},
            body.dropped,
            body.carried,
            self._raw("events", str(number), body.events),
            body.refers,
            body.own,
        )
        return body if self.count == before else changed

    def _raw(self, kind: str, name: str, data: msgspec.Raw) -> msgspec.Raw:
        return data if data is NOTHING else msgspec.Raw(self.changed(kind, name, bytes(data)))

    def line(self, line: Line) -> Line:
        """All payloads in a line."""
        if isinstance(line, FileCommitLine):
            body = self.body(line.number, unpack_body(bytes(line.body)))
            return msgspec.structs.replace(line, body=msgspec.Raw(repack_body(body)))
        if isinstance(line, JournalLine):
            entries = [(key, self._raw("journal", str(key), body)) for key, body in line.entries]
            return msgspec.structs.replace(line, entries=entries)
        if isinstance(line, PostLine):
            return msgspec.structs.replace(line, body=self._raw("inbox", line.item_id, line.body))
        return line
