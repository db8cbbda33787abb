"""An execution of a workflow of agents as lines on the screen, or as JSON: what happens, and how it rests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from perdure.agent_workflow import events
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.execution.node import ApprovalDecision
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.state import ExecutionState
from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.cli.apps import build_instance, get_own_storage
from perdure.cli.options import StoreLocation, find_store
from perdure.cli.output.errors import INTERRUPTED, Mistake, explain
from perdure.cli.output.tables import format_time, iso_time, print_folded, print_json
from perdure.cli.output.values import make_printable, to_lines
from perdure.cli.progress import AgentText, Progress, print_rest, rest_tree
from perdure.engine.run.request import RunOptions
from perdure.engine.run.result import ResponseStream
from perdure.errors import ThreadConflict
from perdure.events import WorkflowEvent
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow


ANSWER = ApprovalDecision.sample_answer

# ---------------------------------------------------------------- while it runs


class ExecutionProgress:
    """Prints the events of one execution, each in a line."""

    def __init__(self, place: StoreLocation, *, is_quiet: bool = False) -> None:
        self._place = place
        self.is_quiet = is_quiet
        """Whether it only listens: what is printed is for machines."""
        self.has_started = False
        self.failed_at: str | None = None
        """The node that failed, once one has."""
        self.before: ExecutionState | None = None
        """How far the execution was."""
        self._text = AgentText()
        self._started: set[str] = set()
        """Nodes that began to run in this call."""

    def begin(self) -> None:
        if self.has_started:
            return
        self.has_started = True
        if self.is_quiet:
            return
        click.secho(f"thread: {make_printable(self._place.thread_id)}", bold=True)
        if self.before is None:
            return
        if self.before.result is not None:
            click.secho("it had ended before: nothing is run", fg="cyan")
            return
        for node, state in self.before.nodes.items():
            if state.status == "done" and node != "START":
                click.secho(f"  {make_printable(node)}: had finished before", fg="cyan")

    def print_event(self, event: Any) -> None:
        if isinstance(event, events.WorkflowDiagnosticEvent) and event.level not in ("info", "warning"):
            return  # it ends the run and is printed then
        self.begin()
        if isinstance(event, events.WorkflowAgentCompletedEvent) and not event.success:
            self.failed_at = self.failed_at or _node_path(event)
        if isinstance(event, events.WorkflowAgentStartedEvent):
            self._started.add(_node_path(event))
        if isinstance(event, events.WorkflowApprovalRequestedEvent) and _node_path(event) not in self._started:
            return  # asked before: pending requests are printed at the end
        if self.is_quiet:
            return
        if isinstance(event, WorkflowEvent):
            if isinstance(event.data, AgentResponseUpdate):
                self._text.print_update(str(event.executor_id), event.data)
            return
        print_event = _PRINTERS.get(type(event))
        if print_event is not None:
            self._text.end()
            print_event(event)


def _print_completed(event: events.WorkflowAgentCompletedEvent) -> None:
    if event.success:
        _print_line(event, "done", fg="green")
    else:
        _print_line(event, f"failed: {event.error_message}", fg="red")


def _print_resolved(event: events.WorkflowApprovalResolvedEvent) -> None:
    word = "approved" if event.approved else "denied"
    late = ", because no answer came in time" if event.timed_out else ""
    why = f": {event.reason}" if event.reason else ""
    _print_line(event, f"{word}{late}{why}", fg="magenta")


def _print_edge(event: events.WorkflowEdgeTraversedEvent) -> None:
    if event.condition_description:
        text = f"{event.from_node_id} -> {event.to_node_id}, as {event.condition_description}"
        click.secho(f"  {make_printable(text)}", dim=True)


def _print_diagnostic(event: events.WorkflowDiagnosticEvent) -> None:
    style: dict[str, Any] = {"fg": "yellow"} if event.level == "warning" else {"dim": True}
    at = "" if event.node_id is None else f" of {event.node_id}"
    click.secho(make_printable(f"{event.level}{at}: {event.message}"), **style)


_PRINTERS: dict[type, Callable[[Any], None]] = {
    events.WorkflowAgentStartedEvent: lambda event: _print_line(event, "runs", dim=True),
    events.WorkflowAgentCompletedEvent: _print_completed,
    events.WorkflowAgentSkippedEvent: lambda event: _print_line(event, f"skipped: {event.reason}", fg="yellow"),
    events.WorkflowEdgeTraversedEvent: _print_edge,
    events.WorkflowApprovalRequestedEvent: lambda event: _print_line(event, "asks for approval", fg="magenta"),
    events.WorkflowApprovalResolvedEvent: _print_resolved,
    events.WorkflowDiagnosticEvent: _print_diagnostic,
}


def _print_line(event: Any, text: str, **style: Any) -> None:
    click.secho(f"  {make_printable(_node_path(event))}: {make_printable(text)}", **style)


def _node_path(event: Any) -> str:
    """The node, with those that are the workflows that it is in."""
    return "/".join(event.metadata.agent_chain) or str(event.agent_id)


# ---------------------------------------------------------------- when it rests


def result_tree(result: WorkflowResult) -> dict[str, Any]:
    return {
        "thread_id": result.execution_id,
        "checkpoint_id": result.checkpoint_id,
        "state": result.state,
        "success": result.success,
        "final_answer": result.final_answer,
        "outputs": result.outputs,
        "error": result.error,
        "duration": result.duration,
        "usage": result.usage,
        "requests": [_request_tree(state) for state in result.pending],
    }


def _request_tree(request: events.WorkflowApprovalRequestedEvent) -> dict[str, Any]:
    return {
        "request_id": _own_id(request),
        "node": _node_path(request),
        "deadline": iso_time(request.deadline),
        "message": request.message,
        "description": request.description,
        "outputs": request.outputs,
    }


def print_result(result: WorkflowResult, place: StoreLocation) -> None:
    """What it came to, or who is asked what and how to answer."""
    if result.final_answer is not None:
        first, *more = to_lines(result.final_answer)
        click.secho(f"answer: {first}", fg="green")
        for line in more:
            click.secho(f"  {line}" if line else "", fg="green")
    if result.pending:
        count = "an approval" if len(result.pending) == 1 else f"{len(result.pending)} approvals"
        click.secho(f"waiting for {count}", bold=True)
        for request in result.pending:
            _print_request(request, place)
    elif result.state == "completed" and result.success:
        click.secho("done: nothing is pending", bold=True)
    elif result.state in ("waiting", "cancelled"):
        click.secho(result.state, bold=True)


def _own_id(request: events.WorkflowApprovalRequestedEvent) -> str:
    """In its thread, as all commands show it."""
    return request.request_id.removeprefix(f"{request.execution_id}:")


def _print_request(request: events.WorkflowApprovalRequestedEvent, place: StoreLocation) -> None:
    until = "" if request.deadline is None else f", until {format_time(request.deadline)}"
    print_folded(f"  {make_printable(f'request {_own_id(request)} of {_node_path(request)}{until}')}", 4, fg="magenta")
    texts = [request.message, *([request.description] if request.description else [])]
    for text in (*texts, *(f"{key}: {value}" for key, value in request.outputs.items())):
        for line in to_lines(text):
            print_folded(f"  | {line}", 4)
    click.echo(f"  answer it: {place.answer(_own_id(request), ANSWER)}")


# ---------------------------------------------------------------- run thread


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
