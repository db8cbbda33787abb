"""The history of a thread as a tree. A rewind leaves the checkpoints after its target as a branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from perdure.errors import CheckpointNotFound
from perdure.names import checkpoint_id_of
from perdure.records import CheckpointInfo


@dataclass(frozen=True)
class Branch:
    """Checkpoints that follow each other, up to one without a successor."""

    checkpoints: tuple[CheckpointInfo, ...]
    """Oldest first."""
    leaves: CheckpointInfo | None
    """The checkpoint of another branch that its first one continues from; None for a branch that starts the thread."""
    forked_from: str | None
    """The checkpoint of another thread that it continues from."""
    leads_to_head: bool
    children: tuple[Branch, ...] = field(default=(), repr=False, compare=False)
    """Branches that continue from a checkpoint of this one."""

    @property
    def newest(self) -> CheckpointInfo:
        return self.checkpoints[-1]


@dataclass(frozen=True)
class Branches:
    """All branches of a thread, first the one that leads to the head. `str()` draws a graph, newest on top."""

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
        """The checkpoints that lead to a checkpoint, oldest first, itself included. Raises CheckpointNotFound."""
        wanted = checkpoint_id_of(checkpoint_id)
        positions = {
            info.checkpoint_id: (branch, index)
            for branch in self.branches
            for index, info in enumerate(branch.checkpoints)
        }
        if wanted not in positions:
            raise CheckpointNotFound(wanted)
        branch, index = positions[wanted]
        parts = [branch.checkpoints[: index + 1]]
        while branch.leaves is not None:
            branch, index = positions[branch.leaves.checkpoint_id]
            parts.append(branch.checkpoints[: index + 1])
        return tuple(info for part in reversed(parts) for info in part)

    def common(self, a: str | CheckpointInfo, b: str | CheckpointInfo) -> CheckpointInfo | None:
        """The last checkpoint that leads to both; None without a common one. Raises CheckpointNotFound."""
        shared = [info for info, other in zip(self.line(a), self.line(b), strict=False) if info == other]
        return shared[-1] if shared else None

    def notes(self, info: CheckpointInfo) -> str:
        """The special properties of a checkpoint: head, pinned, forked from another thread."""
        origin = next((branch.forked_from for branch in self if branch.checkpoints[0] is info), None)
        notes = {"head": info is self.head, "pinned": info.is_pinned, f"forked from {origin}": origin is not None}
        return ", ".join(note for note, is_so in notes.items() if is_so)

    def rows(self) -> Iterator[tuple[str, CheckpointInfo | None]]:
        """The drawing, newest on top: the text left of each checkpoint; None for a line that only joins two.

        Each branch has its own column, from its newest checkpoint down to the one that it continues from.
        """
        branch_of = {info.checkpoint_id: branch for branch in self for info in branch.checkpoints}
        columns: list[Branch | None] = []
        infos = [info for branch in self for info in branch.checkpoints]
        for info in sorted(infos, key=attrgetter("number"), reverse=True):
            branch = branch_of[info.checkpoint_id]
            for joining in [each for each in columns if each is not None and each.leaves == info]:
                yield _draw_joint(columns, columns.index(joining), columns.index(branch)), None
                columns[columns.index(joining)] = None
            if branch not in columns:
                beside = None if branch.leaves is None else branch_of[branch.leaves.checkpoint_id]
                first = columns.index(beside) + 1 if beside in columns else 0
                free = next((at for at in range(first, len(columns)) if columns[at] is None), len(columns))
                columns[free : free + 1] = [branch]
            drawn = "".join("* " if each is branch else "| " if each is not None else "  " for each in columns)
            yield drawn.rstrip(), info

    def __str__(self) -> str:
        return "\n".join(drawn if info is None else f"{drawn} {_describe(info, self)}" for drawn, info in self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "thread_id": self.thread_id,
            "head": self.head.checkpoint_id,
            "branches": [
                {
                    "leads_to_head": branch.leads_to_head,
                    "leaves": None if branch.leaves is None else branch.leaves.checkpoint_id,
                    "forked_from": branch.forked_from,
                    "checkpoints": [msgspec.to_builtins(info) for info in branch.checkpoints],
                }
                for branch in self.branches
            ],
        }


def build_branches(thread_id: str, infos: Sequence[CheckpointInfo]) -> Branches:
    """The tree of a thread's checkpoints, of which there is at least one, in the order of their commits."""
    followers: dict[str | None, list[CheckpointInfo]] = {}
    by_id = {info.checkpoint_id: info for info in infos}
    for info in infos:
        before = by_id.get(info.previous_checkpoint_id or "")
        # A user may save a checkpoint that names itself or a later one as its predecessor: it starts a branch.
        is_first = before is None or before.number >= info.number
        followers.setdefault(None if is_first else info.previous_checkpoint_id, []).append(info)
    reach = _reach(infos, followers)
    starts: list[tuple[CheckpointInfo, int | None]] = [(info, None) for info in followers.get(None, ())]
    lines: list[tuple[CheckpointInfo, ...]] = []
    for index, (start, _) in enumerate(starts):  # the loop appends to it
        line = [start]
        while following := followers.get(line[-1].checkpoint_id):
            longest = max(following, key=lambda info: reach[info.checkpoint_id])
            starts += [(info, index) for info in following if info is not longest]
            line.append(longest)
        lines.append(tuple(line))
    return Branches(thread_id, _link_branches(starts, lines, infos[-1], by_id))


def _reach(infos: Sequence[CheckpointInfo], followers: dict[str | None, list[CheckpointInfo]]) -> dict[str, int]:
    """By checkpoint: the number of the newest checkpoint that it leads to."""
    reach: dict[str, int] = {}
    for info in sorted(infos, key=attrgetter("number"), reverse=True):
        after = followers.get(info.checkpoint_id, ())
        reach[info.checkpoint_id] = max([info.number, *(reach[later.checkpoint_id] for later in after)])
    return reach


def _link_branches(
    starts: Sequence[tuple[CheckpointInfo, int | None]],
    lines: Sequence[tuple[CheckpointInfo, ...]],
    head: CheckpointInfo,
    by_id: dict[str, CheckpointInfo],
) -> tuple[Branch, ...]:
    children: dict[int | None, list[Branch]] = {}
    for index in range(len(starts) - 1, -1, -1):  # a branch comes after its parent
        start, parent = starts[index]
        is_fork = parent is None and start.number <= 1 and start.previous_checkpoint_id not in by_id
        branch = Branch(
            lines[index],
            None if parent is None else by_id[start.previous_checkpoint_id or ""],
            start.previous_checkpoint_id if is_fork else None,
            lines[index][-1] is head,
            tuple(sorted(children.pop(index, []), key=_first_number)),
        )
        children.setdefault(parent, []).append(branch)
    branches: list[Branch] = children[None]
    for each in branches:  # the loop appends to it
        branches.extend(each.children)
    return tuple(sorted(branches, key=lambda each: (not each.leads_to_head, _first_number(each))))


def _first_number(branch: Branch) -> int:
    return branch.checkpoints[0].number


def _draw_joint(columns: list[Branch | None], source: int, target: int) -> str:
    drawn = list("".join("| " if each is not None else "  " for each in columns))
    drawn[2 * source] = " "
    for at in range(2 * target + 1, 2 * source - 1):
        drawn[at] = "_" if drawn[at] == " " else drawn[at]
    drawn[2 * source - 1] = "/"
    return "".join(drawn).rstrip()


def _describe(info: CheckpointInfo, branches: Branches) -> str:
    notes = branches.notes(info)
    text = f"{info.number} {info.checkpoint_id} {info.timestamp[:19]}Z {info.status}".rstrip()
    return f"{text} ({notes})" if notes else text
