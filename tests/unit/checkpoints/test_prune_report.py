"""Reports of pruning, as people read them."""

from __future__ import annotations

import pytest

from perdure.checkpoints.history.pruning import PrunedThread, PruneReport, SkippedThread


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KB"),
        (1536, "1.5 KB"),
        (5 * 1024**2, "5.0 MB"),
        (1024**3, "1.0 GB"),
        (3000 * 1024**4, "3000.0 TB"),
    ],
)
def test_sizes_are_shown_in_fitting_units(count: int, text: str) -> None:
    report = PruneReport((PrunedThread("t", "w", 2),), freed_bytes=count)
    assert str(report) == f"2 checkpoints of 1 thread gone, {text} freed\nt: 2 checkpoints"


def test_each_thread_has_its_line() -> None:
    threads = (PrunedThread("a", "w", 1, events_before=7), PrunedThread("b", "w", 3, is_whole=True))
    report = PruneReport(threads, (SkippedThread("c", "run 'r' owns it"),), freed_bytes=0)
    assert str(report).splitlines() == [
        "1 whole thread, with 4 checkpoints of 2 threads gone",
        "a: 1 checkpoint, events before commit 7",
        "b: the whole thread, with 3 checkpoints",
        "c: left alone, run 'r' owns it",
    ]
    assert (report.checkpoints, report.whole_threads) == (4, 1)


def test_empty_report_states_that_nothing_is_pruned() -> None:
    assert str(PruneReport()) == "nothing to prune" and str(PruneReport(is_dry_run=True)) == "nothing would go"
