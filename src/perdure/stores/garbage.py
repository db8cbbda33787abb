"""Which chunks a thread still needs when some of its checkpoints go. Pure: from the commits' lists, without a payload.

A checkpoint has the chunks of its parent, but for those it dropped, and those it brought. So a chunk is needed if the
checkpoints that stay are more in the branches where it came in than in those where it was dropped. When a parent goes,
its child is told what it keeps from it, so that what is left says all there is to know.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from perdure.digests import SHORT
from perdure.stores.packing import NOTHING, Body

Ref = tuple[str, int]
"""Digest, and the commit that holds it."""


@dataclass(frozen=True)
class Lineage:
    """What one commit says about chunks."""

    number: int
    parent: int | None
    """The commit whose checkpoint it continues from."""
    is_kept: bool
    """Whether its checkpoint stays, or its events refer to what that has."""
    brought: frozenset[str]
    """Digests of the chunks that it holds and its checkpoint has."""
    dropped: frozenset[str]
    """References, shortened: the first characters of the digest, and the commit."""
    carried: frozenset[str] = frozenset()
    """References that its checkpoint has from commits which are no longer in its line."""
    is_checkpoint: bool = True
    """Whether another may continue from it; not so where only its events are left."""

    @property
    def own(self) -> Iterator[Ref]:
        return ((digest, self.number) for digest in self.brought)

    @property
    def received(self) -> Iterator[Ref]:
        """What comes in with it."""
        return chain(self.own, map(_split, self.carried))


@dataclass
class Pruning:
    needed: set[Ref] = field(default_factory=set)
    """What something still has."""
    relinked: dict[int, Lineage] = field(default_factory=dict)
    """Commits that stay, whose parent goes: what they are to say from now on."""

    def needs(self, digest: str, number: int) -> bool:
        return (digest, number) in self.needed


def plan_pruning(commits: Iterable[Lineage]) -> Pruning:
    """For all commits of a thread that hold chunks, those that go included."""
    lines = {one.number: one for one in sorted(commits, key=lambda one: one.number)}
    dropped = _Dropped(lines.values())
    staying = _staying(lines)
    having: Counter[Ref] = Counter()
    for number, one in lines.items():
        for ref in one.received:
            having[ref] += staying[number]
        for ref in dropped.by(one):
            having[ref] -= staying[number]
    result = Pruning({ref for ref, count in having.items() if count > 0})
    for number, one in lines.items():
        if one.is_kept and one.parent is not None:
            parent = lines.get(one.parent)
            if parent is None or not parent.is_kept:
                result.relinked[number] = _relinked(one, lines, dropped)
    return result


def _staying(lines: Mapping[int, Lineage]) -> Counter[int]:
    """How many that stay continue from each, itself included."""
    staying: Counter[int] = Counter()
    for number, one in reversed([*lines.items()]):  # a parent is older than its children
        staying[number] += one.is_kept
        if one.parent is not None:
            staying[one.parent] += staying[number]
    return staying


class _Dropped:
    """Shortened references, found again. Where two could be meant, none is: better to keep one too many."""

    def __init__(self, lines: Iterable[Lineage]) -> None:
        self._known: dict[tuple[str, int], set[str]] = defaultdict(set)
        for one in lines:
            for digest, number in one.received:
                self._known[digest[:SHORT], number].add(digest)

    def by(self, one: Lineage) -> Iterator[Ref]:
        for ref in one.dropped:
            start, number = _split(ref)
            found = [digest for digest in self._known.get((start[:SHORT], number), ()) if digest.startswith(start)]
            if len(found) == 1:
                yield found[0], number
            elif not found:  # of a commit that was not given: all that can be said of it
                yield start, number


def _relinked(one: Lineage, lines: Mapping[int, Lineage], dropped: _Dropped) -> Lineage:
    """What it says in place of itself and of those before it that go."""
    line = [one]
    parent = lines.get(one.parent) if one.parent is not None else None
    while parent is not None and not parent.is_kept:
        line.append(parent)
        parent = lines.get(parent.parent) if parent.parent is not None else None
    came: set[Ref] = set()
    went: set[Ref] = set()
    for each in reversed(line):
        for ref in dropped.by(each):
            went.add(ref) if ref not in came else came.discard(ref)
        came.update(each.received)
        went -= came
    came.difference_update(one.own)
    return Lineage(
        one.number,
        None if parent is None else parent.number,
        True,
        one.brought,
        frozenset() if parent is None else frozenset(map(_joined, went)),
        frozenset(map(_joined, came)),
        one.is_checkpoint,
    )


def _split(ref: str) -> Ref:
    digest, _, number = ref.partition(".")
    return digest, int(number)


def _joined(ref: Ref) -> str:
    return f"{ref[0]}.{ref[1]}"


# ---------------------------------------------------------------- pruning


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
