"""A thread's history as a tree, made from lists of checkpoints alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import CheckpointInfo, CheckpointNotFound
from perdure.checkpoints.history.branches import Branches, build_branches


def info(number: int, previous: int | str | None, **more: Any) -> CheckpointInfo:
    before = f"c{previous}" if isinstance(previous, int) else previous
    return CheckpointInfo(
        f"c{number}", "t", "w", number, 0, before, "2026-01-02T03:04:05.6+00:00", status="IDLE", **more
    )


def tree(*previous: int | str | None, numbers: list[int] | None = None) -> Branches:
    """Checkpoints 1, 2, 3, ... that continue from these."""
    commit_numbers = numbers or range(1, len(previous) + 1)
    return build_branches(
        "t", [info(number, earlier) for number, earlier in zip(commit_numbers, previous, strict=True)]
    )


def numbers(branches: Branches) -> list[list[int]]:
    return [[checkpoint.number for checkpoint in branch.checkpoints] for branch in branches]


def test_a_thread_that_was_never_rewound_is_one_branch() -> None:
    branches = tree(None, 1, 2)
    assert numbers(branches) == [[1, 2, 3]] and len(branches) == 1
    assert branches.head.checkpoint_id == "c3" and branches.main.leads_to_head
    assert branches.main.leaves is None and branches.main.forked_from is None and branches.main.children == ()


def test_rewind_leaves_a_branch_off_the_line_to_the_head() -> None:
    branches = tree(None, 1, 2, 3, 2, 5)
    assert numbers(branches) == [[1, 2, 5, 6], [3, 4]]
    [left] = branches.main.children
    assert left.leaves is not None and left.leaves.number == 2 and not left.leads_to_head
    assert branches.branches == (branches.main, left) and left.newest.number == 4


def test_branches_have_branches() -> None:
    branches = tree(None, 1, 2, 3, 2, 5, 3, 7, 1, 2, 10, 4)
    assert numbers(branches) == [[1, 2, 3, 4, 12], [5, 6], [7, 8], [9], [10, 11]]
    assert [branch.leaves and branch.leaves.number for branch in branches] == [None, 2, 3, 1, 2]
    later = tree(None, 1, 2, 3, 2, 5, 6, 5, 1)
    assert numbers(later) == [[1, 9], [2, 5, 8], [3, 4], [6, 7]]
    [second] = later.main.children
    assert [[checkpoint.number for checkpoint in child.checkpoints] for child in second.children] == [[3, 4], [6, 7]]


def test_the_newest_checkpoint_is_the_head_also_straight_after_a_rewind() -> None:
    branches = tree(None, 1, 2, 1)
    assert numbers(branches) == [[1, 4], [2, 3]] and branches.head.number == 4


def test_a_fork_names_the_checkpoint_of_the_other_thread() -> None:
    branches = tree("of another thread", 1)
    assert (
        numbers(branches) == [[1, 2]]
        and branches.main.forked_from == "of another thread"
        and branches.main.leaves is None
    )
    pruned = tree("gone", 7, numbers=[7, 8])
    assert pruned.main.forked_from is None, "the first commit of a thread is the one that forks"


def test_checkpoints_without_a_known_parent_begin_their_own_branches() -> None:
    branches = tree(None, None, "gone", 2)
    assert numbers(branches) == [[2, 4], [1], [3]]
    assert all(branch.leaves is None for branch in branches)


@pytest.mark.parametrize("previous", [(1, 1), (2, 1), (None, 3, 2)])
def test_cyclic_lists_of_checkpoints_terminate(previous: tuple[int | None, ...]) -> None:
    """A third-party storage can return any list."""
    branches = tree(*previous)
    assert sorted(number for line in numbers(branches) for number in line) == [*range(1, len(previous) + 1)]


def test_line_to_a_checkpoint_passes_through_all_its_branches() -> None:
    branches = tree(None, 1, 2, 3, 2, 5, 6, 5, 1)
    assert [checkpoint.number for checkpoint in branches.line("c7")] == [1, 2, 5, 6, 7]
    assert [checkpoint.number for checkpoint in branches.line(info(9, 1))] == [1, 9]


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [("c4", "c6", 2), ("c4", "c3", 3), ("c3", "c3", 3), ("c9", "c7", 1), ("c7", "c8", 5), ("c1", "c9", 1)],
)
def test_two_branches_have_a_last_checkpoint_in_common(a: str, b: str, common: int) -> None:
    branches = tree(None, 1, 2, 3, 2, 5, 6, 5, 1)
    for first, second in ((a, b), (b, a)):
        shared = branches.common(first, second)
        assert shared is not None and shared.number == common


def test_branches_with_different_beginnings_have_nothing_in_common() -> None:
    assert tree(None, None).common("c1", "c2") is None


@pytest.mark.parametrize("wanted", ["", "c99", "t"])
def test_unknown_checkpoint_is_rejected(wanted: str) -> None:
    branches = tree(None, 1)
    with pytest.raises(CheckpointNotFound, match=f"ID {wanted} "):
        branches.line(wanted)
    with pytest.raises(CheckpointNotFound, match=f"ID {wanted} "):
        branches.common("c1", wanted)


# ---------------------------------------------------------------- as text and as JSON


def graph(branches: Branches) -> str:
    """Return the drawing without the details of each checkpoint."""
    rows = [row.partition(" c")[0] for row in str(branches).splitlines()]
    return "\n".join(["", *rows, ""])


def test_the_text_is_a_graph_with_the_newest_on_top() -> None:
    assert (
        graph(tree(None, 1, 2, 3, 2, 5))
        == """
* 6
* 5
| * 4
| * 3
|/
* 2
* 1
"""
    )


def test_branches_that_are_open_at_the_same_time_have_columns_of_their_own() -> None:
    assert (
        graph(tree(None, 1, 2, 3, 2, 5, 3, 7, 1, 2, 10, 4))
        == """
* 12
| * 11
| * 10
| | * 9
| | | * 8
| | | * 7
| | | | * 6
| | | | * 5
* | | | | 4
|_|_|/  |
* | |   | 3
|/  |   |
|___|__/
*   | 2
|__/
* 1
"""
    )


def test_each_row_shows_id_time_status_and_marks_of_a_checkpoint() -> None:
    infos = [info(1, "elsewhere"), info(2, 1, is_pinned=True), info(3, 2)]
    assert str(build_branches("t", infos)).splitlines() == [
        "* 3 c3 2026-01-02T03:04:05Z IDLE (head)",
        "* 2 c2 2026-01-02T03:04:05Z IDLE (pinned)",
        "* 1 c1 2026-01-02T03:04:05Z IDLE (forked from elsewhere)",
    ]


def test_branches_can_be_written_as_json() -> None:
    data = tree(None, 1, 1).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["thread_id"] == "t" and data["head"] == "c3"
    assert [(branch["leads_to_head"], branch["leaves"], len(branch["checkpoints"])) for branch in data["branches"]] == [
        (True, None, 2),
        (False, "c1", 1),
    ]


def test_long_histories_with_many_rewinds_are_drawn() -> None:
    deep = tree(None, *(max(1, number - 2) for number in range(2, 3_000)))
    assert sum(len(line) for line in numbers(deep)) == 2_999
    assert len(str(deep).splitlines()) >= 2_999
    wide = tree(None, *([1] * 2_000))
    assert len(wide) == 2_000 and len(wide.main.children) == 1_999
    assert len(wide.line("c1999")) == 2
