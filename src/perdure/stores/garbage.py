"""Which chunks a thread still needs when some of its checkpoints are pruned. Pure: no payload is read.

A checkpoint has the chunks that it added, and those of its parent that it did not drop. A chunk is live if some kept
checkpoint descends from the commit that added it without passing a commit that dropped it. A pruned parent leaves its
child the list of what the child keeps from it, so that the commits that are left describe all live chunks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from msgspec import structs

from perdure.names import SHORT
from perdure.records import Commit
from perdure.stores.packing import NOTHING, Body, to_body, with_body

Ref = tuple[str, int]
"""Digest, and the commit that holds it."""


@dataclass(frozen=True)
class Lineage:
    """The chunks that one commit adds and drops."""

    number: int
    parent: int | None
    """The commit whose checkpoint it continues from."""
    is_kept: bool
    """Whether its checkpoint is kept, or its events refer to chunks of that checkpoint."""
    added: frozenset[str]
    """Digests of the chunks that it holds and its checkpoint has."""
    dropped: frozenset[str]
    """Shortened references: the first characters of the digest, and the commit."""
    carried: frozenset[str] = frozenset()
    """References that its checkpoint has from commits which are no longer among its ancestors."""
    is_checkpoint: bool = True
    """Whether another commit may continue from it; False where only its events are left."""

    @property
    def own(self) -> Iterator[Ref]:
        return ((digest, self.number) for digest in self.added)

    @property
    def received_chunks(self) -> Iterator[Ref]:
        """Its own chunks, and those it carries."""
        return chain(self.own, map(_split, self.carried))


@dataclass
class Pruning:
    needed: set[Ref] = field(default_factory=set)
    """References that a kept commit has."""
    relinked: dict[int, Lineage] = field(default_factory=dict)
    """New lineages of kept commits whose parent is pruned."""

    def needs(self, digest: str, number: int) -> bool:
        return (digest, number) in self.needed


def plan_pruning(commits: Iterable[Lineage]) -> Pruning:
    """For all commits of a thread that hold chunks, pruned ones included."""
    lineages = {lineage.number: lineage for lineage in sorted(commits, key=lambda lineage: lineage.number)}
    resolver = _DroppedRefs(lineages.values())
    descendants = _count_kept_descendants(lineages)
    holders: Counter[Ref] = Counter()
    for number, lineage in lineages.items():
        for ref in lineage.received_chunks:
            holders[ref] += descendants[number]
        for ref in resolver.resolve(lineage):
            holders[ref] -= descendants[number]
    plan = Pruning({ref for ref, count in holders.items() if count > 0})
    for number, lineage in lineages.items():
        if lineage.is_kept and lineage.parent is not None:
            parent = lineages.get(lineage.parent)
            if parent is None or not parent.is_kept:
                plan.relinked[number] = _relink(lineage, lineages, resolver)
    return plan


def _count_kept_descendants(lineages: Mapping[int, Lineage]) -> Counter[int]:
    """How many kept commits descend from each, itself included."""
    counts: Counter[int] = Counter()
    for number, lineage in reversed([*lineages.items()]):  # a parent is older than its children
        counts[number] += lineage.is_kept
        if lineage.parent is not None:
            counts[lineage.parent] += counts[number]
    return counts


class _DroppedRefs:
    """Resolves shortened references. An ambiguous one resolves to nothing: the chunk is kept."""

    def __init__(self, lineages: Iterable[Lineage]) -> None:
        self._digests: dict[tuple[str, int], set[str]] = defaultdict(set)
        for lineage in lineages:
            for digest, number in lineage.received_chunks:
                self._digests[digest[:SHORT], number].add(digest)

    def resolve(self, lineage: Lineage) -> Iterator[Ref]:
        """What the commit dropped."""
        for ref in lineage.dropped:
            start, number = _split(ref)
            matches = [digest for digest in self._digests.get((start[:SHORT], number), ()) if digest.startswith(start)]
            if len(matches) == 1:
                yield matches[0], number
            elif not matches:  # of a commit that was not given
                yield start, number


def _relink(lineage: Lineage, lineages: Mapping[int, Lineage], resolver: _DroppedRefs) -> Lineage:
    """One lineage for the commit and its pruned ancestors."""
    line = [lineage]
    parent = lineages.get(lineage.parent) if lineage.parent is not None else None
    while parent is not None and not parent.is_kept:
        line.append(parent)
        parent = lineages.get(parent.parent) if parent.parent is not None else None
    added: set[Ref] = set()
    dropped: set[Ref] = set()
    for ancestor in reversed(line):
        for ref in resolver.resolve(ancestor):
            dropped.add(ref) if ref not in added else added.discard(ref)
        added.update(ancestor.received_chunks)
        dropped -= added
    added.difference_update(lineage.own)
    return Lineage(
        lineage.number,
        None if parent is None else parent.number,
        True,
        lineage.added,
        frozenset() if parent is None else frozenset(map(_join, dropped)),
        frozenset(map(_join, added)),
        lineage.is_checkpoint,
    )


def _split(ref: str) -> Ref:
    digest, _, number = ref.partition(".")
    return digest, int(number)


def _join(ref: Ref) -> str:
    return f"{ref[0]}.{ref[1]}"


# ---------------------------------------------------------------- bodies


@dataclass
class PackedCommit:
    """A commit with its body, or what pruning leaves of it."""

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


def prune_commits(
    commits: Collection[Commit], pruned: Collection[int], events_before: int = 0
) -> Iterator[tuple[int, Commit | None]]:
    """`prune_bodies` of commits that are not packed: the numbers of those that change, and what is left of them."""
    by_number = {commit.number: commit for commit in commits}
    packed = [
        PackedCommit(commit.number, commit.parent, commit.info is not None, to_body(commit)) for commit in commits
    ]
    for change in prune_bodies(packed, pruned, events_before):
        commit = by_number[change.number]
        if commit.info is not None and commit.parent is not None and change.parent is None:  # no ancestor is left
            commit = structs.replace(commit, info=structs.replace(commit.info, previous_checkpoint_id=None))
        left = with_body(structs.replace(commit, parent=change.parent), change.body)
        yield change.number, None if change.is_empty else left


def prune_bodies(
    commits: Collection[PackedCommit], pruned: Collection[int], events_before: int = 0
) -> Iterable[PackedCommit]:
    """What changes when these checkpoints are pruned, and the events of commits before `events_before` dropped.

    `commits`: all of a thread. One that has lost its checkpoint id before still has its root, and is pruned, too.
    """
    unfreed = {commit.number for commit in commits if not commit.has_checkpoint and commit.body.root is not NOTHING}
    muted = {commit.number for commit in commits if commit.number < events_before and commit.body.events is not NOTHING}
    commits = [
        replace(commit, body=without_events(commit.body)) if commit.number in muted else commit for commit in commits
    ]
    changed = {commit.number: commit for commit in commits if commit.number in muted}
    changed.update({change.number: change for change in _prune_checkpoints(commits, unfreed.union(pruned))})
    return changed.values()


def without_events(body: Body) -> Body:
    """The body without its events, and without the chunks that only they refer to."""
    own = set(body.own)
    chunks = {digest: chunk for digest, chunk in body.chunks.items() if digest not in own}
    return _replace(body, events=NOTHING, refers=False, own=(), chunks=chunks)


def _prune_checkpoints(commits: Collection[PackedCommit], pruned: Collection[int]) -> Iterable[PackedCommit]:
    plan = plan_pruning(_to_lineage(commit, pruned) for commit in commits)
    for commit in commits:
        number, body = commit.number, commit.body
        if number in plan.relinked:
            lineage = plan.relinked[number]
            relinked = _replace(body, dropped=sorted(lineage.dropped), carried=sorted(lineage.carried))
            keeps_checkpoint = commit.has_checkpoint and number not in pruned
            if not keeps_checkpoint:
                relinked.root = NOTHING
            yield PackedCommit(number, lineage.parent, keeps_checkpoint, relinked)
        elif number in pruned and body.refers:
            yield PackedCommit(number, commit.parent, False, _replace(body, root=NOTHING))
        elif number in pruned or not commit.has_checkpoint:
            own = set(body.own)
            chunks = {
                digest: chunk for digest, chunk in body.chunks.items() if digest in own or plan.needs(digest, number)
            }
            is_linked = commit.parent is not None and not body.refers
            if number in pruned or len(chunks) != len(body.chunks) or body.root is not NOTHING or is_linked:
                smaller = Body(chunks=chunks, events=body.events, refers=body.refers, own=body.own)
                yield PackedCommit(number, None, False, smaller)


def _to_lineage(commit: PackedCommit, pruned: Collection[int]) -> Lineage:
    body = commit.body
    return Lineage(
        commit.number,
        commit.parent,
        (commit.has_checkpoint and commit.number not in pruned) or body.refers,
        frozenset(body.chunks) - frozenset(body.own),
        frozenset(body.dropped),
        frozenset(body.carried),
    )


def _replace(body: Body, **changes: object) -> Body:
    fields = {name: getattr(body, name) for name in Body.__struct_fields__}
    return Body(**{**fields, **changes})
