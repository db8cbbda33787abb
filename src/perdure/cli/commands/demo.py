"""`perdure demo`: a process is killed in the middle of a superstep, another resumes, a person is asked, it ends.

The processes run this module too, as `python -m perdure.cli.commands.demo [REQUEST yes|no]`: three writers at once, an
editor, a person who decides, a publisher. The first process in a folder starts the thread, each later one resumes it.
Every event is a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from tempfile import TemporaryDirectory

import click

from perdure import RunContext, SqliteCheckpointStorage, workflow
from perdure.cli.errors import Mistake

STORE, VERSION, SECONDS = Path("perdure.db"), "v0.1.0", 15
IS_FIRST = not STORE.exists()
CHANGES = {
    "features": "resume any thread by its id",
    "fixes": "a join survives a restart; answers are checked before they are accepted",
    "thanks": "everyone who sent a report",
}
STEPS = (*CHANGES, "edit", "publish")
all_at_work = asyncio.Barrier(len(CHANGES))


async def perform(step: str, result: str) -> str:
    """Report to the parent, outside of every checkpoint. In the first process only one of the writers finishes."""
    report(step, "started")
    if IS_FIRST:
        await all_at_work.wait()
        await asyncio.sleep(0 if step == "features" else SECONDS)
    report(step, "finished")
    return result


@workflow
async def release_notes(version: str, ctx: RunContext) -> str:
    writers = [ctx.step(perform, title, f"{title}: {text}", name=title) for title, text in CHANGES.items()]
    draft = await ctx.step(perform, "edit", "\n".join(await asyncio.gather(*writers)), name="edit")
    is_approved = await ctx.request_info(draft, bool)
    text = f"{version} is published\n{draft}" if is_approved else f"{version} was not published: you said no"
    return str(await ctx.step(perform, "publish", text, name="publish"))


def report(who: str, what: str, **more: object) -> None:
    os.write(1, json.dumps({"who": who, "what": what, **more}).encode() + b"\n")


async def main(*answer: str) -> None:
    message, responses = VERSION if IS_FIRST else None, {answer[0]: answer[1] == "yes"} if answer else None
    async with asyncio.timeout(SECONDS), SqliteCheckpointStorage(STORE) as storage:
        stream = release_notes.build(storage).run(message, thread_id=VERSION, responses=responses, stream=True)
        async for event in stream:
            step = str(event.executor_id).rpartition("/")[2]
            if event.type == "executor_completed" and IS_FIRST:
                report(step, "recorded: its outcome is on the disk")
            elif event.type == "executor_bypassed" and step in STEPS:
                report(step, "replayed from the journal, not run again")
            elif event.type == "request_info" and not event.replayed:
                report("edit", "asks a person; the process ends", request_id=event.request_id, text=event.data)
            elif event.type == "output":
                report("publish", "the workflow has its result", text=event.data)


@click.command(short_help="Kill and resume a workflow; nothing is lost.")
def demo() -> None:
    """Kill a workflow in the middle of its work, resume it, and answer its question. It repeats nothing."""
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
    """The number of steps that never finished, and of finished steps that started again."""
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
        command = [sys.executable, "-P", "-m", "perdure.cli.commands.demo", *arguments]
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


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
