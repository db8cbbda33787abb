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
    given = numbers or range(1, len(previous) + 1)
    return build_branches("t", [info(number, one) for number, one in zip(given, previous, strict=True)])


def numbers(branches: Branches) -> list[list[int]]:
    return [[one.number for one in branch.checkpoints] for branch in branches]


def test_a_thread_that_was_never_rewound_is_one_branch() -> None:
    found = tree(None, 1, 2)
    assert numbers(found) == [[1, 2, 3]] and len(found) == 1
    assert found.head.checkpoint_id == "c3" and found.main.leads_to_head
    assert found.main.leaves is None and found.main.forked_from is None and found.main.children == ()


def test_what_a_rewind_left_behind_is_a_branch_that_leaves_the_line_to_the_head() -> None:
    found = tree(None, 1, 2, 3, 2, 5)
    assert numbers(found) == [[1, 2, 5, 6], [3, 4]]
    [left] = found.main.children
    assert left.leaves is not None and left.leaves.number == 2 and not left.leads_to_head
    assert found.branches == (found.main, left) and left.newest.number == 4


def test_branches_have_branches() -> None:
    found = tree(None, 1, 2, 3, 2, 5, 3, 7, 1, 2, 10, 4)
    assert numbers(found) == [[1, 2, 3, 4, 12], [5, 6], [7, 8], [9], [10, 11]]
    assert [branch.leaves and branch.leaves.number for branch in found] == [None, 2, 3, 1, 2]
    later = tree(None, 1, 2, 3, 2, 5, 6, 5, 1)
    assert numbers(later) == [[1, 9], [2, 5, 8], [3, 4], [6, 7]]
    [second] = later.main.children
    assert [[one.number for one in child.checkpoints] for child in second.children] == [[3, 4], [6, 7]]


def test_the_newest_checkpoint_is_the_head_also_straight_after_a_rewind() -> None:
    found = tree(None, 1, 2, 1)
    assert numbers(found) == [[1, 4], [2, 3]] and found.head.number == 4


def test_a_fork_names_the_checkpoint_of_the_other_thread() -> None:
    found = tree("of another thread", 1)
    assert numbers(found) == [[1, 2]] and found.main.forked_from == "of another thread" and found.main.leaves is None
    pruned = tree("gone", 7, numbers=[7, 8])
    assert pruned.main.forked_from is None, "the first commit of a thread is the one that forks"


def test_checkpoints_that_continue_from_none_of_the_others_begin_branches_of_their_own() -> None:
    found = tree(None, None, "gone", 2)
    assert numbers(found) == [[2, 4], [1], [3]]
    assert all(branch.leaves is None for branch in found)


@pytest.mark.parametrize("previous", [(1, 1), (2, 1), (None, 3, 2)])
def test_lists_that_go_round_in_a_circle_end(previous: tuple[int | None, ...]) -> None:
    """A storage of somebody else's may hand out anything."""
    found = tree(*previous)
    assert sorted(number for line in numbers(found) for number in line) == [*range(1, len(previous) + 1)]


def test_the_line_to_a_checkpoint_goes_through_all_branches_that_lead_to_it() -> None:
    found = tree(None, 1, 2, 3, 2, 5, 6, 5, 1)
    assert [one.number for one in found.line("c7")] == [1, 2, 5, 6, 7]
    assert [one.number for one in found.line(info(9, 1))] == [1, 9]


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [("c4", "c6", 2), ("c4", "c3", 3), ("c3", "c3", 3), ("c9", "c7", 1), ("c7", "c8", 5), ("c1", "c9", 1)],
)
def test_two_branches_have_a_last_checkpoint_in_common(a: str, b: str, common: int) -> None:
    found = tree(None, 1, 2, 3, 2, 5, 6, 5, 1)
    for one, other in ((a, b), (b, a)):
        shared = found.common(one, other)
        assert shared is not None and shared.number == common


def test_branches_with_different_beginnings_have_nothing_in_common() -> None:
    assert tree(None, None).common("c1", "c2") is None


@pytest.mark.parametrize("wanted", ["", "c99", "t"])
def test_a_checkpoint_that_is_not_in_the_thread_is_refused(wanted: str) -> None:
    found = tree(None, 1)
    with pytest.raises(CheckpointNotFound, match=f"'{wanted}'"):
        found.line(wanted)
    with pytest.raises(CheckpointNotFound, match=f"'{wanted}'"):
        found.common("c1", wanted)


# ---------------------------------------------------------------- as text and as JSON


def graph(branches: Branches) -> str:
    """The drawing without what is said about each checkpoint."""
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


def test_each_row_says_what_is_known_of_a_checkpoint() -> None:
    infos = [info(1, "elsewhere"), info(2, 1, is_pinned=True), info(3, 2)]
    assert str(build_branches("t", infos)).splitlines() == [
        "* 3 c3 2026-01-02T03:04:05Z IDLE (head)",
        "* 2 c2 2026-01-02T03:04:05Z IDLE (pinned)",
        "* 1 c1 2026-01-02T03:04:05Z IDLE (forked from elsewhere)",
    ]


def test_it_can_be_written_as_json() -> None:
    found = tree(None, 1, 1).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["thread_id"] == "t" and found["head"] == "c3"
    assert [(one["leads_to_head"], one["leaves"], len(one["checkpoints"])) for one in found["branches"]] == [
        (True, None, 2),
        (False, "c1", 1),
    ]


def test_long_histories_with_many_rewinds_are_no_trouble() -> None:
    deep = tree(None, *(max(1, number - 2) for number in range(2, 3_000)))
    assert sum(len(line) for line in numbers(deep)) == 2_999
    assert len(str(deep).splitlines()) >= 2_999
    wide = tree(None, *([1] * 2_000))
    assert len(wide) == 2_000 and len(wide.main.children) == 1_999
    assert len(wide.line("c1999")) == 2
