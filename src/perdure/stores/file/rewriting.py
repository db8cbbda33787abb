"""The lines of a file that is rewritten: without pruned checkpoints, as those of a copy, or with changed payloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import urandom

import msgspec

from perdure.records import Commit, ThreadHeader
from perdure.stores.file.lines import (
    FileCommitLine,
    FileRequestPart,
    FileThreadLine,
    JournalLine,
    Line,
    LineContext,
    PostLine,
    commit_line,
)
from perdure.stores.garbage import PackedCommit, PrunedCommit, prune_bodies
from perdure.stores.packing import Changes, pack_body, repack_body, unpack_body


@dataclass(frozen=True)
class PendingLines:
    """What is not settled in a thread."""

    requests: Sequence[FileRequestPart]
    posts: Sequence[PostLine]
    journal: Sequence[JournalLine]


def prune_lines(
    lines: Sequence[Line], pruned: Collection[int], first: FileThreadLine, pending: PendingLines
) -> list[Line]:
    """The lines without these checkpoints.

    `first` describes the thread, and `pending` what is not settled in it: the lines that did so may be dropped.
    """
    commits = {line.number: line for line in lines if isinstance(line, FileCommitLine)}
    packed = [
        PackedCommit(line.number, line.parent, line.checkpoint_id is not None, unpack_body(bytes(line.body)))
        for line in commits.values()
    ]
    changed = {commit.number: commit for commit in prune_bodies(packed, pruned, first.events_dropped_before)}
    kept = [
        line if number not in changed else _change_line(line, changed[number])
        for number, line in commits.items()
        if number not in changed or not changed[number].is_empty
    ]
    head = max((line.number for line in kept if line.checkpoint_id is not None), default=0)
    is_moved = any(line.checkpoint_id is not None and line.number > head for line in commits.values())
    settled = [
        msgspec.structs.replace(
            line,
            unsettled=(),
            consumed=(),
            requests=None,
            due_at=line.due_at if line.number == head and not is_moved else None,
            prunes=(),
            events_dropped_before=0,
        )
        for line in kept
    ]
    first = msgspec.structs.replace(first, requests=() if is_moved else pending.requests)
    return [first, *settled, *pending.posts, *(() if is_moved else pending.journal)]


def _change_line(line: FileCommitLine, change: PrunedCommit) -> FileCommitLine:
    return msgspec.structs.replace(
        line,
        body=msgspec.Raw(repack_body(change.body)),
        parent=change.parent,
        checkpoint_id=line.checkpoint_id if change.has_checkpoint else None,
        first_seq=line.first_seq if change.has_events else 0,
        events=line.events if change.has_events else 0,
    )


def copy_lines(lines: Sequence[Line], first: FileThreadLine) -> list[Line]:
    """The lines of a copy whose first line is `first`: new checkpoint ids, no journal and no inbox."""
    # In a rewritten file the first line has the pending requests, not the commit that made them.
    requests = next((line.requests for line in lines if isinstance(line, FileThreadLine)), ())
    copies: list[Line] = [
        msgspec.structs.replace(
            line,
            checkpoint_id=None if line.checkpoint_id is None else urandom(12).hex(),
            fence=0,
            unsettled=(),
            consumed=(),
            prunes=(),
            events_dropped_before=0,
        )
        for line in lines
        if isinstance(line, FileCommitLine)
    ]
    return [msgspec.structs.replace(first, requests=requests), *copies]


def lines_of_thread(standing: ThreadHeader, commits: Iterable[Commit], first: FileThreadLine) -> Iterator[Line]:
    """The lines of a thread as another store had it."""
    yield first
    for commit in commits:
        line = commit_line(commit, pack_body(commit), LineContext(last_seq=-1))
        yield msgspec.structs.replace(line, due_at=standing.due_at) if commit.number == standing.head else line
    for item in standing.inbox:
        yield PostLine(item.item_id, item.kind, msgspec.Raw(item.body))
    for entry in standing.journal:
        yield JournalLine(standing.fence, [(entry.delivery_id, msgspec.Raw(entry.body))])


def change_payloads(changes: Changes, line: Line) -> Line:
    """Put all payloads of a line through the changes."""
    if isinstance(line, FileCommitLine):
        body = changes.body(line.number, unpack_body(bytes(line.body)))
        return msgspec.structs.replace(line, body=msgspec.Raw(repack_body(body)))
    if isinstance(line, JournalLine):
        entries = [
            (delivery_id, changes.change_raw("journal", str(delivery_id), body)) for delivery_id, body in line.entries
        ]
        return msgspec.structs.replace(line, entries=entries)
    if isinstance(line, PostLine):
        return msgspec.structs.replace(line, body=changes.change_raw("inbox", line.item_id, line.body))
    return line
