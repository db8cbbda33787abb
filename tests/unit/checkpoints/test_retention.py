"""Retention policies: which checkpoints and events of a thread they prune, and which arguments they accept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from perdure import InMemoryCheckpointStorage, open_store
from perdure.checkpoints.history.retention import (
    FullHistory,
    KeepFor,
    KeepLast,
    LatestOnly,
    Retention,
    as_retention,
    find_outdated,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import CheckpointInfo
from perdure.storages import FileCheckpointStorage, SqliteCheckpointStorage
from perdure.stores.memory.store import MemoryStore

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def made(number: int, after: int | None = None, *, iteration: int | None = None, **fields: Any) -> CheckpointInfo:
    """A checkpoint that was made at hour `number`; the entry of its run unless an iteration is given."""
    previous = None if after is None else f"c{after}"
    at = fields.pop("timestamp", (START + number * HOUR).isoformat())
    return CheckpointInfo(f"c{number}", "t", "w", number, iteration or 0, previous, at, **fields)


def turns(count: int) -> list[CheckpointInfo]:
    """Of two commits each: 1 and 2, 3 and 4, ..."""
    return [made(number, number - 1 or None, iteration=(number + 1) % 2) for number in range(1, 2 * count + 1)]


def gone(retention: Retention, infos: Sequence[CheckpointInfo], at: float = 0) -> list[int]:
    return [info.number for info in find_outdated(retention, infos, infos[-1], START + at * HOUR).checkpoints]


def pinned(infos: Sequence[CheckpointInfo], *numbers: int) -> list[CheckpointInfo]:
    return [msgspec.structs.replace(info, is_pinned=info.number in numbers) for info in infos]


# A rewind to 2 left the branch of 3 and 4.
BRANCHED = [made(1), made(2, 1, iteration=1), made(3, 2), made(4, 3, iteration=1), made(5, 2), made(6, 5, iteration=1)]


def test_full_history_prunes_nothing() -> None:
    assert find_outdated(FullHistory(), BRANCHED, BRANCHED[-1], START + 1000 * HOUR) == ((), 0)


def test_latest_only_prunes_all_but_the_head() -> None:
    assert gone(LatestOnly(), turns(3)) == [1, 2, 3, 4, 5]
    assert gone(LatestOnly(), BRANCHED) == [1, 2, 3, 4, 5]
    assert gone(LatestOnly(), [made(7, 6)]) == []


@pytest.mark.parametrize(("count", "going"), [(1, [1, 2, 3, 4, 5]), (2, [1, 2, 3, 4]), (5, [1]), (6, []), (99, [])])
def test_keep_last_keeps_that_many_of_the_line_to_the_head(count: int, going: list[int]) -> None:
    assert gone(KeepLast(count), turns(3)) == going


@pytest.mark.parametrize(("count", "going"), [(2, [1, 2, 3, 4]), (3, [1, 3, 4]), (4, [3, 4]), (99, [3, 4])])
def test_keep_last_prunes_the_branches_that_a_rewind_left(count: int, going: list[int]) -> None:
    assert gone(KeepLast(count), BRANCHED) == going


def test_keep_last_ends_where_the_line_continues_in_another_thread() -> None:
    fork = [made(1, 900, iteration=3), made(2, 1)]
    assert gone(KeepLast(2), fork) == []


def test_keep_last_ends_with_a_cyclic_line() -> None:
    """Checkpoints that are saved by hand can have any previous id."""
    assert gone(KeepLast(9), [made(1, 3), made(2, 1), made(3, 2)]) == []
    assert gone(KeepLast(9), [made(1, 1), made(2, 2)]) == [1]


def test_keep_for_prunes_older_checkpoints_on_any_branch() -> None:
    assert gone(KeepFor(3 * HOUR), BRANCHED, at=6) == [1, 2]
    assert gone(KeepFor(3 * HOUR), BRANCHED, at=7.5) == [1, 2, 3, 4]
    assert gone(KeepFor(timedelta.max), BRANCHED, at=7) == []


def test_keep_for_keeps_the_head_at_any_age() -> None:
    assert gone(KeepFor(HOUR), BRANCHED, at=1000) == [1, 2, 3, 4, 5]


def test_keep_for_goes_by_the_time_and_not_by_the_order_of_commits() -> None:
    infos = [made(1), made(2, 1, timestamp=(START - HOUR).isoformat()), made(3, 2)]
    assert gone(KeepFor(3 * HOUR), infos, at=3) == [2]


@pytest.mark.parametrize("timestamp", ["", "yesterday", "2026-13-01T00:00:00+00:00"])
def test_a_checkpoint_whose_time_cannot_be_read_does_not_grow_old(timestamp: str) -> None:
    assert gone(KeepFor(HOUR), [made(1, timestamp=timestamp), made(2, 1), made(3, 2)], at=1000) == [2]


def test_a_time_without_a_zone_is_utc() -> None:
    infos = [made(1, timestamp="2026-01-01T00:00:00"), made(2, timestamp="2026-01-01T02:00:00+02:00"), made(3)]
    assert gone(KeepFor(HOUR), infos, at=1) == []
    assert gone(KeepFor(HOUR), infos, at=1.01) == [1, 2]


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(2), KeepFor(HOUR)])
def test_pinned_checkpoints_are_never_pruned(retention: Retention) -> None:
    everything = gone(retention, BRANCHED, at=1000)
    assert gone(retention, pinned(BRANCHED, 1, 4, 6), at=1000) == [
        number for number in everything if number not in (1, 4)
    ]


def test_pinned_checkpoint_of_the_line_counts_among_the_last() -> None:
    assert gone(KeepLast(3), pinned(turns(3), 5)) == [1, 2, 3]


# ---------------------------------------------------------------- events


def horizon(retention: Retention, infos: Sequence[CheckpointInfo], at: float = 0) -> int:
    return find_outdated(retention, infos, infos[-1], START + at * HOUR).events_before


def test_events_are_pruned_up_to_the_oldest_kept_checkpoint() -> None:
    infos = turns(4)
    assert horizon(KeepLast(3), infos) == 6
    assert horizon(KeepLast(99), infos) == 1


def test_events_after_the_last_checkpoint_of_the_previous_run_stay() -> None:
    """Those events may end that run, or begin this run, whose first checkpoint is gone."""
    assert horizon(LatestOnly(), [*turns(2), made(7, 4), made(8, 7, iteration=1)]) == 5


def test_events_of_young_checkpoints_stay() -> None:
    infos = turns(4)
    assert horizon(KeepFor(4.5 * HOUR), infos, at=8) == 4


def test_events_of_the_current_run_always_stay() -> None:
    infos = [*turns(2), made(5, 4), made(6, 5, iteration=1), made(7, 6, iteration=2)]
    assert [horizon(KeepLast(count), infos) for count in (1, 2, 3, 4)] == [5, 5, 5, 4]
    assert horizon(LatestOnly(), infos) == 5


def test_consecutive_inputs_and_progress_in_a_superstep_are_one_beginning() -> None:
    infos = [*turns(2), made(5, 4), made(6, 5), made(7, 6)]
    assert horizon(LatestOnly(), infos) == 5


def test_events_stay_where_the_beginning_of_the_run_is_not_known() -> None:
    assert horizon(LatestOnly(), [made(7, 6, iteration=2), made(8, 7, iteration=3)]) == 0
    assert horizon(LatestOnly(), [made(7, 6), made(8, 7, iteration=1)]) == 0  # 7 may continue the work of 6
    assert horizon(LatestOnly(), [made(1), made(2, 1, iteration=1)]) == 0


def test_the_events_of_an_abandoned_branch_that_is_kept_stay() -> None:
    infos = [*turns(2), made(5, 2), made(6, 5, iteration=1)]
    assert horizon(KeepFor(4.5 * HOUR), infos, at=6) == 2
    assert horizon(KeepLast(2), [*infos, made(7, 6), made(8, 7, iteration=1)]) == 7  # it is gone


def test_pins_do_not_keep_events() -> None:
    assert horizon(KeepLast(2), pinned(turns(4), 1)) == 7
    assert horizon(LatestOnly(), pinned(turns(4), 8)) == 7


# ---------------------------------------------------------------- what they are


def test_policies_are_values() -> None:
    assert KeepLast(3) == KeepLast(3) != KeepLast(4)
    assert len({LatestOnly(), LatestOnly(), FullHistory(), KeepFor(HOUR), KeepFor(HOUR)}) == 3
    assert repr(KeepLast(3)) == "KeepLast(count=3)"
    with pytest.raises(AttributeError):
        KeepLast(3).count = 4  # type: ignore[misc]  # that it is frozen is what is tried


@pytest.mark.parametrize(
    ("kind", "value", "error", "text"),
    [
        (KeepLast, 0, ValueError, "KeepLast expects 1 checkpoint or more, got 0: the head"),
        (KeepLast, -1, ValueError, "got -1"),
        (KeepLast, True, TypeError, "KeepLast expects a number of checkpoints, got True"),
        (KeepLast, 2.5, TypeError, "got 2.5"),
        (KeepLast, "3", TypeError, "got '3'"),
        (KeepFor, 30, TypeError, r"KeepFor expects a timedelta, such as timedelta\(days=30\), got 30"),
        (KeepFor, timedelta(0), ValueError, "above zero"),
        (KeepFor, -HOUR, ValueError, "above zero"),
    ],
)
def test_invalid_policy_argument_is_rejected(kind: Any, value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        kind(value)


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(3), KeepFor(HOUR), FullHistory()])
def test_every_storage_takes_a_retention(retention: Retention, tmp_path: Any) -> None:
    storages = [
        InMemoryCheckpointStorage(retention=retention),
        SqliteCheckpointStorage(tmp_path / "a.db", retention=retention),
        FileCheckpointStorage(tmp_path / "a", retention=retention),
        StoreCheckpointStorage(MemoryStore(), retention=retention),
        open_store("memory:", retention=retention),
        open_store(tmp_path / "b.db", retention=retention),
        open_store(f"sqlite:///{tmp_path}/b.db", retention=retention),
        open_store(f"file:{tmp_path}/b", retention=retention),
    ]
    assert [storage.retention for storage in storages] == [retention] * len(storages)


def test_class_without_arguments_is_its_policy_and_none_is_the_default() -> None:
    assert as_retention(LatestOnly) == LatestOnly() and as_retention(FullHistory) == FullHistory()
    assert InMemoryCheckpointStorage().retention == FullHistory() == open_store("memory:").retention


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (KeepLast, r"got KeepLast\. Did you mean KeepLast\(10\)\?"),
        (KeepFor, r"got KeepFor\. Did you mean KeepFor\(datetime.timedelta\(days=30\)\)\?"),
        (5, r"got 5\. Did you mean KeepLast\(5\)\?"),
        (
            HOUR,
            r"got datetime.timedelta\(seconds=3600\)\. Did you mean KeepFor\(datetime.timedelta\(seconds=3600\)\)\?",
        ),
        (True, r"got True\.$"),
        ("LatestOnly", r"got 'LatestOnly'\.$"),
        (dict, r"got dict\.$"),
        ([LatestOnly()], r"got \[LatestOnly\(\)\]\.$"),
    ],
)
def test_invalid_retention_is_rejected_by_name(value: Any, text: str) -> None:
    expected = r"retention expects FullHistory\(\), LatestOnly\(\), KeepLast\(n\) or KeepFor\(timedelta\), "
    with pytest.raises(TypeError, match=expected + text):
        InMemoryCheckpointStorage(retention=value)
