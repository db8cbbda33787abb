"""Which chunks a thread still needs when some of its checkpoints go. Pure: from the commits' lists, without a payload.

A checkpoint has the chunks of its parent, but for those it dropped, and those it brought. So a chunk is needed if the
checkpoints that stay are more in the branches where it came in than in those where it was dropped. When a parent goes,
its child is told what it keeps from it, so that what is left says all there is to know.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from perdure.digests import SHORT

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
