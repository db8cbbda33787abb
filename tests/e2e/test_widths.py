"""What commands print fits the terminal, however narrow, and has no colours and whole lines anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.conftest import Call, Told
from tests.e2e.terminal import Screen
from tests.e2e.threads import ask, damage

LONG = "01a1deb7b2db-95db357120a8a3b5"  # as ids of threads are made


@pytest.fixture
def commands(call: Call, told: Told, ids: list[str], folder: Path) -> list[list[str]]:
    """Each of the commands that show or change history, with something to say."""
    told("fork", ids[1], "--thread", LONG)
    told("rewind", "r-1", ids[1], "--yes")
    for thread_id, customer in (("r-2", "Sue"), ("broken", "Eve")):
        ask(call, thread_id, customer, store="file:files")
    damage(folder / "files")
    return [
        ["threads"],
        ["show", LONG],
        ["show", "r-1", "--branches"],
        ["state", ids[0]],
        ["diff", ids[2]],
        ["pin", ids[2]],
        ["unpin", ids[2]],
        ["prune", "--keep", "1", "--dry-run"],
        ["prune", "--threads", "--older-than", "0s", "--dry-run"],
        ["export", LONG, "file"],
        ["import", "file", "--thread", "there", "--store", "file:files"],
        ["transfer", "file:files", "threads.db"],
        ["verify", "file:files"],
    ]


@pytest.mark.parametrize("columns", [40, 80])
def test_nothing_is_wider_than_the_terminal(columns: int, commands: list[list[str]], screen: Screen) -> None:
    for command in commands:
        shown = screen(*command, columns=columns)
        assert shown.returncode == (1 if command[0] in ("transfer", "verify") else 0), shown.text
        assert shown.width <= columns, shown.text


def test_in_a_pipe_nothing_is_coloured_folded_or_cut(commands: list[list[str]], call: Call, screen: Screen) -> None:
    for command in commands:
        done = call(*command)
        assert "\x1b" not in done.stdout + done.stderr
        if command[0] == "verify":
            assert all(line.startswith(("THREAD", "broken", "3 threads")) for line in done.stdout.splitlines())
        if command[0] == "transfer":
            [row] = [line for line in done.stdout.splitlines() if line.startswith("broken")]
            assert "cannot be read" in row


def test_what_users_stored_cannot_change_the_terminal(call: Call, told: Told, screen: Screen) -> None:
    evil = "Bob \x1b]0;owned\x07"
    ask(call, f"t {evil}", evil)
    head = told("show", f"t {evil}")["checkpoint_id"]
    for command in (
        ["state", head],
        ["state", head, "--key", "refund"],
        ["diff", head],
        ["pin", head],
        ["show", f"t {evil}", "--branches"],
        ["prune", "--keep", "1", "--dry-run"],
        ["fork", head, "--thread", f"f {evil}"],
        ["rewind", f"f {evil}", "nothing", "--yes"],
        ["export", f"t {evil}", "file"],
    ):
        shown = screen(*command)
        assert "\x1b]" not in shown.raw
        assert "\x07" not in shown.raw
