"""`perdure pin`, `unpin` and `prune`: what they keep and remove, and that a removal needs a confirmation."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from tests.e2e.command import STORE, running
from tests.e2e.conftest import Call, CallJson
from tests.e2e.terminal import Screen
from tests.e2e.test_cli import refusal
from tests.e2e.test_run_and_answer import WORK
from tests.e2e.threads import checkpoints_of

from perdure.cli.commands.upkeep import prune
from perdure.cli.tables import parse_duration


def pinned_ids(call_json: CallJson) -> list[str]:
    return [entry["checkpoint_id"] for entry in call_json("show", "r-1")["checkpoints"] if entry["is_pinned"]]


def test_pin_and_unpin_of_a_checkpoint_can_be_repeated(call: Call, call_json: CallJson, ids: list[str]) -> None:
    for _ in range(2):
        done = call("pin", ids[1])
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{ids[1]} (commit 2 of r-1) is pinned: pruning keeps it.\n"
    assert pinned_ids(call_json) == [ids[1]]
    assert "pinned      yes" in call("state", ids[1]).stdout
    assert any(line.startswith(ids[1]) and line.endswith("pinned") for line in call("show", "r-1").stdout.splitlines())
    for _ in range(2):
        assert call_json("unpin", ids[1])["is_pinned"] is False
    assert pinned_ids(call_json) == []


def test_pin_of_a_thread_pins_its_newest_checkpoint(call_json: CallJson, ids: list[str]) -> None:
    assert call_json("pin", "r-1")["checkpoint_id"] == ids[3]
    assert pinned_ids(call_json) == [ids[3]]


def test_prune_with_yes_lists_and_removes_checkpoints(call: Call, call_json: CallJson, ids: list[str]) -> None:
    call_json("pin", ids[1])
    done = call("prune", "--keep", "1", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    headers, first, second, total = done.stdout.splitlines()
    assert headers.split() == ["THREAD", "WORKFLOW", "GOES"]
    assert first.split()[:4] == ["r-1", "refunds", "2", "checkpoints"]
    assert second.split()[:4] == ["r-2", "refunds", "1", "checkpoint"]
    assert total.startswith("Removed 3 checkpoints of 2 threads")
    assert checkpoints_of(call_json, "r-1") == [ids[1], ids[3]]
    assert call("prune", "--keep", "1", "--yes").stdout == "Nothing to remove.\n"


def test_dry_run_removes_nothing_and_needs_no_yes(call: Call, call_json: CallJson, ids: list[str]) -> None:
    done = call("prune", "--keep", "1", "--dry-run")
    assert done.returncode == 0
    assert done.stdout.endswith("Would remove 4 checkpoints of 2 threads. Nothing was removed.\n")
    report = call_json("prune", "--keep", "1", "--dry-run")
    assert (report["is_dry_run"], report["checkpoints"], report["freed_bytes"]) == (True, 4, None)
    assert [(thread["thread_id"], thread["checkpoints"]) for thread in report["threads"]] == [("r-1", 3), ("r-2", 1)]
    assert checkpoints_of(call_json, "r-1") == ids


def test_prune_with_json_reports_what_it_removed(call_json: CallJson, ids: list[str]) -> None:
    report = call_json("prune", "--keep", "2", "--yes")
    assert (report["is_dry_run"], report["checkpoints"], report["whole_threads"]) == (False, 2, 0)
    assert (report["skipped"], isinstance(report["freed_bytes"], int)) == ([], True)
    assert checkpoints_of(call_json, "r-1") == ids[2:]


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        (["--thread", "r-2"], ["r-2"]),
        (["--workflow", "refunds"], ["r-1", "r-2"]),
        (["--workflow", "works"], []),
        (["--status", "waiting"], ["r-2"]),
        (["--status", "waiting", "--status", "idle"], ["r-1", "r-2"]),
        (["--status", "interrupted"], []),
        (["--older-than", "30d"], []),
        (["--older-than", "0s"], ["r-1", "r-2"]),
    ],
)
def test_prune_options_select_the_threads(
    options: list[str], threads: list[str], call_json: CallJson, ids: list[str]
) -> None:
    report = call_json("prune", "--keep", "1", "--dry-run", *options)
    assert [thread["thread_id"] for thread in report["threads"]] == threads


def test_prune_threads_removes_idle_threads_and_waiting_ones_by_status(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    shown = call("prune", "--threads", "--older-than", "0s", "--yes").stdout
    assert "r-1     refunds   the whole thread, with 4 checkpoints\n" in shown
    assert "LEFT ALONE  WHY\nr-2         requests are pending: 1\n" in shown
    assert "Removed 1 whole thread, with 4 checkpoints of 1 thread" in shown
    assert [thread["thread_id"] for thread in call_json("threads")] == ["r-2"]
    call_json("prune", "--threads", "--older-than", "0s", "--status", "waiting", "--yes")
    assert call_json("threads") == []


def test_prune_at_a_terminal_asks_and_removes_nothing_after_no(
    screen: Screen, call_json: CallJson, ids: list[str]
) -> None:
    refused = screen("prune", "--keep", "1", answer="n")
    assert refused.returncode == 1
    assert (
        "Remove 4 checkpoints of 2 threads for good? [y/N]: n\nError: Not confirmed. Nothing was done." in refused.text
    )
    assert checkpoints_of(call_json, "r-1") == ids
    done = screen("prune", "--keep", "1")
    assert (done.returncode, checkpoints_of(call_json, "r-1")) == (0, ids[3:])
    assert done.text.splitlines()[-1].startswith("Removed 4 checkpoints of 2 threads")


def test_prune_without_terminal_and_yes_removes_nothing(call: Call, call_json: CallJson, ids: list[str]) -> None:
    for options in (["--keep", "1"], ["--threads", "--older-than", "0s"], ["--keep", "1", "--json"]):
        done = call("prune", *options)
        assert done.returncode == 2
        assert done.stderr.endswith("add --yes. Nothing was done.\n")
    assert checkpoints_of(call_json, "r-1") == ids
    assert len(checkpoints_of(call_json, "r-2")) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            [],
            "Name what to remove: --keep N (the last N of each thread stay), --older-than AGE (such as 30d), or both.",
        ),
        (["--thread", "r-1"], "Name what to remove"),
        (["--threads"], "--threads removes threads by the time of their last commit: add --older-than AGE"),
        (["--threads", "--older-than", "1d", "--keep", "3"], "and leave out --keep. Nothing was removed."),
        (["--keep", "0"], "--keep"),
        (["--keep", "1", "--status", "asleep"], "'asleep' is not one of 'idle', 'waiting', 'failed'"),
        *(
            (["--older-than", wrong], f"{wrong!r} is not a duration: a whole number and a unit, such as 30d, 12h, 45m")
            for wrong in ("30", "d", "1.5h", "-1d", "5 days", "3w", "", "٣d")
        ),
        (["--older-than", "9" * 20 + "d"], "is longer than a duration can be."),
        (["--older-than", "9" * 5000 + "d"], "is longer than a duration can be."),
    ],
)
def test_wrong_usage_of_prune_exits_2_and_names_the_right_usage(
    options: list[str], sentence: str, call: Call, call_json: CallJson, ids: list[str]
) -> None:
    assert sentence in refusal(call("prune", "--yes", *options), 2)
    assert checkpoints_of(call_json, "r-1") == ids


def test_age_is_a_number_and_a_unit() -> None:
    context, option = click.Context(prune), prune.params[1]
    ages = {"30d": timedelta(30), "12h": timedelta(hours=12), "45m": timedelta(minutes=45), " 90s ": timedelta(0, 90)}
    assert {text: parse_duration(context, option, text) for text in ages} == ages


def test_prune_error_names_an_unknown_thread(call: Call, ids: list[str]) -> None:
    error = refusal(call("prune", "--keep", "1", "--thread", "r-3", "--yes"), 1)
    assert error.startswith("No thread 'r-3' exists in this store (did you mean 'r-2'?).")


def test_running_thread_is_pruned_behind_its_head_and_not_removed(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    (folder / "hold").touch()
    with running(*WORK, folder=folder, until="work: runs"):
        first, *_, head = checkpoints_of(call_json, "t")
        whole: Any = call_json("prune", "--threads", "--older-than", "0s", "--yes")
        assert (whole["threads"], whole["skipped"][0]["thread_id"]) == ([], "t")
        assert whole["skipped"][0]["reason"].startswith("run 'run-")
        call_json("prune", "--keep", "1", "--yes")
        assert checkpoints_of(call_json, "t") == [head] != [first]
    (folder / "hold").unlink()
    assert "output of work: worked on A TEXT" in call("resume", "office:build", "t", store=STORE).stdout
