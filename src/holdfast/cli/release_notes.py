"""The workflow of `holdfast demo`: three writers at once, an editor who joins and asks a person, a publisher."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Never

import click

from holdfast import (
    CheckpointStorage,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

NAME = "release-notes"
CHANGES = {
    "features": ["resume any thread by its id"],
    "fixes": ["a join survives a restart", "answers are checked before they are accepted"],
    "thanks": ["everyone who sent a report"],
}
STEPS = ["collect", *CHANGES, "edit", "decide"]
"""What has to happen, each once; `publish` joins if the person says yes."""


@dataclass
class Section:
    title: str
    lines: list[str]


@dataclass
class Draft:
    version: str
    text: str


class PowerCut(Exception):
    """What the demo lets happen to one writer, once."""


@dataclass
class Tally:
    """What really happened, counted outside of every checkpoint: a resume cannot hide anything from it."""

    finished: Counter[str] = field(default_factory=Counter)
    power_cuts_to_come: int = 1

    def lost(self, steps: Sequence[str]) -> int:
        return (Counter(steps) - self.finished).total()

    def repeated(self, steps: Sequence[str]) -> int:
        return (self.finished - Counter(steps)).total()


class Collect(Executor):
    def __init__(self, tally: Tally) -> None:
        super().__init__(id="collect")
        self._tally = tally

    @handler
    async def collect(self, version: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("version", version)
        self._tally.finished[self.id] += 1
        await ctx.send_message(version)


class Writer(Executor):
    def __init__(self, title: str, tally: Tally) -> None:
        super().__init__(id=title)
        self._tally = tally

    @handler
    async def write(self, version: str, ctx: WorkflowContext[Section]) -> None:
        if self.id == "fixes" and self._tally.power_cuts_to_come:
            await asyncio.sleep(0.2)  # long enough for the other two to finish
            self._tally.power_cuts_to_come -= 1
            raise PowerCut("the lights went out while 'fixes' was writing")
        self._tally.finished[self.id] += 1
        click.echo(f"   {self.id} wrote its part")
        await ctx.send_message(Section(self.id, CHANGES[self.id]))


class Editor(Executor):
    def __init__(self, tally: Tally) -> None:
        super().__init__(id="edit")
        self._tally = tally

    @handler
    async def edit(self, sections: list[Section], ctx: WorkflowContext) -> None:
        parts = [f"{section.title}: {'; '.join(section.lines)}" for section in sections]
        self._tally.finished[self.id] += 1
        await ctx.request_info(Draft(ctx.get_state("version"), "\n".join(parts)), bool)

    @response_handler
    async def decide(self, draft: Draft, approved: bool, ctx: WorkflowContext[Draft, str]) -> None:
        self._tally.finished["decide"] += 1
        if approved:
            await ctx.send_message(draft)
        else:
            await ctx.yield_output(f"{draft.version} was not published: you said no")


class Publisher(Executor):
    def __init__(self, tally: Tally) -> None:
        super().__init__(id="publish")
        self._tally = tally

    @handler
    async def publish(self, draft: Draft, ctx: WorkflowContext[Never, str]) -> None:
        self._tally.finished[self.id] += 1
        await ctx.yield_output(f"{draft.version} is published")


def build(tally: Tally, storage: CheckpointStorage) -> Workflow:
    """A new workflow object each time, as a new process would have it. Only the storage is shared."""
    collect, editor, publisher = Collect(tally), Editor(tally), Publisher(tally)
    writers = [Writer(title, tally) for title in CHANGES]
    return (
        WorkflowBuilder(name=NAME, start_executor=collect, checkpoint_storage=storage)
        .add_fan_out_edges(collect, writers)
        .add_fan_in_edges(writers, editor)
        .add_edge(editor, publisher)
        .build()
    )
