"""Commits after a pruning: which go, which are made smaller, and what is left in them."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents
from perdure.stores.garbage import prune_commits


def commit_of(
    number: int, parent: int | None, chunks: str = "", *, has_checkpoint: bool = True, **parts: Any
) -> Commit:
    """Its chunks have names of one letter, repeated to the length of a digest."""
    info = CheckpointInfo(f"t-{number}", "t", "w", number, number, None if parent is None else f"t-{parent}", "")
    held = {name * 22: b'"%b"' % name.encode() for name in chunks}
    root = b'{"root":%d}' % number if has_checkpoint else None
    return Commit(
        Lease("t", "", 0), number, info if has_checkpoint else None, root, parent=parent, chunks=held, **parts
    )


def dropped(*names: str) -> list[str]:
    return [f"{name[0] * 6}.{name[1:]}" for name in names]


def changes(commits: list[Commit], *doomed: int) -> dict[int, Commit | None]:
    return dict(prune_commits(commits, doomed))


def pruned(commits: list[Commit], *doomed: int) -> dict[int, Commit]:
    return {number: commit for number, commit in changes(commits, *doomed).items() if commit is not None}


def names(commit: Commit) -> str:
    return "".join(sorted(digest[0] for digest in commit.chunks))


EVENTS = LoggedEvents(1, 1, b'[["output"]]')
REFERRING = LoggedEvents(1, 1, b'[["output"]]', refers=True)


def test_unneeded_chunks_are_pruned_with_their_checkpoint() -> None:
    changed = pruned([commit_of(1, None, "ab"), commit_of(2, 1, "c", dropped=dropped("a1"))], 1)
    assert (names(changed[1]), changed[1].info, changed[1].root, changed[1].parent) == ("b", None, None, None)
    assert (changed[2].parent, changed[2].carried) == (None, [f"{'b' * 22}.1"])
    assert changed[2].info is not None and changed[2].info.previous_checkpoint_id is None


def test_commit_without_needed_chunks_is_removed() -> None:
    changed = changes([commit_of(1, None, "a"), commit_of(2, 1, "", dropped=dropped("a1"))], 1)
    assert changed[1] is None
    assert changed[2] is not None and changed[2].parent is None


def test_commits_that_are_not_touched_are_not_written() -> None:
    commits = [
        commit_of(1, None, "a"),
        commit_of(2, 1, "b"),
        commit_of(3, 2, "c"),
        commit_of(4, None, has_checkpoint=False),
    ]
    assert set(changes(commits, 3)) == {3}
    assert changes(commits) == {}


def test_events_of_a_pruned_checkpoint_stay_with_their_own_chunks() -> None:
    commits = [
        commit_of(1, None, "ab", events=msgspec.structs.replace(EVENTS, own=["b" * 22])),
        commit_of(2, 1, "", dropped=dropped("a1")),
    ]
    left = pruned(commits, 1)[1]
    assert (names(left), left.events) == ("b", commits[0].events)


def test_chunks_that_only_events_refer_to_stay() -> None:
    commits = [
        commit_of(1, None, "ab"),
        commit_of(2, 1, "c", events=REFERRING),
        commit_of(3, 2, "", dropped=dropped("a1", "c2")),
    ]
    changed = pruned(commits, 1, 2)
    assert names(changed[1]) == "ab"
    assert names(changed[2]) == "c"
    assert changed[2].info is None and changed[2].events == REFERRING
    assert sorted(changed[2].carried) == [f"{'a' * 22}.1", f"{'b' * 22}.1"]


def test_events_of_a_commit_without_a_checkpoint_keep_their_chunks() -> None:
    logged = commit_of(2, 1, has_checkpoint=False, events=REFERRING)
    changed = pruned([commit_of(1, None, "ab"), logged, commit_of(3, 1, "", dropped=dropped("a1", "b1"))], 1)
    assert names(changed[1]) == "ab"
    assert changed[2].parent is None and sorted(changed[2].carried) == [f"{'a' * 22}.1", f"{'b' * 22}.1"]


def test_pruned_checkpoint_leaves_only_chunks_of_its_events() -> None:
    logged = commit_of(2, 1, "b", events=REFERRING)
    for doomed in ((2,), (1, 2)):
        changed = pruned([commit_of(1, None, "a"), logged, commit_of(3, 2)], *doomed)
        assert changed[2].root is None


def test_pruning_continues_from_the_result_of_an_earlier_pruning() -> None:
    commits = [
        commit_of(1, None, "abx"),
        commit_of(2, 1, "c", dropped=dropped("a1"), events=REFERRING),
        commit_of(3, 2, "d", dropped=dropped("x1")),
        commit_of(4, 3, "e", dropped=dropped("c2")),
        commit_of(5, 4, "", dropped=dropped("d3")),
    ]
    for doomed in (3, 1, 4, 2):
        changed = changes(commits, doomed)
        commits = [left for commit in commits if (left := changed.get(commit.number, commit)) is not None]
    assert {commit.number: names(commit) for commit in commits} == {1: "bx", 2: "c", 4: "e", 5: ""}
    assert [commit.number for commit in commits if commit.info is not None] == [5]
