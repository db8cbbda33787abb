"""The output of commands fits any terminal. In a pipe it has no colours and whole lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.conftest import Call, CallJson
from tests.e2e.terminal import Screen
from tests.e2e.threads import ask, damage

LONG = "01a1deb7b2db-95db357120a8a3b5"  # the form of generated thread ids


@pytest.fixture
def commands(call: Call, call_json: CallJson, ids: list[str], folder: Path) -> list[list[str]]:
    """The commands that show or change history, each with arguments that give output."""
    call_json("fork", ids[1], "--thread", LONG)
    call_json("rewind", "r-1", ids[1], "--yes")
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
def test_output_is_not_wider_than_the_terminal(columns: int, commands: list[list[str]], screen: Screen) -> None:
    for command in commands:
        shown = screen(*command, columns=columns)
        assert shown.returncode == (1 if command[0] in ("transfer", "verify") else 0), shown.text
        assert shown.width <= columns, shown.text


def test_output_in_a_pipe_is_not_coloured_folded_or_cut(commands: list[list[str]], call: Call, screen: Screen) -> None:
    for command in commands:
        done = call(*command)
        assert "\x1b" not in done.stdout + done.stderr
        if command[0] == "verify":
            assert all(line.startswith(("THREAD", "broken", "3 threads")) for line in done.stdout.splitlines())
        if command[0] == "transfer":
            [row] = [line for line in done.stdout.splitlines() if line.startswith("broken")]
            assert "cannot be read" in row


def test_stored_control_characters_do_not_reach_the_terminal(call: Call, call_json: CallJson, screen: Screen) -> None:
    evil = "Bob \x1b]0;owned\x07"
    ask(call, f"t {evil}", evil)
    head = call_json("show", f"t {evil}")["checkpoint_id"]
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
