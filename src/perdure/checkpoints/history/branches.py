"""The history of a thread as a tree. A rewind leaves what came after it behind as a branch of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure.errors import CheckpointNotFound
from perdure.names import checkpoint_id_of
from perdure.records import CheckpointInfo


@dataclass(frozen=True)
class Branch:
    """Checkpoints that follow each other, up to one that nothing continues from."""

    checkpoints: tuple[CheckpointInfo, ...]
    """Oldest first."""
    leaves: CheckpointInfo | None
    """The checkpoint of another branch that its first one continues from; None for one that begins the thread."""
    forked_from: str | None
    """The checkpoint of another thread that it continues from."""
    leads_to_head: bool
    children: tuple[Branch, ...] = field(default=(), repr=False, compare=False)
    """Branches that leave this one."""

    @property
    def newest(self) -> CheckpointInfo:
        return self.checkpoints[-1]


@dataclass(frozen=True)
class Branches:
    """All branches of a thread; the one that leads to the head is the first. As text: a graph, newest on top."""

    thread_id: str
    branches: tuple[Branch, ...]

    @property
    def main(self) -> Branch:
        """The one that leads to the head."""
        return self.branches[0]

    @property
    def head(self) -> CheckpointInfo:
        return self.main.newest

    def __iter__(self) -> Iterator[Branch]:
        return iter(self.branches)

    def __len__(self) -> int:
        return len(self.branches)

    def line(self, checkpoint_id: str | CheckpointInfo) -> tuple[CheckpointInfo, ...]:
        """All that leads to a checkpoint, oldest first, itself included. Raises CheckpointNotFound."""
        wanted = checkpoint_id_of(checkpoint_id)
        places = {
            one.checkpoint_id: (branch, at) for branch in self.branches for at, one in enumerate(branch.checkpoints)
        }
        if wanted not in places:
            raise CheckpointNotFound(wanted)
        branch, place = places[wanted]
        parts = [branch.checkpoints[: place + 1]]
        while branch.leaves is not None:
            branch, place = places[branch.leaves.checkpoint_id]
            parts.append(branch.checkpoints[: place + 1])
        return tuple(one for part in reversed(parts) for one in part)

    def common(self, a: str | CheckpointInfo, b: str | CheckpointInfo) -> CheckpointInfo | None:
        """The last checkpoint that leads to both; None if they have nothing in common. Raises CheckpointNotFound."""
        shared = [one for one, other in zip(self.line(a), self.line(b), strict=False) if one == other]
        return shared[-1] if shared else None

    def rows(self) -> Iterator[tuple[str, CheckpointInfo | None]]:
        """The tree drawn, newest on top: what stands left of each checkpoint; None for a line that only joins two."""
        return _rows(self)

    def __str__(self) -> str:
        return "\n".join(drawn if one is None else f"{drawn} {_described(one, self)}" for drawn, one in self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "thread_id": self.thread_id,
            "head": self.head.checkpoint_id,
            "branches": [
                {
                    "leads_to_head": one.leads_to_head,
                    "leaves": None if one.leaves is None else one.leaves.checkpoint_id,
                    "forked_from": one.forked_from,
                    "checkpoints": [msgspec.to_builtins(each) for each in one.checkpoints],
                }
                for one in self.branches
            ],
        }


def branches_of(thread_id: str, infos: Sequence[CheckpointInfo]) -> Branches:
    """The checkpoints of one thread, in the order of their commits, as a tree. There is at least one."""
    followers: dict[str | None, list[CheckpointInfo]] = {}
    known = {one.checkpoint_id: one for one in infos}
    for one in infos:
        before = known.get(one.previous_checkpoint_id or "")
        # One that names itself or a later one as the one before it was not made by a run: nothing leads to it.
        is_first = before is None or before.number >= one.number
        followers.setdefault(None if is_first else one.previous_checkpoint_id, []).append(one)
    reach = _reach(infos, followers)
    starts: list[tuple[CheckpointInfo, int | None]] = [(one, None) for one in followers.get(None, ())]
    lines: list[tuple[CheckpointInfo, ...]] = []
    for index, (start, _) in enumerate(starts):  # it grows while it is read
        line = [start]
        while following := followers.get(line[-1].checkpoint_id):
            longest = max(following, key=lambda one: reach[one.checkpoint_id])
            starts += [(one, index) for one in following if one is not longest]
            line.append(longest)
        lines.append(tuple(line))
    return Branches(thread_id, _made(starts, lines, infos[-1], known))


def _reach(infos: Sequence[CheckpointInfo], followers: dict[str | None, list[CheckpointInfo]]) -> dict[str, int]:
    """How far each of them leads: to the newest checkpoint of all that follow it."""
    reach: dict[str, int] = {}
    for one in sorted(infos, key=lambda one: one.number, reverse=True):
        after = followers.get(one.checkpoint_id, ())
        reach[one.checkpoint_id] = max([one.number, *(reach[later.checkpoint_id] for later in after)])
    return reach


def _made(
    starts: Sequence[tuple[CheckpointInfo, int | None]],
    lines: Sequence[tuple[CheckpointInfo, ...]],
    head: CheckpointInfo,
    known: dict[str, CheckpointInfo],
) -> tuple[Branch, ...]:
    children: dict[int | None, list[Branch]] = {}
    for index in range(len(starts) - 1, -1, -1):  # those that leave a branch come after it
        start, parent = starts[index]
        is_fork = parent is None and start.number <= 1 and start.previous_checkpoint_id not in known
        branch = Branch(
            lines[index],
            None if parent is None else known[start.previous_checkpoint_id or ""],
            start.previous_checkpoint_id if is_fork else None,
            lines[index][-1] is head,
            tuple(sorted(children.pop(index, []), key=lambda one: one.checkpoints[0].number)),
        )
        children.setdefault(parent, []).append(branch)
    found: list[Branch] = children[None]
    for one in found:  # it grows while it is read
        found.extend(one.children)
    return tuple(sorted(found, key=lambda one: (not one.leads_to_head, one.checkpoints[0].number)))


# ---------------------------------------------------------------- as text


def _rows(branches: Branches) -> Iterator[tuple[str, CheckpointInfo | None]]:
    """Each branch has a column of its own from its newest checkpoint down to the one that it leaves."""
    branch_of = {one.checkpoint_id: branch for branch in branches for one in branch.checkpoints}
    columns: list[Branch | None] = []
    for one in sorted((one for branch in branches for one in branch.checkpoints), key=_number, reverse=True):
        branch = branch_of[one.checkpoint_id]
        for joining in [each for each in columns if each is not None and each.leaves == one]:
            yield _joint(columns, columns.index(joining), columns.index(branch)), None
            columns[columns.index(joining)] = None
        if branch not in columns:
            beside = None if branch.leaves is None else branch_of[branch.leaves.checkpoint_id]
            _put(columns, branch, columns.index(beside) + 1 if beside in columns else 0)
        drawn = "".join("* " if each is branch else "| " if each is not None else "  " for each in columns)
        yield drawn.rstrip(), one


def _number(info: CheckpointInfo) -> int:
    return info.number


def _put(columns: list[Branch | None], branch: Branch, first: int) -> None:
    """In the first column that is free, to the right of the branch that it leaves."""
    free = next((at for at in range(first, len(columns)) if columns[at] is None), len(columns))
    columns[free : free + 1] = [branch]


def _joint(columns: list[Branch | None], source: int, target: int) -> str:
    drawn = list("".join("| " if each is not None else "  " for each in columns))
    drawn[2 * source] = " "
    for at in range(2 * target + 1, 2 * source - 1):
        drawn[at] = "_" if drawn[at] == " " else drawn[at]
    drawn[2 * source - 1] = "/"
    return "".join(drawn).rstrip()


def _described(one: CheckpointInfo, branches: Branches) -> str:
    marks = []
    if one is branches.head:
        marks.append("head")
    if one.is_pinned:
        marks.append("pinned")
    marks += [f"forked from {each.forked_from}" for each in branches if each.forked_from and one is each.checkpoints[0]]
    at = f"{one.timestamp[:19]}Z"
    shown = f"{one.number} {one.checkpoint_id} {at} {one.status}"
    return f"{shown.rstrip()} ({', '.join(marks)})" if marks else shown.rstrip()
