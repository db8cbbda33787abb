"""The lines of a thread's file written anew: without the checkpoints that go, or as those of another thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from os import urandom

import msgspec

from holdfast.stores.lines import CheckpointPart, CommitLine, JournalLine, Line, PostLine, ThreadLine
from holdfast.stores.packing import repack_body, unpack_body
from holdfast.stores.pruning import PackedCommit, prune_bodies


def pruned_lines(lines: Sequence[Line], doomed: Collection[int]) -> list[Line]:
    """The first line says where the thread stands, since the commit that said so may be among those that go."""
    commits = {line.number: line for line in lines if isinstance(line, CommitLine)}
    packed = [
        PackedCommit(line.number, line.parent, line.checkpoint is not None, unpack_body(bytes(line.body)))
        for line in commits.values()
    ]
    changed = {one.number: one for one in prune_bodies(packed, doomed)}
    newest = max((number for number, line in commits.items() if line.checkpoint is not None), default=0)
    kept: list[Line] = []
    for line in lines:
        if isinstance(line, CommitLine):
            change = changed.get(line.number)
            if change is not None and change.is_empty:
                continue
            if change is not None:
                line = msgspec.structs.replace(
                    line,
                    body=msgspec.Raw(repack_body(change.body)),
                    parent=change.parent,
                    checkpoint=line.checkpoint if change.has_checkpoint else None,
                )
            if newest in doomed:  # what was asked and due at a head that goes is not so any more
                line = msgspec.structs.replace(line, requests=() if line.requests else None, due_at=None)
            kept.append(line)
        elif not (isinstance(line, JournalLine) and newest in doomed):
            kept.append(line)
    return _with_standing(kept, lines)


def copied_lines(lines: Sequence[Line], to: str) -> list[Line]:
    """Under new checkpoint ids; without journal and inbox."""
    copies: list[Line] = [
        msgspec.structs.replace(line, checkpoint=_renamed(line.checkpoint), fence=0, unsettled=(), consumed=())
        for line in lines
        if isinstance(line, CommitLine)
    ]
    return [ThreadLine(to), *copies]


def _renamed(part: CheckpointPart | None) -> CheckpointPart | None:
    return None if part is None else msgspec.structs.replace(part, checkpoint_id=urandom(12).hex())


def _with_standing(kept: list[Line], before: Sequence[Line]) -> list[Line]:
    commits = [line for line in before if isinstance(line, CommitLine)]
    first = next(line for line in before if isinstance(line, ThreadLine))
    fences = [line.fence for line in before if not isinstance(line, PostLine)]
    standing = ThreadLine(
        first.thread_id,
        number=max([first.number, *(line.number for line in commits)]),
        fence=max(fences),
        last_seq=max([first.last_seq, *(line.first_seq + line.events - 1 for line in commits if line.events)]),
    )
    return [standing, *(line for line in kept if not isinstance(line, ThreadLine))]
