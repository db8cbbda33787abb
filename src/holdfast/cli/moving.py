"""What `run`, `resume` and `answer` have in common: a thread is moved on, watched, until it rests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import click

from holdfast.cli.mistakes import INTERRUPTED, Mistake, explained
from holdfast.cli.places import Place, find_store
from holdfast.cli.progress import Progress, rest_tree, tell_rest
from holdfast.cli.tables import print_json
from holdfast.engine.request import RunOptions
from holdfast.engine.workflow import Workflow
from holdfast.errors import ThreadConflict


@dataclass(frozen=True)
class Move:
    """What a thread is given to go on with."""

    message: Any = None
    options: RunOptions | None = None


Prepare = Callable[[Any], Awaitable[Move]]
"""Makes the move out of what is in the storage. Raises Mistake if that cannot be."""


def move_on(
    workflow: Workflow, place: Place, prepare: Prepare, *, may_be_new: bool = False, as_json: bool = False
) -> None:
    """Run the thread until it rests, and tell what happens; as JSON only how it rests. Ends the process, with a
    sentence, if that fails."""
    progress = Progress(place, is_silent=as_json)
    storage = find_store(place.store, workflow, may_be_new=may_be_new)
    try:
        asyncio.run(_move(workflow, storage, place, prepare, progress))
    except KeyboardInterrupt:
        click.echo(err=True)
        if progress.has_begun:
            click.echo(f"Interrupted. What had finished is kept. Go on with: {place.resume()}", err=True)
        else:
            click.echo("Interrupted before anything was done.", err=True)
        sys.exit(INTERRUPTED)
    except (click.ClickException, BrokenPipeError):  # nobody reads on: the run was ended in good order
        raise
    except Exception as error:  # of holdfast, or of a handler: the run has put its thread back to the last checkpoint
        raise Mistake(_sentence(error, progress, place)) from error


async def _move(workflow: Workflow, storage: Any, place: Place, prepare: Prepare, progress: Progress) -> None:
    try:
        move = await prepare(storage)
        options: RunOptions = {**(move.options or {}), "thread_id": place.thread_id, "checkpoint_storage": storage}
        async with workflow.run(move.message, stream=True, **options) as stream:
            async for event in stream:
                progress.tell(event)
            result = await stream
            if progress.is_silent:
                print_json(rest_tree(result))
            else:
                tell_rest(result, place)
    finally:
        if hasattr(storage, "close"):
            await storage.close()


def _sentence(error: Exception, progress: Progress, place: Place) -> str:
    if isinstance(error, ThreadConflict):
        return (
            f"Thread {place.thread_id!r} was taken over by another run, so this one ended; what it had not committed "
            f"is not stored. See where the thread is now: {place.show()}"
        )
    if not progress.has_begun:
        return explained(error)
    at = "" if progress.failed_at is None else f"Executor {progress.failed_at!r} failed: "
    end = "" if explained(error).endswith((".", "!", "?")) else "."
    return (
        f"{at}{explained(error)}{end} The thread stands at its last checkpoint. Once the cause is mended, go on with: "
        f"{place.resume()} (the stack trace is in its log: {place.show()} --events)"
    )
