"""Which chunks a thread still needs when some of its checkpoints are pruned. Pure: no payload is read.

A checkpoint has the chunks that it added, and those of its parent that it did not drop. A chunk is live if some kept
checkpoint descends from the commit that added it without passing a commit that dropped it. A pruned parent leaves its
child the list of what the child keeps from it, so that the commits that are left describe all live chunks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from msgspec import structs

from perdure.names import SHORT
from perdure.records import Commit

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


def plan_pruning(commits: Iterable[Lineage]) -> Pruning:
    """For all commits of a thread that hold chunks, pruned ones included."""
    lineages = {lineage.number: lineage for lineage in sorted(commits, key=lambda lineage: lineage.number)}
    dropped = _resolve_dropped(lineages)
    descendants = _count_kept_descendants(lineages)
    holders: Counter[Ref] = Counter()
    for number, lineage in lineages.items():
        for ref in lineage.received_chunks:
            holders[ref] += descendants[number]
        for ref in dropped[number]:
            holders[ref] -= descendants[number]
    plan = Pruning({ref for ref, count in holders.items() if count > 0})
    for number, lineage in lineages.items():
        if lineage.is_kept and lineage.parent is not None:
            parent = lineages.get(lineage.parent)
            if parent is None or not parent.is_kept:
                plan.relinked[number] = _relink(lineage, lineages, dropped)
    return plan


def _count_kept_descendants(lineages: Mapping[int, Lineage]) -> Counter[int]:
    """How many kept commits descend from each, itself included."""
    counts: Counter[int] = Counter()
    for number, lineage in reversed([*lineages.items()]):  # a parent is older than its children
        counts[number] += lineage.is_kept
        if lineage.parent is not None:
            counts[lineage.parent] += counts[number]
    return counts


def _resolve_dropped(lineages: Mapping[int, Lineage]) -> dict[int, list[Ref]]:
    """The chunks that each commit dropped. An ambiguous shortened reference resolves to nothing: the chunk is kept."""
    digests: dict[Ref, set[str]] = defaultdict(set)
    for lineage in lineages.values():
        for digest, number in lineage.received_chunks:
            digests[digest[:SHORT], number].add(digest)
    resolved: dict[int, list[Ref]] = {}
    for lineage in lineages.values():
        resolved[lineage.number] = refs = []
        for start, number in map(_split, lineage.dropped):
            matches = [digest for digest in digests.get((start[:SHORT], number), ()) if digest.startswith(start)]
            if len(matches) < 2:  # without a match: of a commit that was not given
                refs.append((matches[0] if matches else start, number))
    return resolved


def _relink(lineage: Lineage, lineages: Mapping[int, Lineage], resolved: Mapping[int, list[Ref]]) -> Lineage:
    """One lineage for the commit and its pruned ancestors."""
    line = [lineage]
    parent = lineages.get(lineage.parent) if lineage.parent is not None else None
    while parent is not None and not parent.is_kept:
        line.append(parent)
        parent = lineages.get(parent.parent) if parent.parent is not None else None
    added: set[Ref] = set()
    dropped: set[Ref] = set()
    for ancestor in reversed(line):
        for ref in resolved[ancestor.number]:
            dropped.add(ref) if ref not in added else added.discard(ref)
        added.update(ancestor.received_chunks)
        dropped -= added
    added.difference_update(lineage.own)
    carried = frozenset(map(_join, added))
    if parent is None:
        return Lineage(lineage.number, None, True, lineage.added, frozenset(), carried)
    return Lineage(lineage.number, parent.number, True, lineage.added, frozenset(map(_join, dropped)), carried)


def _split(ref: str) -> Ref:
    digest, _, number = ref.partition(".")
    return digest, int(number)


def _join(ref: Ref) -> str:
    return f"{ref[0]}.{ref[1]}"


# ---------------------------------------------------------------- commits

MIN_GARBAGE = 16
MIN_GARBAGE_BYTES = 1_000_000
"""Commits, or bytes of them, that are garbage before it is collected, since that reads all commits of the thread."""


def is_collection_due(count: int, live: int, size: int, live_size: int, *, at_rest: bool) -> bool:
    """Whether as much is garbage as was left the last time; when the thread comes to rest, a quarter is enough."""
    if at_rest:
        return count > 0 and (4 * count >= live or 4 * size >= live_size)
    return count >= max(MIN_GARBAGE, live) or size >= MIN_GARBAGE_BYTES + live_size


def prune_commits(
    commits: Iterable[Commit], pruned: Iterable[int], events_before: int = 0
) -> Iterator[tuple[int, Commit | None]]:
    """What changes when these checkpoints are pruned, and the events of commits before `events_before` dropped: the
    number of each commit that changes, and what is left of it.

    `commits`: all of a thread. One that has lost its checkpoint id before still has its root, and is pruned, too.
    """
    before = {commit.number: commit for commit in commits}
    pruned = {
        *pruned,
        *(commit.number for commit in before.values() if commit.info is None and commit.root is not None),
    }
    kept = [without_events(commit) if commit.number < events_before else commit for commit in before.values()]
    plan = plan_pruning(_to_lineage(commit, pruned) for commit in kept)
    for commit in kept:
        left = _prune_commit(commit, plan, is_pruned=commit.number in pruned)
        if left is not before[commit.number]:
            is_empty = left.info is None and not left.chunks and left.events is None
            yield commit.number, None if is_empty else left


def without_events(commit: Commit) -> Commit:
    """The commit without its events, and without the chunks that only they refer to."""
    if commit.events is None:
        return commit
    own = set(commit.events.own)
    chunks = {digest: chunk for digest, chunk in commit.chunks.items() if digest not in own}
    return structs.replace(commit, events=None, chunks=chunks)


def _prune_commit(commit: Commit, plan: Pruning, *, is_pruned: bool) -> Commit:
    number, info, events = commit.number, commit.info, commit.events
    refers, own = (False, ()) if events is None else (events.refers, events.own)
    if number in plan.relinked:
        lineage = plan.relinked[number]
        if is_pruned:
            info = None
        elif info is not None and lineage.parent is None:
            info = structs.replace(info, previous_checkpoint_id=None)
        links = {"parent": lineage.parent, "dropped": sorted(lineage.dropped), "carried": sorted(lineage.carried)}
        return structs.replace(commit, info=info, root=None if info is None else commit.root, **links)
    if is_pruned and refers:
        return structs.replace(commit, info=None, root=None)
    if not is_pruned and info is not None:
        return commit
    chunks = {
        digest: chunk for digest, chunk in commit.chunks.items() if digest in own or (digest, number) in plan.needed
    }
    if not is_pruned and len(chunks) == len(commit.chunks) and (commit.parent is None or refers):
        return commit
    return structs.replace(commit, info=None, root=None, parent=None, chunks=chunks, dropped=(), carried=())


def _to_lineage(commit: Commit, pruned: Collection[int]) -> Lineage:
    refers, own = (False, ()) if commit.events is None else (commit.events.refers, commit.events.own)
    is_kept = (commit.info is not None and commit.number not in pruned) or refers
    added, dropped = frozenset(commit.chunks).difference(own), frozenset(commit.dropped)
    return Lineage(commit.number, commit.parent, is_kept, added, dropped, frozenset(commit.carried))
