"""The lines of a thread's file written anew: without the checkpoints that go, or as those of another thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os import urandom

import msgspec

from holdfast.stores.lines import CommitLine, JournalLine, Line, PostLine, RequestPart, ThreadLine
from holdfast.stores.packing import repack_body, unpack_body
from holdfast.stores.pruning import Changed, PackedCommit, prune_bodies


@dataclass(frozen=True)
class Waiting:
    """What is not settled in a thread."""

    requests: Sequence[RequestPart]
    posts: Sequence[PostLine]
    journal: Sequence[JournalLine]


def pruned_lines(lines: Sequence[Line], doomed: Collection[int], first: ThreadLine, waiting: Waiting) -> list[Line]:
    """`first` says where the thread stands and `waiting` what waits in it, since the lines that did may be among those
    that go."""
    commits = {line.number: line for line in lines if isinstance(line, CommitLine)}
    packed = [
        PackedCommit(line.number, line.parent, line.checkpoint_id is not None, unpack_body(bytes(line.body)))
        for line in commits.values()
    ]
    changed = {one.number: one for one in prune_bodies(packed, doomed)}
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
            requests=waiting.requests if line.number == head and not is_moved else None,
            due_at=line.due_at if line.number == head and not is_moved else None,
        )
        for line in kept
    ]
    return [first, *told, *waiting.posts, *(() if is_moved else waiting.journal)]


def _changed(line: CommitLine, change: Changed) -> CommitLine:
    return msgspec.structs.replace(
        line,
        body=msgspec.Raw(repack_body(change.body)),
        parent=change.parent,
        checkpoint_id=line.checkpoint_id if change.has_checkpoint else None,
    )


def copied_lines(lines: Sequence[Line], first: ThreadLine) -> list[Line]:
    """As lines of the thread that `first` says, under new checkpoint ids; without journal and inbox."""
    copies: list[Line] = [
        msgspec.structs.replace(
            line,
            checkpoint_id=None if line.checkpoint_id is None else urandom(12).hex(),
            fence=0,
            unsettled=(),
            consumed=(),
        )
        for line in lines
        if isinstance(line, CommitLine)
    ]
    return [first, *copies]
