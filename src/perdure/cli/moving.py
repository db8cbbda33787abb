"""What `run`, `resume` and `answer` have in common: a thread is moved on, watched, until it rests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from perdure.cli.mistakes import INTERRUPTED, Mistake, explained
from perdure.cli.places import Place, find_store
from perdure.cli.progress import Progress, rest_tree, tell_rest
from perdure.cli.tables import print_json
from perdure.engine.request import RunOptions
from perdure.engine.workflow import Workflow
from perdure.errors import ThreadConflict

if TYPE_CHECKING:
    from perdure.orchestrations.agent_workflow.builder import AgentWorkflow


@dataclass(frozen=True)
class Move:
    """What a thread is given to go on with."""

    message: Any = None
    options: RunOptions | None = None


Prepare = Callable[[Any, Workflow], Awaitable[Move]]
"""Makes the move out of what is in the storage, for this workflow. Raises Mistake if that cannot be."""


class Watching(Protocol):
    """What is known of a run while it is told."""

    has_begun: bool
    failed_at: str | None


def move_on(
    workflow: Workflow | AgentWorkflow,
    place: Place,
    prepare: Prepare,
    *,
    may_be_new: bool = False,
    as_json: bool = False,
) -> None:
    """Run the thread until it rests, and tell what happens; as JSON only how it rests. Ends the process, with a
    sentence, if that fails."""
    if not isinstance(workflow, Workflow):
        from perdure.cli.executions import move_execution

        move_execution(workflow, place, prepare, may_be_new=may_be_new, as_json=as_json)
        return
    if place.sessions is not None:
        raise click.UsageError(f"--sessions is for workflows of agents, and {place.app!r} is none.")
    progress = Progress(place, is_silent=as_json)
    storage = find_store(place.store, workflow._storage, may_be_new=may_be_new)
    until_it_rests(_move(workflow, storage, place, prepare, progress), progress, place)


def until_it_rests(moving: Coroutine[Any, Any, None], progress: Watching, place: Place) -> None:
    """Ends the process, with a sentence, if it fails or is interrupted."""
    try:
        asyncio.run(moving)
    except KeyboardInterrupt:
        click.echo(err=True)
        if progress.has_begun:
            click.echo(f"Interrupted. What had finished is kept. Go on with: {place.resume()}", err=True)
        else:
            click.echo("Interrupted before anything was done.", err=True)
        sys.exit(INTERRUPTED)
    except (click.ClickException, BrokenPipeError):  # nobody reads on: the run was ended in good order
        raise
    except Exception as error:  # of perdure, or of a handler: the run has put its thread back to the last checkpoint
        raise Mistake(_sentence(error, progress, place)) from error


async def _move(workflow: Workflow, storage: Any, place: Place, prepare: Prepare, progress: Progress) -> None:
    try:
        move = await prepare(storage, workflow)
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


def _sentence(error: Exception, progress: Watching, place: Place) -> str:
    if isinstance(error, ThreadConflict):
        return (
            f"Thread {place.thread_id!r} was taken over by another run, so this one ended; what it had not committed "
            f"is not stored. See where the thread is now: {place.show()}"
        )
    if not progress.has_begun:
        return explained(error)
    at = "" if progress.failed_at is None else f"Executor {progress.failed_at!r} failed: "
    return how_to_go_on(f"{at}{explained(error)}", place)


def how_to_go_on(failure: str, place: Place) -> str:
    end = "" if failure.endswith((".", "!", "?")) else "."
    return (
        f"{failure}{end} The thread stands at its last checkpoint. Once the cause is mended, go on with: "
        f"{place.resume()} (the stack trace is in its log: {place.show()} --events)"
    )
