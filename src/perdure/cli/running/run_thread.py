"""Run a thread until it rests, and print its events: shared by `run`, `resume` and `answer`."""

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
from perdure.cli.options.app import build_instance, get_own_storage
from perdure.cli.options.store import StoreLocation, find_store
from perdure.cli.output.errors import INTERRUPTED, Mistake, explain
from perdure.cli.output.tables import print_json
from perdure.cli.running.execution_lines import ExecutionProgress, print_result, result_tree
from perdure.cli.running.progress import Progress, print_rest, rest_tree
from perdure.engine.run.options import RunOptions
from perdure.engine.run.result import ResponseStream
from perdure.errors import ThreadConflict
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow


@dataclass(frozen=True)
class Input:
    """The input of a run."""

    message: Any = None
    options: RunOptions | None = None


Prepare = Callable[[Any, Workflow], Awaitable[Input]]
"""Prepares the input from the storage, for this workflow. Raises Mistake."""


class RunWatcher(Protocol):
    """The state of a run while its events are printed."""

    has_started: bool
    failed_at: str | None


def run_thread(
    workflow: Workflow | AgentWorkflow,
    place: StoreLocation,
    prepare: Prepare,
    *,
    may_be_new: bool = False,
    as_json: bool = False,
) -> None:
    """Run the thread until it rests, and print its events; as JSON only the result. Ends the process with a sentence
    if that fails."""
    if not isinstance(workflow, Workflow):
        run_execution(workflow, place, prepare, may_be_new=may_be_new, as_json=as_json)
        return
    if place.sessions is not None:
        raise click.UsageError(f"--sessions is for workflows of agents, and {place.app!r} is not one.")
    progress = Progress(place, is_quiet=as_json)
    storage = find_store(place.store, workflow._storage, may_be_new=may_be_new)
    run_to_rest(_run_workflow(workflow, storage, place, prepare, progress), progress, place)


def run_to_rest(moving: Coroutine[Any, Any, None], progress: RunWatcher, place: StoreLocation) -> None:
    """Ends the process, with a sentence, if it fails or is interrupted."""
    try:
        asyncio.run(moving)
    except KeyboardInterrupt:
        click.echo(err=True)
        if progress.has_started:
            click.echo(f"Interrupted. Finished work is kept. Resume with: {place.resume()}", err=True)
        else:
            click.echo("Interrupted before anything was done.", err=True)
        sys.exit(INTERRUPTED)
    except (click.ClickException, BrokenPipeError):  # the reader closed the pipe: the run has ended in good order
        raise
    except Exception as error:  # of perdure, or of a handler: the run has put its thread back to the last checkpoint
        raise Mistake(_sentence(error, progress, place)) from error


async def _run_workflow(
    workflow: Workflow, storage: Any, place: StoreLocation, prepare: Prepare, progress: Progress
) -> None:
    try:
        move = await prepare(storage, workflow)
        options: RunOptions = {**(move.options or {}), "thread_id": place.thread_id, "checkpoint_storage": storage}
        async with workflow.run(move.message, stream=True, **options) as stream:
            async for event in stream:
                progress.print_event(event)
            result = await stream
            if progress.is_quiet:
                print_json(rest_tree(result))
            else:
                print_rest(result, place)
    finally:
        if hasattr(storage, "close"):
            await storage.close()


def _sentence(error: Exception, progress: RunWatcher, place: StoreLocation) -> str:
    if isinstance(error, ThreadConflict):
        return (
            f"Thread {place.thread_id!r} was taken over by another run, so this one ended; what it had not committed "
            f"is not stored. See where the thread is now: {place.show()}"
        )
    if not progress.has_started:
        return explain(error)
    at = "" if progress.failed_at is None else f"Executor {progress.failed_at!r} failed: "
    return add_resume_hint(f"{at}{explain(error)}", place)


def add_resume_hint(failure: str, place: StoreLocation) -> str:
    end = "" if failure.endswith((".", "!", "?")) else "."
    return (
        f"{failure}{end} The thread stands at its last checkpoint. Fix the cause, then resume with: "
        f"{place.resume()} (the stack trace is in its log: {place.show()} --events)"
    )


# ---------------------------------------------------------------- executions


def run_execution(
    workflow: AgentWorkflow, place: StoreLocation, prepare: Prepare, *, may_be_new: bool = False, as_json: bool = False
) -> None:
    """Run the execution until it rests, and print its events; as JSON only the result. Ends the process with a sentence
    if it fails."""
    progress = ExecutionProgress(place, is_quiet=as_json)
    storage = find_store(place.store, get_own_storage(workflow), may_be_new=may_be_new)
    run_to_rest(_run_execution(workflow, storage, place, prepare, progress), progress, place)


async def _run_execution(
    workflow: AgentWorkflow, storage: Any, place: StoreLocation, prepare: Prepare, progress: ExecutionProgress
) -> None:
    try:
        instance = build_instance(workflow, storage, place)
        progress.before = await _find_state(instance, storage, place.thread_id)
        async with await _start(instance, storage, place, prepare) as stream:
            async for event in stream:
                progress.print_event(event)
            result = await stream
    finally:
        await storage.close()
    progress.begin()
    if progress.is_quiet:
        print_json(result_tree(result))
    else:
        print_result(result, place)
    if result.state == "failed":
        raise Mistake(add_resume_hint(f"The execution stopped: {result.error}", place))
    if result.state == "completed" and not result.success:
        raise Mistake(f"The execution ended with an error: {result.error}")


async def _find_state(instance: AgentWorkflowInstance, storage: Any, thread_id: str) -> ExecutionState | None:
    """How far it was; None for a new one, and for one of another workflow, which is refused later."""
    if not await storage.store.threads(workflow_name=instance.name, thread_id=thread_id):
        return None
    execution = await instance.find(thread_id)
    return None if execution is None else execution.state


async def _start(
    instance: AgentWorkflowInstance, storage: Any, place: StoreLocation, prepare: Prepare
) -> ResponseStream[Any, WorkflowResult]:
    move = await prepare(storage, instance.workflow)
    options: dict[str, Any] = {"on_busy": "reject", **(move.options or {})}
    responses = options.pop("responses", None)
    return instance._drive(place.thread_id, move.message, responses, options)
