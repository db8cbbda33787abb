"""Pruning a thread whose commits are packed bodies: which go, which are made smaller, which are told a new parent."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from holdfast.stores.garbage import Lineage, plan_pruning
from holdfast.stores.packing import NOTHING, Body


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
        return not self.has_checkpoint and not self.body.chunks and self.body.events is NOTHING


def prune_bodies(commits: Collection[PackedCommit], doomed: Collection[int]) -> Iterable[Changed]:
    """For all commits of a thread, and the numbers of the checkpoints that go."""
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
            if one.number in doomed or len(kept) != len(body.chunks) or body.root is not NOTHING:
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
