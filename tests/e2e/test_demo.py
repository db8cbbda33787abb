"""`perdure demo`: a kill within a superstep, a resume, the answer of a person, and the tally."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from tests.e2e.command import COMMAND, environment, in_terminal, needs_pseudo_terminals, perdure, read_or_end

from perdure.cli.commands.demo import STEPS, count_lost_and_repeated

TALLY = "lost: 0   finished work repeated: 0"
LINE = re.compile(r"^ +\d+\.\d\d s  process (?P<pid>\d+)  (?P<who>\w*) +(?P<what>.+)$", re.MULTILINE)


def test_demo_kills_within_a_superstep_and_loses_and_repeats_no_work(tmp_path: Path) -> None:
    done = perdure("demo", TMPDIR=str(tmp_path), HOME="/nowhere/at/all")
    assert (done.returncode, done.stderr) == (0, "")
    assert "v0.1.0 is published" in done.stdout
    assert done.stdout.splitlines()[-1] == TALLY
    assert list(tmp_path.iterdir()) == []

    first, second, third = lines_by_process(done.stdout)
    assert first == [
        "features started",
        "fixes started",
        "thanks started",
        "features finished",
        "features recorded: its outcome is on the disk",
        "SIGKILL, in the middle of the superstep",
    ]
    assert "features replayed from the journal, not run again" in second
    assert "fixes started again: it had not finished" in second
    assert "thanks started again: it had not finished" in second
    assert "features started" not in second
    assert third[-2:] == ["publish finished", "publish the workflow has its result"]


def lines_by_process(printed: str) -> list[list[str]]:
    """The texts of each process, in the order of the processes."""
    lines = [match.groupdict() for match in LINE.finditer(printed)]
    texts = ((line["pid"], f"{line['who']} {line['what']}".strip()) for line in lines)
    return [[text for _, text in group] for _, group in groupby(texts, key=itemgetter(0))]


@needs_pseudo_terminals
def test_demo_asks_the_person_at_the_terminal(tmp_path: Path) -> None:
    shown, code = in_terminal("demo", folder=tmp_path, typed="n\n")
    assert "Publish? [Y/n]" in shown
    assert "v0.1.0 was not published: you said no" in shown
    assert shown.splitlines()[-1] == TALLY
    assert code == 0


@needs_pseudo_terminals
@pytest.mark.parametrize(
    ("until", "by"), [("started", signal.SIGINT), ("Publish?", signal.SIGINT), ("1.", signal.SIGTERM)]
)
def test_interrupted_demo_leaves_no_folder_and_no_process(until: str, by: signal.Signals, tmp_path: Path) -> None:
    """The signal comes while a process of the demo works, while it waits for the person, or at its start."""
    screen, terminal = os.openpty()
    with subprocess.Popen(
        [COMMAND, "demo"], env=environment(TMPDIR=str(tmp_path)), stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while until.encode() not in shown:
            shown += os.read(screen, 65_536)
        while process.poll() is None:
            process.send_signal(by)
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                continue  # a signal between the question and the wait for a key has no effect: send it again
        while part := read_or_end(screen):
            shown += part
    os.close(screen)
    assert process.returncode not in (0, -by)
    assert "Traceback" not in shown.decode()
    assert list(tmp_path.iterdir()) == []
    for match in LINE.finditer(shown.decode().replace("\r\n", "\n")):
        with pytest.raises(ProcessLookupError):
            os.kill(int(match["pid"]), 0)


@pytest.mark.parametrize(
    ("words", "lost", "repeated"),
    [
        ("started finished", 0, 0),
        ("started started finished", 0, 0),
        ("started finished replayed", 0, 0),
        ("started finished started", 0, 1),
        ("started finished started finished started finished", 0, 2),
        ("started", 1, 0),
        ("", 1, 0),
    ],
)
def test_tally_counts_unfinished_steps_and_finished_steps_that_start_again(
    words: str, lost: int, repeated: int
) -> None:
    work = {step: ["started", "finished"] for step in STEPS}
    assert count_lost_and_repeated({**work, "fixes": words.split()}) == (lost, repeated)
