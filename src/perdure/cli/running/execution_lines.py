"""An execution of a workflow of agents as lines on the screen, or as JSON: what happens, and how it rests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from perdure.agent_workflow import events as told
from perdure.agent_workflow.execution.approvals import ApprovalDecision
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.state import ExecutionState
from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.cli.options.store import StoreLocation
from perdure.cli.output.tables import exact, moment, print_folded
from perdure.cli.output.values import in_lines, printable
from perdure.cli.running.progress import Speech
from perdure.events import WorkflowEvent

ANSWER = ApprovalDecision.sample_answer

# ---------------------------------------------------------------- while it runs


class ExecutionProgress:
    """Tells the events of one execution, each in a line."""

    def __init__(self, place: StoreLocation, *, is_silent: bool = False) -> None:
        self._place = place
        self.is_silent = is_silent
        """Whether it only listens: what is printed is for machines."""
        self.has_begun = False
        self.failed_at: str | None = None
        """The node that failed, once one has."""
        self.before: ExecutionState | None = None
        """How far the execution was."""
        self._speech = Speech()
        self._started: set[str] = set()
        """Nodes that began to run in this call."""

    def begin(self) -> None:
        if self.has_begun:
            return
        self.has_begun = True
        if self.is_silent:
            return
        click.secho(f"thread: {printable(self._place.thread_id)}", bold=True)
        if self.before is None:
            return
        if self.before.result is not None:
            click.secho("it had ended before: nothing is run", fg="cyan")
            return
        for node, one in self.before.nodes.items():
            if one.status == "done" and node != "START":
                click.secho(f"  {printable(node)}: had finished before", fg="cyan")

    def tell(self, event: Any) -> None:
        if isinstance(event, told.WorkflowDiagnosticEvent) and event.level not in ("info", "warning"):
            return  # it ends the run, and is told then
        self.begin()
        if isinstance(event, told.WorkflowAgentCompletedEvent) and not event.success:
            self.failed_at = self.failed_at or _name(event)
        if isinstance(event, told.WorkflowAgentStartedEvent):
            self._started.add(_name(event))
        if isinstance(event, told.WorkflowApprovalRequestedEvent) and _name(event) not in self._started:
            return  # asked before; all that is pending is told at the end
        if self.is_silent:
            return
        if isinstance(event, WorkflowEvent):
            if isinstance(event.data, AgentResponseUpdate):
                self._speech.say(str(event.executor_id), event.data)
            return
        tell = _TELL.get(type(event))
        if tell is not None:
            self._speech.end()
            tell(event)


def _completed(event: told.WorkflowAgentCompletedEvent) -> None:
    if event.success:
        _line(event, "done", fg="green")
    else:
        _line(event, f"failed: {event.error_message}", fg="red")


def _resolved(event: told.WorkflowApprovalResolvedEvent) -> None:
    word = "approved" if event.approved else "denied"
    late = ", as nobody answered in time" if event.timed_out else ""
    why = f": {event.reason}" if event.reason else ""
    _line(event, f"{word}{late}{why}", fg="magenta")


def _edge(event: told.WorkflowEdgeTraversedEvent) -> None:
    if event.condition_description:
        said = f"{event.from_node_id} -> {event.to_node_id}, as {event.condition_description}"
        click.secho(f"  {printable(said)}", dim=True)


def _diagnostic(event: told.WorkflowDiagnosticEvent) -> None:
    style: dict[str, Any] = {"fg": "yellow"} if event.level == "warning" else {"dim": True}
    at = "" if event.node_id is None else f" of {event.node_id}"
    click.secho(printable(f"{event.level}{at}: {event.message}"), **style)


_TELL: dict[type, Callable[[Any], None]] = {
    told.WorkflowAgentStartedEvent: lambda event: _line(event, "runs", dim=True),
    told.WorkflowAgentCompletedEvent: _completed,
    told.WorkflowAgentSkippedEvent: lambda event: _line(event, f"skipped: {event.reason}", fg="yellow"),
    told.WorkflowEdgeTraversedEvent: _edge,
    told.WorkflowApprovalRequestedEvent: lambda event: _line(event, "asks for approval", fg="magenta"),
    told.WorkflowApprovalResolvedEvent: _resolved,
    told.WorkflowDiagnosticEvent: _diagnostic,
}


def _line(event: Any, text: str, **style: Any) -> None:
    click.secho(f"  {printable(_name(event))}: {printable(text)}", **style)


def _name(event: Any) -> str:
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
        "requests": [_request_tree(one) for one in result.pending],
    }


def _request_tree(request: told.WorkflowApprovalRequestedEvent) -> dict[str, Any]:
    return {
        "request_id": _own_id(request),
        "node": _name(request),
        "deadline": exact(request.deadline),
        "message": request.message,
        "description": request.description,
        "outputs": request.outputs,
    }


def tell_result(result: WorkflowResult, place: StoreLocation) -> None:
    """What it came to, or who is asked what and how to answer."""
    if result.final_answer is not None:
        first, *more = in_lines(result.final_answer)
        click.secho(f"answer: {first}", fg="green")
        for line in more:
            click.secho(f"  {line}" if line else "", fg="green")
    if result.pending:
        count = "an approval" if len(result.pending) == 1 else f"{len(result.pending)} approvals"
        click.secho(f"waiting for {count}", bold=True)
        for request in result.pending:
            _tell_request(request, place)
    elif result.state == "completed" and result.success:
        click.secho("done: nothing is pending", bold=True)
    elif result.state in ("waiting", "cancelled"):
        click.secho(result.state, bold=True)


def _own_id(request: told.WorkflowApprovalRequestedEvent) -> str:
    """In its thread, as all commands show it."""
    return request.request_id.removeprefix(f"{request.execution_id}:")


def _tell_request(request: told.WorkflowApprovalRequestedEvent, place: StoreLocation) -> None:
    until = "" if request.deadline is None else f", until {moment(request.deadline)}"
    print_folded(f"  {printable(f'request {_own_id(request)} of {_name(request)}{until}')}", 4, fg="magenta")
    said = [request.message, *([request.description] if request.description else [])]
    for text in (*said, *(f"{key}: {value}" for key, value in request.outputs.items())):
        for line in in_lines(text):
            print_folded(f"  | {line}", 4)
    click.echo(f"  answer it: {place.answer(_own_id(request), ANSWER)}")
