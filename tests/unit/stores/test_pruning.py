"""Packed commits after a pruning: which go, which are made smaller, and what is left in them."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.stores.garbage import PackedCommit, prune_bodies
from perdure.stores.packing import NOTHING, Body, repack_body, unpack_body


def packed(
    number: int, parent: int | None, chunks: str = "", *, has_checkpoint: bool = True, **parts: Any
) -> PackedCommit:
    """Its chunks have names of one letter, repeated to the length of a digest."""
    root = msgspec.Raw(b'{"root":%d}' % number) if has_checkpoint else NOTHING
    held = {name * 22: msgspec.Raw(b'"%b"' % name.encode()) for name in chunks}
    return PackedCommit(number, parent, has_checkpoint, Body(root, held, **parts))


def dropped(*names: str) -> list[str]:
    return [f"{name[0] * 6}.{name[1:]}" for name in names]


def pruned(commits: list[PackedCommit], *doomed: int) -> dict[int, PackedCommit]:
    return {commit.number: commit for commit in prune_bodies(commits, doomed)}


def names(body: Body) -> str:
    return "".join(sorted(digest[0] for digest in body.chunks))


EVENTS = msgspec.Raw(b'[["output"]]')


def test_unneeded_chunks_are_pruned_with_their_checkpoint() -> None:
    changed = pruned([packed(1, None, "ab"), packed(2, 1, "c", dropped=dropped("a1"))], 1)
    assert (names(changed[1].body), changed[1].has_checkpoint, changed[1].parent) == ("b", False, None)
    assert changed[1].body.root is NOTHING
    assert not changed[1].is_empty
    assert (changed[2].parent, list(changed[2].body.carried), changed[2].has_checkpoint) == (
        None,
        [f"{'b' * 22}.1"],
        True,
    )


def test_commit_without_needed_chunks_is_removed() -> None:
    changed = pruned([packed(1, None, "a"), packed(2, 1, "", dropped=dropped("a1"))], 1)
    assert changed[1].is_empty
    assert changed[2].parent is None


def test_commits_that_are_not_touched_are_not_written() -> None:
    commits = [packed(1, None, "a"), packed(2, 1, "b"), packed(3, 2, "c"), packed(4, None, has_checkpoint=False)]
    assert set(pruned(commits, 3)) == {3}
    assert pruned(commits) == {}


def test_events_of_a_pruned_checkpoint_stay_with_their_own_chunks() -> None:
    commits = [packed(1, None, "ab", events=EVENTS, own=["b" * 22]), packed(2, 1, "", dropped=dropped("a1"))]
    body = pruned(commits, 1)[1].body
    assert (names(body), bytes(body.events), list(body.own)) == ("b", bytes(EVENTS), ["b" * 22])


def test_chunks_that_only_events_refer_to_stay() -> None:
    commits = [
        packed(1, None, "ab"),
        packed(2, 1, "c", events=EVENTS, refers=True),
        packed(3, 2, "", dropped=dropped("a1", "c2")),
    ]
    changed = pruned(commits, 1, 2)
    assert names(changed[1].body) == "ab"
    assert names(changed[2].body) == "c"
    assert not changed[2].has_checkpoint and changed[2].body.refers
    assert sorted(changed[2].body.carried) == [f"{'a' * 22}.1", f"{'b' * 22}.1"]


def test_events_of_a_commit_without_a_checkpoint_keep_their_chunks() -> None:
    logged = packed(2, 1, has_checkpoint=False, events=EVENTS, refers=True)
    changed = pruned([packed(1, None, "ab"), logged, packed(3, 1, "", dropped=dropped("a1", "b1"))], 1)
    assert names(changed[1].body) == "ab"
    assert changed[2].parent is None and sorted(changed[2].body.carried) == [f"{'a' * 22}.1", f"{'b' * 22}.1"]


def test_pruned_checkpoint_leaves_only_chunks_of_its_events() -> None:
    logged = packed(2, 1, "b", events=EVENTS, refers=True)
    for doomed in ((2,), (1, 2)):
        changed = pruned([packed(1, None, "a"), logged, packed(3, 2)], *doomed)
        assert changed[2].body.root is NOTHING


def test_pruning_continues_from_the_result_of_an_earlier_pruning() -> None:
    commits = [
        packed(1, None, "abx"),
        packed(2, 1, "c", dropped=dropped("a1"), events=EVENTS, refers=True),
        packed(3, 2, "d", dropped=dropped("x1")),
        packed(4, 3, "e", dropped=dropped("c2")),
        packed(5, 4, "", dropped=dropped("d3")),
    ]
    for doomed in (3, 1, 4, 2):
        changed = pruned(commits, doomed)
        after = [changed.get(commit.number, commit) for commit in commits]
        commits = [
            PackedCommit(commit.number, commit.parent, commit.has_checkpoint, unpack_body(repack_body(commit.body)))
            for commit in after
            if commit.number not in changed or not commit.is_empty
        ]
    left = {commit.number: names(commit.body) for commit in commits}
    assert left == {1: "bx", 2: "c", 4: "e", 5: ""}
    assert [commit.number for commit in commits if commit.has_checkpoint] == [5]
