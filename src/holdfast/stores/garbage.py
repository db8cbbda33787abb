"""Which chunks a thread still needs when some of its checkpoints go. Pure: from the commits' lists, without a payload.

A checkpoint has the chunks of its parent, but for those it dropped, and those it brought. When a parent goes, its child
is told what it keeps from it, so that what is left says all there is to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Had = dict[int, frozenset[str]]
"""Digests by the commit that holds them."""


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


@dataclass
class Pruning:
    needed: dict[int, set[str]] = field(default_factory=dict)
    """Digests that something still has, by the commit that holds them."""
    relinked: dict[int, Lineage] = field(default_factory=dict)
    """Commits that stay, whose parent goes: what they are to say from now on."""

    def needs(self, digest: str, number: int) -> bool:
        return digest in self.needed.get(number, ())


def plan_pruning(commits: Iterable[Lineage]) -> Pruning:
    """For all commits of a thread that hold chunks, those that go included."""
    by_number = {one.number: one for one in sorted(commits, key=lambda one: one.number)}
    had: dict[int, Had] = {}
    result = Pruning()
    for number, one in by_number.items():
        had[number] = _had(one, had)
        if one.is_kept:
            for holder, digests in had[number].items():
                result.needed.setdefault(holder, set()).update(digests)
    for number, one in by_number.items():
        if one.is_kept and one.parent is not None:
            parent = by_number.get(one.parent)
            if parent is None or not parent.is_kept:
                result.relinked[number] = _relinked(one, _nearest_kept(parent, by_number), had)
    return result


def _had(one: Lineage, had: Mapping[int, Had]) -> Had:
    found = dict(had.get(one.parent, {})) if one.parent is not None else {}
    for ref in one.dropped:
        start, _, number = ref.partition(".")
        digests = found.get(int(number), frozenset())
        gone = [digest for digest in digests if digest.startswith(start)]
        if len(gone) == 1:  # else it is not sure which: better to keep one too many
            found[int(number)] = digests - {gone[0]}
    for ref in one.carried:
        digest, _, number = ref.partition(".")
        found[int(number)] = found.get(int(number), frozenset()) | {digest}
    if one.brought:
        found[one.number] = one.brought
    return found


def _nearest_kept(one: Lineage | None, by_number: Mapping[int, Lineage]) -> Lineage | None:
    while one is not None and not one.is_kept:
        one = by_number.get(one.parent) if one.parent is not None else None
    return one


def _relinked(one: Lineage, parent: Lineage | None, had: Mapping[int, Had]) -> Lineage:
    before = _references({} if parent is None else had[parent.number])
    now = _references(had[one.number])
    own = {f"{digest}.{one.number}" for digest in one.brought}
    return Lineage(
        one.number,
        None if parent is None else parent.number,
        True,
        one.brought,
        frozenset(before - now),  # in full: a whole digest begins with itself
        frozenset(now - before - own),
        one.is_checkpoint,
    )


def _references(had: Had) -> set[str]:
    return {f"{digest}.{number}" for number, digests in had.items() for digest in digests}
