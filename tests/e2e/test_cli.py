"""The command `holdfast`, as somebody at a terminal or in a script meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

COMMAND = Path(sys.executable).with_name("holdfast")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=20
    )


def demo_at_a_terminal(answer: str) -> tuple[str, int]:
    """The demo with a terminal for input, into which the answer was typed beforehand."""
    terminal, keyboard = os.openpty()
    try:
        with subprocess.Popen([COMMAND, "demo"], stdin=keyboard, stdout=subprocess.PIPE, text=True) as process:
            os.write(terminal, f"{answer}\n".encode())
            printed, _ = process.communicate(timeout=20)
            return printed, process.returncode
    finally:
        os.close(terminal)
        os.close(keyboard)


def test_the_demo_loses_nothing_and_repeats_nothing_when_nobody_is_there() -> None:
    done = run("demo")
    assert "v0.1.0 is published" in done.stdout
    assert "lost: 0   finished work repeated: 0" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize(
    ("answer", "outcome"), [("y", "v0.1.0 is published"), ("n", "v0.1.0 was not published: you said no")]
)
def test_the_demo_asks_the_person_at_the_terminal(answer: str, outcome: str) -> None:
    printed, code = demo_at_a_terminal(answer)
    assert "Publish?" in printed
    assert outcome in printed
    assert "lost: 0   finished work repeated: 0" in printed
    assert code == 0


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"holdfast, version {holdfast.__version__}\n"


@pytest.mark.parametrize("arguments", [("nonsense",), ("demo", "--nonsense"), ("demo", "more")])
def test_a_mistake_on_the_command_line_is_one_sentence_and_no_stack_trace(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr
