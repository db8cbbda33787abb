"""Which chunks a thread still needs when some of its checkpoints go. Pure: from the commits' lists, without a payload.

A checkpoint has the chunks of its parent, but for those it dropped, and those it brought. When a parent goes, its child
is told what it keeps from it, so that what is left says all there is to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field


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
    """References."""
    carried: frozenset[str] = frozenset()
    """References that its checkpoint has from commits which are no longer in its line."""
    is_checkpoint: bool = True
    """Whether another may continue from it; not so where only its events are left."""


@dataclass
class Pruning:
    needed: set[str] = field(default_factory=set)
    """References that something still has."""
    relinked: dict[int, Lineage] = field(default_factory=dict)
    """Commits that stay, whose parent goes: what they are to say from now on."""


def plan_pruning(commits: Iterable[Lineage]) -> Pruning:
    """For all commits of a thread that hold chunks, those that go included."""
    by_number = {one.number: one for one in sorted(commits, key=lambda one: one.number)}
    had: dict[int, Set[str]] = {}
    result = Pruning()
    for number, one in by_number.items():
        had[number] = _had(one, had)
        if one.is_kept:
            result.needed |= had[number]
    for number, one in by_number.items():
        parent = by_number.get(one.parent) if one.parent is not None else None
        if not one.is_kept or (parent is None if one.parent is None else parent is not None and parent.is_kept):
            continue
        while parent is not None and not parent.is_kept:
            parent = by_number.get(parent.parent) if parent.parent is not None else None
        before: Set[str] = set() if parent is None else had[parent.number]
        own = {f"{digest}.{number}" for digest in one.brought}
        result.relinked[number] = Lineage(
            number,
            None if parent is None else parent.number,
            True,
            one.brought,
            frozenset(before - had[number]),
            frozenset(had[number] - before - own),
            one.is_checkpoint,
        )
    return result


def _had(one: Lineage, had: Mapping[int, Set[str]]) -> Set[str]:
    before = had.get(one.parent, frozenset()) if one.parent is not None else frozenset()
    return (before - one.dropped) | one.carried | {f"{digest}.{one.number}" for digest in one.brought}
