"""What `run`, `resume` and `answer` have in common: a thread is moved on, watched, until it rests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.state import ExecutionState
from perdure.cli.options.app import built, own_storage
from perdure.cli.options.store import StoreLocation, find_store
from perdure.cli.output.errors import INTERRUPTED, Mistake, explained
from perdure.cli.output.tables import print_json
from perdure.cli.running.execution_lines import ExecutionProgress, result_tree, tell_result
from perdure.cli.running.progress import Progress, rest_tree, tell_rest
from perdure.engine.run.options import RunOptions
from perdure.engine.run.result import ResponseStream
from perdure.errors import ThreadConflict
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow


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
    place: StoreLocation,
    prepare: Prepare,
    *,
    may_be_new: bool = False,
    as_json: bool = False,
) -> None:
    """Run the thread until it rests, and tell what happens; as JSON only how it rests. Ends the process, with a
    sentence, if that fails."""
    if not isinstance(workflow, Workflow):
        move_execution(workflow, place, prepare, may_be_new=may_be_new, as_json=as_json)
        return
    if place.sessions is not None:
        raise click.UsageError(f"--sessions is for workflows of agents, and {place.app!r} is none.")
    progress = Progress(place, is_silent=as_json)
    storage = find_store(place.store, workflow._storage, may_be_new=may_be_new)
    until_it_rests(_move(workflow, storage, place, prepare, progress), progress, place)


def until_it_rests(moving: Coroutine[Any, Any, None], progress: Watching, place: StoreLocation) -> None:
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


async def _move(workflow: Workflow, storage: Any, place: StoreLocation, prepare: Prepare, progress: Progress) -> None:
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


def _sentence(error: Exception, progress: Watching, place: StoreLocation) -> str:
    if isinstance(error, ThreadConflict):
        return (
            f"Thread {place.thread_id!r} was taken over by another run, so this one ended; what it had not committed "
            f"is not stored. See where the thread is now: {place.show()}"
        )
    if not progress.has_begun:
        return explained(error)
    at = "" if progress.failed_at is None else f"Executor {progress.failed_at!r} failed: "
    return how_to_go_on(f"{at}{explained(error)}", place)


def how_to_go_on(failure: str, place: StoreLocation) -> str:
    end = "" if failure.endswith((".", "!", "?")) else "."
    return (
        f"{failure}{end} The thread stands at its last checkpoint. Once the cause is mended, go on with: "
        f"{place.resume()} (the stack trace is in its log: {place.show()} --events)"
    )


# ---------------------------------------------------------------- executions


def move_execution(
    workflow: AgentWorkflow, place: StoreLocation, prepare: Prepare, *, may_be_new: bool = False, as_json: bool = False
) -> None:
    """Run the thread until it rests, and tell what happens; as JSON only how it rests. Ends the process, with a
    sentence, if it fails, or if one of its agents did."""
    progress = ExecutionProgress(place, is_silent=as_json)
    storage = find_store(place.store, own_storage(workflow), may_be_new=may_be_new)
    until_it_rests(_run_execution(workflow, storage, place, prepare, progress), progress, place)


async def _run_execution(
    workflow: AgentWorkflow, storage: Any, place: StoreLocation, prepare: Prepare, progress: ExecutionProgress
) -> None:
    try:
        instance = built(workflow, storage, place)
        progress.before = await _standing(instance, storage, place.thread_id)
        async with await _begun(instance, storage, place, prepare) as stream:
            async for event in stream:
                progress.tell(event)
            result = await stream
    finally:
        await storage.close()
    progress.begin()
    if progress.is_silent:
        print_json(result_tree(result))
    else:
        tell_result(result, place)
    if result.state == "failed":
        raise Mistake(how_to_go_on(f"The execution stopped: {result.error}", place))
    if result.state == "completed" and not result.success:
        raise Mistake(f"The execution has ended, and not well: {result.error}")


async def _standing(instance: AgentWorkflowInstance, storage: Any, thread_id: str) -> ExecutionState | None:
    """How far it was; None for a new one, and for one of another workflow, which is refused later."""
    if not await storage.store.threads(workflow_name=instance.name, thread_id=thread_id):
        return None
    known = await instance.find(thread_id)
    return None if known is None else known.state


async def _begun(
    instance: AgentWorkflowInstance, storage: Any, place: StoreLocation, prepare: Prepare
) -> ResponseStream[Any, WorkflowResult]:
    move = await prepare(storage, instance.workflow)
    options: dict[str, Any] = {"on_busy": "reject", **(move.options or {})}
    responses = options.pop("responses", None)
    return instance.drive(place.thread_id, move.message, responses, options)
