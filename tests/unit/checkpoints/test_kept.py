"""RetentionIndex: commit by commit, it prunes the same as the policy over the whole list, at a lower cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.counting import counted_lines

from perdure.checkpoints.history.retention import (
    MAX_LIST_AGE,
    KeepFor,
    KeepLast,
    LatestOnly,
    Retention,
    RetentionIndex,
    find_outdated,
)
from perdure.records import CheckpointInfo

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class ModelStore:
    """Keeps the list of one thread and applies commits to it."""

    def __init__(self) -> None:
        self.infos: list[CheckpointInfo] = []
        self.pins: set[int] = set()
        self.number = 0
        self.now = START
        self.entries: dict[str, int] = {}
        """The commit that began what each checkpoint works on."""

    def next(self, previous: CheckpointInfo | None, iteration: int) -> CheckpointInfo:
        self.number += 1
        before = None if previous is None else previous.checkpoint_id
        info = CheckpointInfo(f"c{self.number}", "t", "w", self.number, iteration, before, self.now.isoformat())
        begins = iteration == 0 and (previous is None or previous.iteration_count > 0)
        self.entries[info.checkpoint_id] = self.number if begins or before is None else self.entries[before]
        return info

    def listed(self) -> list[CheckpointInfo]:
        return [msgspec.structs.replace(info, is_pinned=info.number in self.pins) for info in self.infos]

    def commit(self, info: CheckpointInfo, prunes: Sequence[int]) -> None:
        known = {info.checkpoint_id: info.previous_checkpoint_id for info in (*self.infos, info)}
        going = set(prunes) - self.pins
        self.infos = [info for info in (*self.infos, info) if info.number not in going]
        left = {info.checkpoint_id for info in self.infos}
        for at, entry in enumerate(self.infos):
            previous = entry.previous_checkpoint_id
            while previous is not None and previous not in left:
                previous = known.get(previous)
            self.infos[at] = msgspec.structs.replace(entry, previous_checkpoint_id=previous)


POLICIES = st.one_of(
    st.just(LatestOnly()),
    st.integers(1, 5).map(KeepLast),
    st.integers(1, 6).map(lambda seconds: KeepFor(seconds * SECOND)),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["next", "next", "entry", "entry", "progress", "rewind", "pin", "unpin", "note", "other run"]),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(POLICIES, STEPS)
def test_index_and_policy_over_the_whole_list_prune_the_same_checkpoints(
    retention: Retention, steps: list[tuple[str, int]]
) -> None:
    store = ModelStore()
    kept: RetentionIndex | None = None
    head: CheckpointInfo | None = None
    horizon, changes = 0, 0
    for act, chance in [("entry", 1), *steps]:
        if act == "note":  # a commit without a checkpoint
            store.number += 1
        elif act in ("pin", "unpin"):  # through this storage: the list is read again
            numbers = [info.number for info in store.infos]
            (store.pins.add if act == "pin" else store.pins.discard)(numbers[chance % len(numbers)])
            changes += 1
        elif act == "other run":
            kept, horizon = None, 0
        if act not in ("next", "entry", "progress", "rewind"):
            continue
        store.now += (chance - 2) * SECOND  # clocks are put back, too
        previous = store.infos[chance % len(store.infos)] if act == "rewind" else head
        iteration = 0 if previous is None or act == "entry" else previous.iteration_count + (act != "progress")
        info = store.next(previous, iteration)
        if kept is None or not kept.is_current(info, retention, changes):
            kept = RetentionIndex(retention, store.listed(), changes)
        expected = find_outdated(retention, [*store.listed(), info], info, store.now)
        prunes, before = kept.add(info)
        assert sorted(prunes) == [info.number for info in expected.checkpoints]
        store.commit(info, prunes)
        head = info
        horizon = max(horizon, before)
        oldest = min([info.number for info in store.listed() if not info.is_pinned])
        assert before <= min(oldest, store.entries[info.checkpoint_id])
        assert before == 0 or before >= expected.events_before
        assert max(horizon, 1) >= expected.events_before


def a_line(count: int, seconds: float = 0.001) -> list[CheckpointInfo]:
    """Turns of two commits."""
    times = [(START + number * seconds * SECOND).isoformat() for number in range(count)]
    return [
        CheckpointInfo(f"c{number}", "t", "w", number, (number + 1) % 2, f"c{number - 1}", at)
        for number, at in enumerate(times, 1)
    ]


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(3), KeepFor(2.5 * SECOND)])
def test_list_is_not_read_again_while_the_thread_continues(retention: Retention) -> None:
    line = a_line(50, 1)
    kept = RetentionIndex(retention, line[:9], 0)
    kept.add(line[9])
    assert all(kept.is_current(info, retention, 0) and kept.add(info) for info in line[10:50])


def test_event_horizon_is_returned_only_when_it_changes() -> None:
    line = a_line(12)
    kept = RetentionIndex(LatestOnly(), line[:2], 0)
    assert [kept.add(info) for info in line[2:8]] == [([1, 2], 3), ([3], 0), ([4], 5), ([5], 0), ([6], 7), ([7], 0)]


def test_list_is_read_again_after_a_change_of_it_or_of_the_policy() -> None:
    line = a_line(5)
    kept = RetentionIndex(KeepLast(2), line[:2], 7)
    assert not kept.is_current(line[2], KeepLast(2), 7)  # nothing was added to it yet
    kept.add(line[2])
    assert not kept.is_current(line[3], KeepLast(3), 7)
    assert kept.is_current(line[3], KeepLast(2), 7) and not kept.is_current(line[3], KeepLast(2), 8)


def test_the_list_is_read_again_after_a_rewind() -> None:
    line = a_line(5)
    kept = RetentionIndex(KeepLast(2), line[:2], 0)
    kept.add(line[2])
    rewound = msgspec.structs.replace(line[3], previous_checkpoint_id="c1")
    assert not kept.is_current(rewound, KeepLast(2), 0)


def test_list_is_read_again_at_its_max_age_in_both_clock_directions() -> None:
    line = a_line(5)
    kept = RetentionIndex(KeepLast(2), line[:2], 0)
    kept.add(line[2])
    for seconds, is_trusted in ((59, True), (61, False), (-59, True), (-61, False)):
        later = msgspec.structs.replace(line[3], timestamp=(START + seconds * SECOND).isoformat())
        assert kept.is_current(later, KeepLast(2), 0) is is_trusted, seconds
    assert not kept.is_current(msgspec.structs.replace(line[3], timestamp="never"), KeepLast(2), 0)
    assert MAX_LIST_AGE == 60 * SECOND


def test_checkpoint_with_the_same_id_replaces_the_earlier_checkpoint() -> None:
    line = a_line(4)
    kept = RetentionIndex(KeepLast(2), line[:3], 0)
    again = CheckpointInfo("c2", "t", "w", 4, 1, "c1", START.isoformat())
    assert kept.add(again) == ([3], 0)


@pytest.mark.parametrize("retention", [KeepLast(5_000), KeepFor(5_000 * SECOND)])
def test_cost_of_a_commit_depends_on_pruned_not_on_stored_checkpoints(retention: Retention) -> None:
    """100 commits over 5,000 checkpoints: some dozens of lines of Python each, and not thousands."""
    line = a_line(5_200, 1)
    kept = RetentionIndex(retention, line[:5_049], 0)
    kept.add(line[5_049])
    with counted_lines() as counted:
        for info in line[5_100:]:
            kept.add(info)
    assert counted.count < 100 * 100


def test_pinned_checkpoint_counts_in_the_line_and_is_never_pruned() -> None:
    line = [msgspec.structs.replace(info, is_pinned=info.number in (1, 3)) for info in a_line(6)]
    kept = RetentionIndex(KeepLast(3), line[:3], 0)
    assert [kept.add(info)[0] for info in line[3:]] == [[], [2], []]  # 3, 4 and 5 are the last three; then 4, 5 and 6
    aged = RetentionIndex(KeepFor(timedelta(milliseconds=2.5)), line[:3], 0)
    assert [aged.add(info)[0] for info in line[3:]] == [[], [2], []]


def test_pinned_checkpoint_of_an_abandoned_branch_is_not_counted() -> None:
    first, second, pinned, fourth, fifth = a_line(5)
    pinned = msgspec.structs.replace(pinned, is_pinned=True)
    kept = RetentionIndex(KeepLast(3), [first, second, pinned], 0)
    assert kept.add(msgspec.structs.replace(fourth, previous_checkpoint_id="c2"))[0] == []
    assert kept.add(fifth)[0] == [1]
