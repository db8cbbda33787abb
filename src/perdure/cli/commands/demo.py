"""`perdure demo`: a process is killed in the middle of a superstep, another resumes, a person is asked, it ends."""

from __future__ import annotations

import json
import signal
import sys
import time
from subprocess import PIPE, STDOUT, Popen
from tempfile import TemporaryDirectory

import click

from perdure.cli.output.errors import Mistake
from perdure.cli.release_notes import STEPS


@click.command(short_help="See a workflow killed, resumed, and nothing lost.")
def demo() -> None:
    """See a workflow killed in the middle of its work, resumed, answered by you, and nothing repeated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the folder goes then, too
    with TemporaryDirectory(prefix="perdure-demo-", ignore_cleanup_errors=True) as folder:
        story = Demo(folder)
        _title("1. A process starts the workflow: three writers at once. It is killed when one of them has finished.")
        story.run_process(kill_at="recorded")
        _title("2. Another process resumes the thread by its id: only what had not finished is run.")
        question = story.run_process()
        _title("3. A person decides, now or next week. No process runs meanwhile.", question["text"])
        if not sys.stdin.isatty():
            click.echo("   Publish? yes (no terminal is attached)")
        is_approved = not sys.stdin.isatty() or click.confirm("   Publish?", default=True)
        _title("4. One more process takes the answer to the thread.")
        result = story.run_process(question["request_id"], "yes" if is_approved else "no")
    lost, repeated = count_lost_and_repeated(story.work)
    _title("The result:", result["text"])
    _title(f"lost: {lost}   finished work repeated: {repeated}")
    sys.exit(1 if lost or repeated else 0)


def count_lost_and_repeated(work: dict[str, list[str]]) -> tuple[int, int]:
    """How many steps never finished, and how often a step that had finished started again."""
    lost = sum("finished" not in words for words in work.values())
    return lost, sum(" ".join(words).partition("finished")[2].count("started") for words in work.values())


class Demo:
    """Processes of the workflow, one after the other, and the reports of its steps."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self.work: dict[str, list[str]] = {step: [] for step in STEPS}

    def run_process(self, *arguments: str, kill_at: str = "never") -> dict[str, str]:
        """The last report of a process. It has a session of its own, so that Ctrl-C reaches only the demo."""
        command = [sys.executable, "-P", "-m", "perdure.cli.release_notes", *arguments]
        report, line = {"what": ""}, "nothing"
        with Popen(command, cwd=self._folder, text=True, start_new_session=True, stdout=PIPE, stderr=STDOUT) as process:
            try:
                for line in process.stdout or ():
                    if line.startswith("{"):  # otherwise it is a line of a stack trace
                        report = json.loads(line)
                        self._print(process.pid, report["who"], report["what"])
                    if report["what"].startswith(kill_at):
                        process.kill()
                        self._print(process.pid, "", "SIGKILL, in the middle of the superstep")
                process.wait()
            finally:
                process.kill()
        if process.returncode and not report["what"].startswith(kill_at):
            raise Mistake(f"A process of the demo ended with {process.returncode}; its last line: {line.strip()}")
        return report

    def _print(self, pid: int, who: str, what: str) -> None:
        words = self.work.get(who, [])
        text = "started again: it had not finished" if words and what == "started" else what
        words.append(what)
        click.echo(f"   {time.monotonic() - self._began:6.2f} s  process {pid}  {who:9} {text}")


def _title(title: str, text: str = "") -> None:
    click.secho(f"\n{title}", bold=True)
    click.echo("".join(f"   | {line}\n" for line in text.splitlines()), nl=False)
