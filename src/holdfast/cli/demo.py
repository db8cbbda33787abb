"""`holdfast demo`: a workflow fails half way, resumes, asks a person, and repeats nothing that was finished."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast.checkpoints.storage import CheckpointStorage
    from holdfast.cli.release_notes import Tally
    from holdfast.events import WorkflowEvent

THREAD = "release-0.1.0"


@click.command()
def demo() -> None:
    """Run a small workflow that fails half way, resumes, asks you, and ends."""
    sys.exit(asyncio.run(tell_the_story(at_a_terminal=sys.stdin.isatty())))


async def tell_the_story(*, at_a_terminal: bool) -> int:
    """Four acts; the exit code is 0 if nothing was lost and nothing that was finished was done again."""
    from holdfast import InMemoryCheckpointStorage
    from holdfast.cli.release_notes import Tally

    tally, storage = Tally(), InMemoryCheckpointStorage()
    await run_until_the_lights_go_out(tally, storage)
    question = await resume_until_it_asks(tally, storage)
    approved = decide(question, at_a_terminal=at_a_terminal)
    await answer(tally, storage, question, approved)
    return report(tally, approved)


async def run_until_the_lights_go_out(tally: Tally, storage: CheckpointStorage) -> None:
    from holdfast.cli.release_notes import PowerCut, build

    title("1. Three writers start at once; the lights go out on one of them")
    try:
        await build(tally, storage).run("v0.1.0", thread_id=THREAD)
    except PowerCut as problem:
        say(f"PowerCut: {problem}")


async def resume_until_it_asks(tally: Tally, storage: CheckpointStorage) -> WorkflowEvent:
    from holdfast.cli.release_notes import build

    title("2. A new workflow object resumes the thread: only what had not finished is done")
    questions = []
    async for event in build(tally, storage).run(thread_id=THREAD, stream=True):
        if event.type == "request_info":
            questions.append(event)
    say("the editor joined the parts and waits for a person")
    return questions[0]


def decide(question: WorkflowEvent, *, at_a_terminal: bool) -> bool:
    title("3. A person decides, now or next week")
    for line in question.data.text.splitlines():
        say(f"| {line}")
    if at_a_terminal:
        return click.confirm("   Publish?", default=True)
    say("Publish? yes (nobody is at the terminal)")
    return True


async def answer(tally: Tally, storage: CheckpointStorage, question: WorkflowEvent, approved: bool) -> None:
    from holdfast.cli.release_notes import NAME, build

    title("4. One more new workflow object takes the answer to the checkpoint that holds the question")
    checkpoint = await storage.get_latest(workflow_name=NAME)
    assert checkpoint is not None and question.request_id is not None  # noqa: S101, PT018 (it was asked, so it is saved)
    result = await build(tally, storage).run(
        responses={question.request_id: approved}, checkpoint_id=checkpoint.checkpoint_id
    )
    for output in result.get_outputs():
        say(output)


def report(tally: Tally, approved: bool) -> int:
    from holdfast.cli.release_notes import STEPS

    steps = [*STEPS, "publish"] if approved else STEPS
    lost, repeated = tally.lost(steps), tally.repeated(steps)
    say(", ".join(f"{name} {times}x" for name, times in tally.finished.items()))
    title(f"lost: {lost}   finished work repeated: {repeated}")
    return 0 if lost == repeated == 0 else 1


def title(text: str) -> None:
    click.secho(text, bold=True)


def say(text: str) -> None:
    click.echo(f"   {text}")
