"""`perdure run`, `resume` and `answer`: run a thread until it ends or waits."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Union

import click

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.checkpoints.any_storage import load_checkpoint
from perdure.cli.apps import build_instance, load_app
from perdure.cli.errors import INTERRUPTED, Mistake, explain
from perdure.cli.options import (
    StoreLocation,
    complete_threads,
    find_store,
    find_thread,
    output_and_store_options,
    sessions_option,
    takeover_option,
    thread_argument,
)
from perdure.cli.progress import ExecutionProgress, Progress, RunProgress
from perdure.engine.run.request import RunOptions, accepts
from perdure.engine.run.stream import ResponseStream
from perdure.errors import ThreadConflict, type_name
from perdure.events import WorkflowEvent
from perdure.graph.coercion import coerce
from perdure.names import new_thread_id
from perdure.workflows.workflow import Workflow

Prepare = Callable[[Any, Workflow], Awaitable[tuple[Any, RunOptions]]]
"""Gives the message and the options of a run from the storage, for this workflow. Raises Mistake."""
Locate = Callable[[str, str], StoreLocation]
"""Gives the location of a thread from its app and its id."""


def thread_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command that runs a thread."""

    @sessions_option
    @output_and_store_options
    @functools.wraps(command)
    def run(store: str | None, sessions: str | None, **arguments: Any) -> None:
        command(**arguments, locate=partial(StoreLocation, store=store, sessions=sessions))

    return run


@click.command(short_help="Run a workflow until it ends or waits.")
@click.argument("app")
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--thread", "thread_id", metavar="ID", help="The id of the thread; generated if left out.")
@click.option("--json-input", is_flag=True, help="INPUT is JSON of the type that the workflow starts with.")
@click.option(
    "--durability",
    type=click.Choice(["sync", "async", "exit"]),
    default="sync",
    show_default=True,
    help="When to save: before the next superstep starts, while it runs, or only at the end.",
)
@thread_command
def run(
    app: str, text: str | None, thread_id: str | None, json_input: bool, durability: Any, as_json: bool, locate: Locate
) -> None:
    """Run the workflow APP with INPUT until it ends or waits, and print its events.

    APP is a module and a name in it, such as 'app:workflow', with the current folder to import from; or a document,
    such as 'workflow.yaml'; or the name of a definition in the store. INPUT is the text that the workflow starts with.

    A thread of a workflow of agents has one input: the same input resumes it, or prints its result.
    """
    if thread_id == "":
        raise click.UsageError("--thread: an id has at least one character.")
    place = locate(app, thread_id or new_thread_id())
    workflow = load_app(app, place.store, thread_id)
    message = the_message(workflow, text, is_json=json_input)

    async def prepare(_: Any, __: Any) -> tuple[Any, RunOptions]:
        return message, {"durability": durability}

    run_thread(workflow, place, prepare, may_be_new=True, as_json=as_json)


def the_message(workflow: Workflow | AgentWorkflow, text: str | None, *, is_json: bool) -> Any:
    """The input of the start executor. Raises UsageError if it does not accept it."""
    graph = workflow.graph if isinstance(workflow, Workflow) else None
    accepted = workflow.input_types if isinstance(workflow, Workflow) else [str, dict]
    kinds = " or ".join(map(type_name, accepted))
    if text is None:
        if graph is None or not accepts(graph, None):
            raise click.UsageError(
                f"INPUT is missing: the workflow starts with {kinds}. To continue a thread use `perdure resume`."
            )
        return None
    if not is_json:
        if graph is not None and not accepts(graph, text):
            raise click.UsageError(f"INPUT is text, but the workflow starts with {kinds}: pass JSON and --json-input.")
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"INPUT is not valid JSON: {error}.") from error
    try:
        return coerce(value, Union[tuple(accepted)])  # noqa: UP007  # a union of types known only now
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"INPUT does not fit the workflow, which starts with {kinds}: {error}.") from error


@click.command(short_help="Continue a thread.")
@click.argument("app")
@click.argument("thread_id", metavar="[THREAD]", required=False, shell_complete=complete_threads)
@click.option("--thread", "named", metavar="ID", shell_complete=complete_threads, help="THREAD, as `run` names it.")
@takeover_option
@thread_command
def resume(app: str, thread_id: str | None, named: str | None, takeover: bool, as_json: bool, locate: Locate) -> None:
    """Continue THREAD of the workflow APP until it ends or waits.

    Finished work does not run again. A waiting thread prints its requests again, a finished one its outputs.
    """
    if (thread_id is None) is (named is None):
        raise click.UsageError("Name one thread: `perdure resume APP THREAD`, or --thread ID.")
    place = locate(app, str(thread_id or named))

    async def prepare(storage: Any, _: Any) -> tuple[Any, RunOptions]:
        await find_thread(storage, place.thread_id)
        return None, {"takeover": takeover}

    run_thread(load_app(app, place.store, place.thread_id), place, prepare, as_json=as_json)


@click.command(short_help="Answer a request and continue its thread.")
@thread_argument
@click.argument("request_id", metavar="REQUEST")
@click.argument("value")
@click.option("--app", help="The workflow of the thread, as for `perdure run`: it continues with the answer.")
@click.option("--by", metavar="NAME", help="Who answers; stored with the answer.")
@thread_command
def answer(
    thread_id: str, request_id: str, value: str, app: str | None, by: str | None, as_json: bool, locate: Locate
) -> None:
    """Answer REQUEST of THREAD with VALUE, and continue the workflow until it ends or waits.

    VALUE is JSON, or text where the request expects text. The command checks it before it writes anything.
    """
    place = locate(app or "APP", thread_id)
    if app is None:
        raise click.UsageError(
            "The workflow checks the answer and continues with it: name it with --app. Nothing was "
            f"written. The command: {place.answer(request_id, value)}"
        )

    async def prepare(storage: Any, graph: Workflow) -> tuple[Any, RunOptions]:
        request = await find_request(storage, graph, thread_id, request_id)
        named = request_id if request is None else str(request.request_id)
        return None, {"responses": {named: parse_answer(request, value)}, "answered_by": by}

    run_thread(load_app(app, place.store, place.thread_id), place, prepare, as_json=as_json)


async def find_request(storage: Any, workflow: Workflow, thread_id: str, request_id: str) -> WorkflowEvent | None:
    """The request in the thread's head; None if it is not pending there: the run then reports why."""
    info = await find_thread(storage, thread_id)
    if info.checkpoint_id is None:
        return None
    compiled = workflow._compiled
    head = await load_checkpoint(storage, info.checkpoint_id, compiled.declared, compiled.migrator())
    pending = head.pending_request_info_events
    # Workflows of agents put the thread's id before it, so that it is one among those of all threads.
    return pending.get(request_id) or pending.get(request_id.removeprefix(f"{thread_id}:"))


def parse_answer(request: WorkflowEvent | None, value: str) -> Any:
    """The value, converted to the type that the request expects. Raises Mistake if it does not fit."""
    if request is None or request.response_type is str:
        return value
    expected = request.response_type
    try:
        parsed, is_json = json.loads(value), True
    except ValueError:
        parsed, is_json = value, False  # such as the name of a choice, or a date
    try:
        return coerce(parsed, expected)
    except (ValueError, TypeError) as error:
        hint = "" if is_json else ' VALUE is JSON, such as true, 5 or \'{"key": "text"}\'.'
        raise Mistake(
            f"The answer to request {request.request_id!r} was not accepted: expected {type_name(expected)}, got "
            f"{value!r} ({error}). The request is still pending.{hint}"
        ) from error


def run_thread(
    workflow: Workflow | AgentWorkflow,
    place: StoreLocation,
    prepare: Prepare,
    *,
    may_be_new: bool = False,
    as_json: bool = False,
) -> None:
    """Run the thread until it ends or waits, and print its events; as JSON only the result. Ends the process, with a
    sentence, if the run fails or is interrupted."""
    if isinstance(workflow, Workflow):
        if place.sessions is not None:
            raise click.UsageError(f"--sessions is for workflows of agents, and {place.app!r} is not one.")
        storage = find_store(place.store, workflow._storage, may_be_new=may_be_new)
        progress: Progress[Any] = RunProgress(place, is_quiet=as_json)
    else:
        storage = find_store(place.store, workflow._draft.store, may_be_new=may_be_new)
        progress = ExecutionProgress(place, is_quiet=as_json)
    try:
        asyncio.run(_run(workflow, storage, prepare, progress))
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


async def _run(workflow: Workflow | AgentWorkflow, storage: Any, prepare: Prepare, progress: Progress[Any]) -> None:
    try:
        async with await _start(workflow, storage, prepare, progress) as stream:
            async for event in stream:
                progress.print_event(event)
            result = await stream.get_final_response()
    finally:
        await storage.close()
    progress.print_result(result)


async def _start(
    workflow: Workflow | AgentWorkflow, storage: Any, prepare: Prepare, progress: Progress[Any]
) -> ResponseStream[Any, Any]:
    thread_id = progress.place.thread_id
    if isinstance(workflow, Workflow):
        message, more = await prepare(storage, workflow)
        run_options: RunOptions = {**more, "thread_id": thread_id, "checkpoint_storage": storage}
        return workflow.new_run(message, **run_options).stream()  # with the events around a function
    instance = build_instance(workflow, storage, progress.place)
    # Not for a new one, nor for one of another workflow, which is refused later.
    if await storage.store.threads(workflow_name=instance.name, thread_id=thread_id):
        execution = await instance.find(thread_id)
        if isinstance(progress, ExecutionProgress) and execution is not None:
            progress.before = execution.state
    message, more = await prepare(storage, instance.workflow)
    options: dict[str, Any] = {"on_busy": "reject", **more}
    return instance._drive(thread_id, message, options.pop("responses", None), options)


def _sentence(error: Exception, progress: Progress[Any], place: StoreLocation) -> str:
    if isinstance(error, ThreadConflict):
        return (
            f"Another run took thread {place.thread_id!r} over, so this run ended. Its uncommitted work is not stored. "
            f"Show the thread: {place.show()}"
        )
    if not progress.has_started:
        return explain(error)
    at = "" if progress.failed_at is None else f"Executor {progress.failed_at!r} failed: "
    return place.add_resume_hint(f"{at}{explain(error)}")
