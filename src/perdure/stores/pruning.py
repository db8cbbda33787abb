"""Pruning a thread whose commits are packed bodies: which go, which are made smaller, which are told a new parent.

A checkpoint goes in one step or in two: a commit may have said that it is forgotten, and left the rest for later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perdure.stores.garbage import Lineage, plan_pruning
from perdure.stores.packing import NOTHING, Body


@dataclass
class PackedCommit:
    number: int
    parent: int | None
    has_checkpoint: bool
    body: Body


@dataclass
class Changed:
    """What becomes of one commit; without a body and events it goes altogether."""

    number: int
    parent: int | None
    has_checkpoint: bool
    body: Body

    @property
    def is_empty(self) -> bool:
        return not self.has_checkpoint and not self.body.chunks and not self.has_events

    @property
    def has_events(self) -> bool:
        return self.body.events is not NOTHING


def prune_bodies(
    commits: Collection[PackedCommit], doomed: Collection[int], events_before: int = 0
) -> Iterable[Changed]:
    """For all commits of a thread, the numbers of the checkpoints that go, and the commit before which events go."""
    forgotten = {one.number for one in commits if not one.has_checkpoint and one.body.root is not NOTHING}
    silenced = {one.number for one in commits if one.number < events_before and one.body.events is not NOTHING}
    commits = [_silent(one) if one.number in silenced else one for one in commits]
    changed = {one.number: one for one in _pruned(commits, forgotten.union(doomed))}
    for one in commits:
        if one.number in silenced and one.number not in changed:
            changed[one.number] = Changed(one.number, one.parent, one.has_checkpoint, one.body)
    return changed.values()


def silenced(body: Body) -> Body:
    """Without its events, and what only they refer to."""
    own = set(body.own)
    chunks = {digest: chunk for digest, chunk in body.chunks.items() if digest not in own}
    return _copy(body, events=NOTHING, refers=False, own=(), chunks=chunks)


def _silent(one: PackedCommit) -> PackedCommit:
    return PackedCommit(one.number, one.parent, one.has_checkpoint, silenced(one.body))


def _pruned(commits: Collection[PackedCommit], doomed: Collection[int]) -> Iterable[Changed]:
    plan = plan_pruning(_lineage(one, doomed) for one in commits)
    for one in commits:
        body = one.body
        if one.number in plan.relinked:
            lineage = plan.relinked[one.number]
            changed = _copy(body, dropped=sorted(lineage.dropped), carried=sorted(lineage.carried))
            keeps_checkpoint = one.has_checkpoint and one.number not in doomed
            if not keeps_checkpoint:
                changed.root = NOTHING
            yield Changed(one.number, lineage.parent, keeps_checkpoint, changed)
        elif one.number in doomed and body.refers:
            yield Changed(one.number, one.parent, False, _copy(body, root=NOTHING))
        elif one.number in doomed or not one.has_checkpoint:
            own = set(body.own)
            kept = {
                digest: chunk
                for digest, chunk in body.chunks.items()
                if digest in own or plan.needs(digest, one.number)
            }
            is_linked = one.parent is not None and not body.refers
            if one.number in doomed or len(kept) != len(body.chunks) or body.root is not NOTHING or is_linked:
                smaller = Body(chunks=kept, events=body.events, refers=body.refers, own=body.own)
                yield Changed(one.number, None, False, smaller)


def _lineage(one: PackedCommit, doomed: Collection[int]) -> Lineage:
    body = one.body
    return Lineage(
        one.number,
        one.parent,
        (one.has_checkpoint and one.number not in doomed) or body.refers,
        frozenset(body.chunks) - frozenset(body.own),
        frozenset(body.dropped),
        frozenset(body.carried),
    )


def _copy(body: Body, **changes: object) -> Body:
    fields = {name: getattr(body, name) for name in Body.__struct_fields__}
    return Body(**{**fields, **changes})
