"""What is kept of a thread, commit by commit: the same as if all of it were looked at anew each time, for less."""

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
)
from perdure.records import CheckpointInfo

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class ModelStore:
    """Keeps the list of one thread, and does what a commit says."""

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
        return [msgspec.structs.replace(one, is_pinned=one.number in self.pins) for one in self.infos]

    def commit(self, info: CheckpointInfo, prunes: Sequence[int]) -> None:
        known = {one.checkpoint_id: one.previous_checkpoint_id for one in (*self.infos, info)}
        going = set(prunes) - self.pins
        self.infos = [one for one in (*self.infos, info) if one.number not in going]
        left = {one.checkpoint_id for one in self.infos}
        for at, one in enumerate(self.infos):
            previous = one.previous_checkpoint_id
            while previous is not None and previous not in left:
                previous = known.get(previous)
            self.infos[at] = msgspec.structs.replace(one, previous_checkpoint_id=previous)


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
def test_what_goes_is_what_the_policy_says_of_the_whole_list(
    retention: Retention, steps: list[tuple[str, int]]
) -> None:
    store = ModelStore()
    kept: RetentionIndex | None = None
    head: CheckpointInfo | None = None
    told, changes = 0, 0
    for act, chance in [("entry", 1), *steps]:
        if act == "note":  # a commit without a checkpoint
            store.number += 1
        elif act in ("pin", "unpin"):  # through this storage: the list is read again
            numbers = [one.number for one in store.infos]
            (store.pins.add if act == "pin" else store.pins.discard)(numbers[chance % len(numbers)])
            changes += 1
        elif act == "other run":
            kept, told = None, 0
        if act not in ("next", "entry", "progress", "rewind"):
            continue
        store.now += (chance - 2) * SECOND  # clocks are put back, too
        previous = store.infos[chance % len(store.infos)] if act == "rewind" else head
        iteration = 0 if previous is None or act == "entry" else previous.iteration_count + (act != "progress")
        info = store.next(previous, iteration)
        if kept is None or not kept.is_current(info, retention, changes):
            kept = RetentionIndex(retention, store.listed(), changes)
        expected = retention.outdated([*store.listed(), info], info, store.now)
        prunes, before = kept.add(info)
        assert sorted(prunes) == [one.number for one in expected.checkpoints]
        store.commit(info, prunes)
        head = info
        told = max(told, before)
        oldest = min([one.number for one in store.listed() if not one.is_pinned])
        assert before <= min(oldest, store.entries[info.checkpoint_id])
        assert before == 0 or before >= expected.events_before
        assert max(told, 1) >= expected.events_before


def a_line(count: int, seconds: float = 0.001) -> list[CheckpointInfo]:
    """Turns of two commits."""
    times = [(START + number * seconds * SECOND).isoformat() for number in range(count)]
    return [
        CheckpointInfo(f"c{number}", "t", "w", number, (number + 1) % 2, f"c{number - 1}", at)
        for number, at in enumerate(times, 1)
    ]


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(3), KeepFor(2.5 * SECOND)])
def test_the_list_is_not_needed_again_while_the_thread_goes_on(retention: Retention) -> None:
    line = a_line(50, 1)
    kept = RetentionIndex(retention, line[:9], 0)
    kept.add(line[9])
    assert all(kept.is_current(one, retention, 0) and kept.add(one) for one in line[10:50])


def test_events_are_told_to_go_when_that_changes() -> None:
    line = a_line(12)
    kept = RetentionIndex(LatestOnly(), line[:2], 0)
    assert [kept.add(one) for one in line[2:8]] == [([1, 2], 3), ([3], 0), ([4], 5), ([5], 0), ([6], 7), ([7], 0)]


def test_the_list_is_read_again_when_somebody_changed_it() -> None:
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


def test_the_list_is_read_again_before_it_is_old_whichever_way_the_clock_goes() -> None:
    line = a_line(5)
    kept = RetentionIndex(KeepLast(2), line[:2], 0)
    kept.add(line[2])
    for seconds, is_trusted in ((59, True), (61, False), (-59, True), (-61, False)):
        later = msgspec.structs.replace(line[3], timestamp=(START + seconds * SECOND).isoformat())
        assert kept.is_current(later, KeepLast(2), 0) is is_trusted, seconds
    assert not kept.is_current(msgspec.structs.replace(line[3], timestamp="never"), KeepLast(2), 0)
    assert MAX_LIST_AGE == 60 * SECOND


def test_a_checkpoint_with_the_id_of_another_takes_its_place() -> None:
    line = a_line(4)
    kept = RetentionIndex(KeepLast(2), line[:3], 0)
    again = CheckpointInfo("c2", "t", "w", 4, 1, "c1", START.isoformat())
    assert kept.add(again) == ([3], 0)


@pytest.mark.parametrize("retention", [KeepLast(5_000), KeepFor(5_000 * SECOND)])
def test_a_commit_costs_what_goes_and_not_what_is_there(retention: Retention) -> None:
    """100 commits over 5,000 checkpoints: some dozens of lines of Python each, and not thousands."""
    line = a_line(5_200, 1)
    kept = RetentionIndex(retention, line[:5_049], 0)
    kept.add(line[5_049])
    with counted_lines() as counted:
        for one in line[5_100:]:
            kept.add(one)
    assert counted.count < 100 * 100


def test_a_pinned_checkpoint_has_its_place_in_the_line_and_is_never_told_to_go() -> None:
    line = [msgspec.structs.replace(one, is_pinned=one.number in (1, 3)) for one in a_line(6)]
    kept = RetentionIndex(KeepLast(3), line[:3], 0)
    assert [kept.add(one)[0] for one in line[3:]] == [[], [2], []]  # 3, 4 and 5 are the last three; then 4, 5 and 6
    aged = RetentionIndex(KeepFor(timedelta(milliseconds=2.5)), line[:3], 0)
    assert [aged.add(one)[0] for one in line[3:]] == [[], [2], []]


def test_a_pinned_checkpoint_of_an_abandoned_branch_takes_nobodys_place() -> None:
    one, two, pinned, four, five = a_line(5)
    pinned = msgspec.structs.replace(pinned, is_pinned=True)
    kept = RetentionIndex(KeepLast(3), [one, two, pinned], 0)
    assert kept.add(msgspec.structs.replace(four, previous_checkpoint_id="c2"))[0] == []
    assert kept.add(five)[0] == [1]
