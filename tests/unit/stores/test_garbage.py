"""The plan of a pruning: what is still needed, and what those that stay are to say from now on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.counting import counted_lines

from perdure.stores.garbage import Lineage, Pruning, plan_pruning


def digest(name: str) -> str:
    """One that no other name's digest begins like."""
    return f"{name:_<22}"


def ref(name: str) -> str:
    """`a5`: the digest `a` that commit 5 holds."""
    return f"{digest(name[0])}.{name[1:]}"


def line(
    number: int, parent: int | None, added: str = "", dropped: Iterable[str] = (), *, stays: bool = True
) -> Lineage:
    gone = frozenset(f"{ref(name)[:6]}.{name[1:]}" for name in dropped)
    return Lineage(number, parent, stays, frozenset(map(digest, added)), gone)


def needed(plan: Pruning, *names: str) -> str:
    return " ".join(name for name in names if (digest(name[0]), int(name[1:])) in plan.needed)


def shown(lineage: Lineage) -> tuple[int | None, set[str], set[str]]:
    """Its parent, what it dropped and what it carries, as names."""
    named = [{f"{each[0]}{each.partition('.')[2]}" for each in refs} for refs in (lineage.dropped, lineage.carried)]
    return lineage.parent, named[0], named[1]


def test_chunk_is_needed_until_its_last_commit_goes() -> None:
    first, last = line(1, None, "ab"), line(3, 2, "d")
    middle = line(2, 1, "c", ["a1"])
    assert needed(plan_pruning([first, middle, last]), "a1", "b1", "c2", "d3") == "a1 b1 c2 d3"
    gone = line(1, None, "ab", stays=False)
    assert needed(plan_pruning([gone, middle, last]), "a1", "b1", "c2", "d3") == "b1 c2 d3"


def test_nothing_is_relinked_while_every_parent_stays() -> None:
    plan = plan_pruning([line(1, None, "a"), line(2, 1, "b"), line(3, 1, "c"), line(4, 3, stays=False)])
    assert plan.relinked == {}


def test_commit_that_loses_its_parent_records_the_chunks_it_has_from_it() -> None:
    commits = [line(1, None, "ab"), line(2, 1, "c", ["a1"], stays=False), line(3, 2, "d", ["b1"]), line(4, 3)]
    plan = plan_pruning(commits)
    assert set(plan.relinked) == {3}
    assert shown(plan.relinked[3]) == (1, {"a1", "b1"}, {"c2"})
    assert plan.relinked[3].added == {digest("d")}


def test_first_kept_commit_carries_all_its_chunks() -> None:
    commits = [line(1, None, "ab", stays=False), line(2, 1, "c", stays=False), line(3, 2, "", ["a1"])]
    assert shown(plan_pruning(commits).relinked[3]) == (None, set(), {"b1", "c2"})


def test_chunk_added_and_dropped_between_kept_commits_is_not_carried() -> None:
    commits = [line(1, None, "a"), line(2, 1, "b", stays=False), line(3, 2, "c", ["b2"], stays=False), line(4, 3)]
    plan = plan_pruning(commits)
    assert shown(plan.relinked[4]) == (1, set(), {"c3"})
    assert needed(plan, "a1", "b2", "c3") == "a1 c3"


def test_branch_keeps_chunks_that_other_branches_dropped() -> None:
    commits = [line(1, None, "a", stays=False), line(2, 1, "b", ["a1"]), line(3, 1, "c"), line(4, 3, "", ["a1", "c3"])]
    plan = plan_pruning(commits)
    assert needed(plan, "a1", "b2", "c3") == "a1 b2 c3"
    assert shown(plan.relinked[2]) == (None, set(), set())
    assert shown(plan.relinked[3]) == (None, set(), {"a1"})


def test_the_same_digest_in_two_commits_is_two_chunks() -> None:
    commits = [line(1, None, "a", stays=False), line(2, 1, "", ["a1"], stays=False), line(3, 2, "a")]
    plan = plan_pruning(commits)
    assert needed(plan, "a1", "a3") == "a3"
    assert shown(plan.relinked[3]) == (None, set(), set())


def test_plan_continues_from_the_result_of_an_earlier_plan() -> None:
    commits = {1: line(1, None, "ab"), 2: line(2, 1, "c"), 3: line(3, 2, "d", ["a1"]), 4: line(4, 3, "e", ["c2"])}
    for number in (2, 1, 3):
        lineage = commits[number]
        commits[number] = Lineage(number, lineage.parent, False, lineage.added, lineage.dropped, lineage.carried)
        plan = plan_pruning(commits.values())
        commits = {key: lineage for key, lineage in {**commits, **plan.relinked}.items() if lineage.is_kept}
    assert shown(commits[4]) == (None, set(), {"b1", "d3"})
    assert needed(plan_pruning(commits.values()), "a1", "b1", "c2", "d3", "e4") == "b1 d3 e4"


def test_the_order_in_which_commits_are_given_does_not_matter() -> None:
    commits = [
        line(1, None, "ab", stays=False),
        line(2, 1, "c", ["a1"]),
        line(3, 2, "d", ["b1"], stays=False),
        line(4, 3),
    ]
    assert plan_pruning(commits) == plan_pruning(commits[::-1])


def test_ambiguous_short_reference_drops_no_chunk() -> None:
    alike = frozenset({"abcdefgh", "abcdefij"})
    plan = plan_pruning(
        [Lineage(1, None, False, alike, frozenset()), Lineage(2, 1, True, frozenset(), frozenset({"abcdef.1"}))]
    )
    assert {("abcdefgh", 1), ("abcdefij", 1)} <= plan.needed
    assert plan.relinked[2].carried == {"abcdefgh.1", "abcdefij.1"}
    in_full = Lineage(2, 1, True, frozenset(), frozenset({"abcdefgh.1"}))
    plan = plan_pruning([Lineage(1, None, False, alike, frozenset()), in_full])
    assert ("abcdefgh", 1) not in plan.needed and ("abcdefij", 1) in plan.needed


@pytest.mark.parametrize("parents", [[None, 1], [None, 1, 2, 2]])
def test_plan_for_only_doomed_commits_is_empty(parents: list[int | None]) -> None:
    commits = [line(number, parent, "ab", stays=False) for number, parent in enumerate(parents, 1)]
    assert plan_pruning(commits) == Pruning()
    assert plan_pruning([]) == Pruning()


def lines_of_plan(commits: list[Lineage]) -> int:
    with counted_lines() as lines:
        plan_pruning(commits)
    return lines.count


def test_plan_work_grows_in_proportion_to_commits_and_chunks() -> None:
    def long(count: int) -> list[Lineage]:
        lineages = [Lineage(1, None, True, frozenset({"0" * 22}), frozenset())]
        for number in range(2, count + 1):  # each brings a few and drops one, as appending to a list does
            added = frozenset(f"{number:06}{index:016}" for index in range(3))
            dropped = frozenset({f"{number - 1:06}{0:016}.{number - 1}"})
            lineages.append(Lineage(number, number - 1, number % 7 != 0, added, dropped))
        return lineages

    def replaced(count: int) -> list[Lineage]:
        added = frozenset(f"{index:022}"[::-1] for index in range(count))
        return [
            Lineage(1, None, False, added, frozenset()),
            Lineage(2, 1, True, frozenset(), frozenset(f"{name[:6]}.1" for name in added)),
        ]

    for make in (long, replaced):
        few, many = (lines_of_plan(make(count)) for count in (300, 3_000))
        assert 300 < few < many < 11 * few  # in proportion to the square it would be a hundred times
