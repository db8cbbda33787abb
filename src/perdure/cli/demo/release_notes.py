"""The workflow of `perdure demo`: three writers at once, an editor who joins and asks a person, a publisher."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from perdure import CheckpointStorage, Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from perdure.platform import fsync_file

NAME = "release-notes"
THREAD = "release-0.1.0"
VERSION = "v0.1.0"
CHANGES = {
    "features": ["resume any thread by its id"],
    "fixes": ["a join survives a restart", "answers are checked before they are accepted"],
    "thanks": ["everyone who sent a report"],
}
QUICK = "features"
"""The writer that finishes before the lights go out."""


@dataclass
class Section:
    title: str
    lines: list[str]


@dataclass
class ReleaseDraft:
    version: str
    text: str


class Desk:
    """Where the agents work. Each keeps a log of its own on disk, outside of every checkpoint: a resume cannot hide
    anything from it."""

    def __init__(
        self, folder: Path, report: Callable[[str, str], None], kill_barrier: asyncio.Barrier | None = None
    ) -> None:
        self._folder = folder
        self._report = report
        self._kill_barrier = kill_barrier

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        self._note(name, "started")
        yield
        self._note(name, "finished")

    def _note(self, name: str, what: str) -> None:
        """The line is on the disk when this returns."""
        line = f"{time.time():.6f} {os.getpid()} {what}\n"
        with (self._folder / f"{name}.log").open("a", encoding="utf-8") as log:
            log.write(line)
            log.flush()
            fsync_file(log.fileno())
        self._report(name, what)

    async def write(self, title: str) -> list[str]:
        """What a writer takes its time for. In the process that is to be killed only the quick one comes to an end,
        and not before all of them are at work."""
        if self._kill_barrier is not None:
            await self._kill_barrier.wait()
            if title != QUICK:
                await asyncio.Event().wait()
        return CHANGES[title]


class Collect(Executor):
    def __init__(self, desk: Desk) -> None:
        super().__init__(id="collect")
        self._desk = desk

    @handler
    async def collect(self, version: str, ctx: WorkflowContext[str]) -> None:
        with self._desk.work("collect"):
            ctx.set_state("version", version)
            await ctx.send_message(version)


class Writer(Executor):
    def __init__(self, title: str, desk: Desk) -> None:
        super().__init__(id=title)
        self._desk = desk

    @handler
    async def write(self, version: str, ctx: WorkflowContext[Section]) -> None:
        with self._desk.work(self.id):
            await ctx.send_message(Section(self.id, await self._desk.write(self.id)))


class Editor(Executor):
    def __init__(self, desk: Desk) -> None:
        super().__init__(id="edit")
        self._desk = desk

    @handler
    async def edit(self, sections: list[Section], ctx: WorkflowContext) -> None:
        with self._desk.work("edit"):
            await ctx.request_info(ReleaseDraft(ctx.get_state("version"), join_sections(sections)), bool)

    @response_handler
    async def decide(self, draft: ReleaseDraft, approved: bool, ctx: WorkflowContext[ReleaseDraft, str]) -> None:
        with self._desk.work("decide"):
            if approved:
                await ctx.send_message(draft)
            else:
                await ctx.yield_output(result_text(draft, approved=False))


class ReleasePublisher(Executor):
    def __init__(self, desk: Desk) -> None:
        super().__init__(id="publish")
        self._desk = desk

    @handler
    async def publish(self, draft: ReleaseDraft, ctx: WorkflowContext[Never, str]) -> None:
        with self._desk.work("publish"):
            await ctx.yield_output(result_text(draft, approved=True))


def build(desk: Desk, storage: CheckpointStorage) -> Workflow:
    collect, editor, publisher = Collect(desk), Editor(desk), ReleasePublisher(desk)
    writers = [Writer(title, desk) for title in CHANGES]
    return (
        WorkflowBuilder(name=NAME, start_executor=collect, checkpoint_storage=storage)
        .add_fan_out_edges(collect, writers)
        .add_fan_in_edges(writers, editor)
        .add_edge(editor, publisher)
        .build()
    )


def join_sections(sections: list[Section]) -> str:
    return "\n".join(f"{section.title}: {'; '.join(section.lines)}" for section in sections)


def result_text(draft: ReleaseDraft, *, approved: bool) -> str:
    if approved:
        return f"{draft.version} is published\n{draft.text}"
    return f"{draft.version} was not published: you said no"


# ---------------------------------------------------------------- what the logs say


def expected_work(*, approved: bool) -> list[str]:
    """What has to happen, each once."""
    return ["collect", *CHANGES, "edit", "decide", *(["publish"] if approved else [])]


def expected_outcome(*, approved: bool) -> str:
    """What an undisturbed run gives."""
    return result_text(
        ReleaseDraft(VERSION, join_sections([Section(*change) for change in CHANGES.items()])), approved=approved
    )


def read_log(folder: Path, name: str) -> list[tuple[int, str]]:
    """Process and word of each line; nothing for work that was never begun."""
    log = folder / f"{name}.log"
    if not log.exists():
        return []
    lines = (line.split() for line in log.read_text(encoding="utf-8").splitlines())
    return [(int(pid), what) for _, pid, what in lines]


@dataclass(frozen=True)
class DemoTally:
    """Taken from the logs alone."""

    lost: int
    """Work that has to be done and never was."""
    repeated: int
    """Times that work was begun again although it had finished."""

    @classmethod
    def of(cls, folder: Path, *, approved: bool) -> DemoTally:
        logs = {name: [what for _, what in read_log(folder, name)] for name in expected_work(approved=True)}
        lost = sum("finished" not in logs[name] for name in expected_work(approved=approved))
        return cls(lost, sum(_begun_again(words) for words in logs.values()))


def _begun_again(words: list[str]) -> int:
    first_end = words.index("finished") if "finished" in words else len(words)
    return words[first_end:].count("started")
