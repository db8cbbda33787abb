"""`perdure demo`: a process is killed in the middle of a superstep, another resumes, a person is asked, it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import print_table

SECONDS = 15
"""How long one process may take before the demo ends it."""
ERRORS = "errors.txt"
COLOURS = ("yellow", "cyan", "green")
"""Of the processes, in their order."""


@click.command(short_help="See a workflow killed, resumed, and nothing lost.")
def demo() -> None:
    """See a workflow killed in the middle of its work, resumed, answered by you, and nothing repeated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the folder goes then, too
    with TemporaryDirectory(prefix="perdure-demo-", ignore_cleanup_errors=True) as folder:
        story = Demo(Path(folder), at_a_terminal=sys.stdin.isatty())
        try:
            code = story.run()
        finally:
            story.end_process()
    sys.exit(code)


@contextmanager
def signals_held() -> Iterator[None]:
    """Ctrl-C in the block is obeyed at its end: a process that is just being started would be left behind."""
    came: list[int] = []
    before = {
        caught: signal.signal(caught, lambda number, _: came.append(number))
        for caught in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
        for number in came:
            signal.raise_signal(number)


class Demo:
    """Three processes, one thread, and what its writers wrote into their logs."""

    def __init__(self, folder: Path, *, at_a_terminal: bool) -> None:
        self._folder = folder
        self._at_a_terminal = at_a_terminal
        self._began = time.time()
        self._pids: list[int] = []
        self._process: subprocess.Popen[str] | None = None
        self._replayed: dict[str, int] = {}
        """Executors whose outcome a process took from the journal."""

    def run(self) -> int:
        """The exit code: 0 if nothing was lost, nothing that had finished was done again, and the result is right."""
        self._run_until_killed()
        question = self._run_until_request()
        approved = self._decide(question)
        outcome = self._run_until_end(question["request_id"], approved)
        return self._report(outcome, approved)

    # ------------------------------------------------------------ the acts

    def _run_until_killed(self) -> None:
        _title("1. A process starts the workflow: three writers at once. It is killed when one of them has finished.")
        process = self._start("begin")
        if not any(report["what"] == "recorded" for report in self._reports(process)):
            raise self._failure(process)
        at = time.time()
        self.end_process()
        self._line(at, process.pid, "", "SIGKILL, in the middle of the superstep", bold=True)

    def _run_until_request(self) -> dict[str, Any]:
        _title("2. Another process resumes the thread by its id: only what had not finished is run.")
        return self._run_process("resume", until="asks")

    def _decide(self, question: dict[str, Any]) -> bool:
        _title("3. A person decides, now or next week. No process runs meanwhile.")
        for line in question["text"].splitlines():
            click.echo(f"   | {line}")
        if self._at_a_terminal:
            return click.confirm("   Publish?", default=True)
        click.echo("   Publish? yes (no terminal is attached)")
        return True

    def _run_until_end(self, request_id: str, approved: bool) -> str:
        _title("4. One more process takes the answer to the thread.")
        text: str = self._run_process("answer", request_id, "yes" if approved else "no", until="output")["text"]
        for line in text.splitlines():
            click.echo(f"   | {line}")
        return text

    # ------------------------------------------------------------ processes

    def _run_process(self, *arguments: str, until: str) -> dict[str, Any]:
        result: dict[str, Any] | None = None
        process = self._start(*arguments)
        for report in self._reports(process):
            result = report if report["what"] == until else result
        if process.wait() != 0 or result is None:
            raise self._failure(process)
        self.end_process()
        return result

    def _failure(self, process: subprocess.Popen[str]) -> Mistake:
        errors = (self._folder / ERRORS).read_text(encoding="utf-8", errors="replace").strip()
        last_line = errors.splitlines()[-1] if errors else "nothing"
        return Mistake(f"A process of the demo ended with {process.wait()} and said: {last_line}")

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        """It has a session of its own, so Ctrl-C reaches only the demo."""
        command = [sys.executable, "-P", "-m", "perdure.cli.demo.process", str(self._folder), *arguments]
        with (self._folder / ERRORS).open("ab") as errors, signals_held():
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        self._pids.append(process.pid)
        return process

    def end_process(self) -> None:
        """There is none of this story afterwards."""
        with signals_held():
            if self._process is not None:
                self._process.kill()
                self._process.communicate()
                self._process = None

    def _reports(self, process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
        """The reports of a process, until it ends or its time is over."""
        limit = threading.Timer(SECONDS, process.kill)
        limit.daemon = True
        limit.start()
        try:
            for line in process.stdout or ():
                if not line.endswith("\n"):
                    return  # it was killed while it wrote
                report: dict[str, Any] = json.loads(line)
                self._print_report(report)
                yield report
        finally:
            limit.cancel()

    # ------------------------------------------------------------ the screen

    def _print_report(self, report: dict[str, Any]) -> None:
        who, pid = report["who"], report["pid"]
        words = {
            "recorded": "recorded: its outcome is on the disk",
            "replayed": "replayed from the journal, not run again",
            "asks": "asks a person; the process ends",
            "output": "the workflow has its result",
        }
        text = words.get(report["what"], report["what"])
        if report["what"] == "replayed":
            self._replayed[who] = pid
        if report["what"] == "started" and self._is_restarted(who, pid):
            text = "started again: it had not finished"
        self._line(report["at"], pid, who, text)

    def _is_restarted(self, who: str, pid: int) -> bool:
        from perdure.cli.demo.release_notes import read_log

        return any(other != pid for other, _ in read_log(self._folder, who))

    def _line(self, at: float, pid: int, who: str, text: str, *, bold: bool = False) -> None:
        colour = COLOURS[self._pids.index(pid) % len(COLOURS)]
        when = f"{max(0.0, at - self._began):6.2f} s"
        click.echo(
            f"   {when}  {click.style(f'process {pid}', fg=colour)}  {who:9} {click.style(text, bold=bold or None)}"
        )

    def _report(self, outcome: str, approved: bool) -> int:
        from perdure.cli.demo.release_notes import DemoTally, expected_outcome, expected_work, read_log

        _title("What the logs say that the executors themselves wrote and synced to disk")
        logs = {name: read_log(self._folder, name) for name in expected_work(approved=approved)}
        headers = ("executor", *(f"process {pid}" for pid in self._pids))
        print_table(
            headers, [(name, *(self._cell(name, log, pid) for pid in self._pids)) for name, log in logs.items()]
        )
        again = [name for name, log in logs.items() if [what for _, what in log].count("started") > 1]
        click.echo(f"replayed, not run again: {', '.join(self._replayed) or 'nothing'}")
        click.echo(f"ran again, because it had not finished: {', '.join(again) or 'nothing'}")
        is_right = outcome == expected_outcome(approved=approved)
        click.echo(f"the result is {'' if is_right else 'NOT '}that of an undisturbed run")
        tally = DemoTally.of(self._folder, approved=approved)
        _title(f"lost: {tally.lost}   finished work repeated: {tally.repeated}")
        return 0 if is_right and tally.lost == tally.repeated == 0 else 1

    def _cell(self, name: str, log: list[tuple[int, str]], pid: int) -> str:
        words = [what for number, what in log if number == pid]
        if words:
            return "finished" if "finished" in words else "killed at work"
        return "replayed" if self._replayed.get(name) == pid else ""


def _title(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)
