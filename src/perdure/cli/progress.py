"""A run, or an execution, as lines on the screen or JSON: its events, its end, how to continue."""

from __future__ import annotations

import enum
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import click

from perdure.agent_workflow import events
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.execution.node import ApprovalDecision
from perdure.agent_workflow.state import ExecutionState
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.cli.contents import output_tree, print_request, question_tree
from perdure.cli.errors import Mistake
from perdure.cli.options import StoreLocation
from perdure.cli.tables import format_time, iso_time, print_folded, print_json
from perdure.cli.values import make_printable, to_lines
from perdure.engine.run.run import WorkflowRunResult
from perdure.events import WorkflowEvent, WorkflowEventSource, WorkflowRunState
from perdure.graph.annotations import flatten_union
from perdure.graph.coercion import record_fields

UNKNOWN = "JSON"
_PLAIN: dict[Any, Any] = {bool: True, int: 1, float: 1.5, str: "text", dict: {}, list: [], type(None): None}


def sample_answer(response_type: Any) -> str:
    """A VALUE for `perdure answer` that such a request would accept, or the word JSON where none is known."""
    if response_type is str:
        return "your answer"
    sample = getattr(response_type, "sample_answer", None)
    if isinstance(sample, str):
        return sample
    try:
        return json.dumps(_sample(response_type))
    except (LookupError, TypeError, ValueError, NameError):  # a type whose JSON only its author knows
        return UNKNOWN


def _sample(annotation: Any) -> Any:
    [first, *_] = flatten_union(annotation)
    if first in _PLAIN:
        return _PLAIN[first]
    origin, arguments = get_origin(first), get_args(first)
    if origin is Literal:
        return arguments[0]
    if origin in (list, set, frozenset, tuple):
        return [_sample(item) for item in arguments if item is not ...]
    if origin is dict:
        return {}
    if isinstance(first, enum.EnumMeta):
        member: Any = next(iter(first))
        return member.value
    if hasattr(first, "model_fields"):
        return {name: _sample(item.annotation) for name, item in first.model_fields.items() if item.is_required()}
    fields = record_fields(first)
    if fields is None:
        raise LookupError(first)
    return {field.key: _sample(field.annotation) for field in fields if field.is_required}


Result = TypeVar("Result")


@dataclass
class Progress(ABC, Generic[Result]):
    """The state of a run while its events are printed."""

    place: StoreLocation
    is_quiet: bool = False
    """Whether it prints no events: the output is for machines."""
    has_started: bool = False
    failed_at: str | None = None
    """The executor or node that failed, once one has."""
    speaker: str | None = None
    """The agent whose words are in the unfinished line."""

    @abstractmethod
    def print_event(self, event: Any) -> None: ...

    @abstractmethod
    def print_result(self, result: Result) -> None:
        """Prints the state of the thread when its run has ended. Raises Mistake if it failed."""

    def begin(self) -> None:
        """Prints the thread, and its work of earlier runs. Later calls do nothing."""
        if not self.has_started and not self.is_quiet:
            click.secho(f"thread: {make_printable(self.place.thread_id)}", bold=True)
            self.print_earlier_work()
        self.has_started = True

    def print_earlier_work(self) -> None:
        """Does nothing for a run whose events report it."""

    def _print_update(self, event: WorkflowEvent) -> bool:
        """Prints the words of an agent, a line for each agent. Returns whether the event holds words."""
        if not isinstance(event.data, AgentResponseUpdate):
            return False
        speaker, text = str(event.executor_id), make_printable(event.data.text)
        if text and self.speaker != speaker:
            self._end_words()
            click.secho(f"  {make_printable(speaker)}: ", dim=True, nl=False)
            self.speaker = speaker
        click.secho(text, dim=True, nl=False)
        return True

    def _end_words(self) -> None:
        if self.speaker is not None:
            self.speaker = None
            click.echo()


class RunProgress(Progress[WorkflowRunResult]):
    """Prints the events of one run, each in a line or a few."""

    def print_event(self, event: WorkflowEvent) -> None:
        self.begin()
        if event.type == "executor_failed":
            self.failed_at = self.failed_at or event.executor_id
        if self.is_quiet or self._print_update(event):
            return
        self._end_words()
        if event.origin is WorkflowEventSource.EXECUTOR:
            _print_event("progress" if event.type == "data" else event.type, event, dim=True)
        elif event.type in _PRINTERS:
            _PRINTERS[event.type](event)

    def print_result(self, result: WorkflowRunResult) -> None:
        if not self.is_quiet:
            _print_rest(result, self.place)
            return
        print_json(
            {
                "thread_id": result.thread_id,
                "run_id": result.run_id,
                "checkpoint_id": result.checkpoint_id,
                "status": result.get_final_state().value,
                "outputs": [output_tree(item) for item in result._outputs if item.type == "output"],
                "requests": [question_tree(item) for item in result.get_request_info_events()],
            }
        )


def _print_retrying(event: WorkflowEvent) -> None:
    after = f" in {event.data['delay_seconds']:g} s" if isinstance(event.data, dict) else ""
    _print_line(event, f"failed, retries{after}: {_error_text(event)}", fg="yellow")


def _print_request_info(event: WorkflowEvent) -> None:
    if not event.replayed:  # `print_result` prints all that are pending
        _print_line(event, f"asks (request {event.request_id})", fg="magenta")


_PRINTERS: dict[str, Callable[[WorkflowEvent], None]] = {
    "superstep_started": lambda event: click.secho(f"superstep {event.iteration}", bold=True),
    "superstep_discarded": lambda event: click.echo(
        f"superstep {event.iteration} did not end; its finished work is recorded"
    ),
    "executor_invoked": lambda event: _print_line(event, "runs", dim=True),
    "executor_completed": lambda event: _print_line(event, "done", fg="green"),
    "executor_bypassed": lambda event: _print_line(event, "finished before: not run again", fg="cyan"),
    "executor_failed": lambda event: _print_line(event, f"failed: {_error_text(event)}", fg="red"),
    "executor_retrying": _print_retrying,
    "executor_skipped": lambda event: _print_line(event, f"failed, {event.data}: {_error_text(event)}", fg="yellow"),
    "output": lambda event: _print_event("output", event, fg="green"),
    "intermediate": lambda event: _print_event("intermediate", event),
    "data": lambda event: _print_event("data", event, dim=True),
    "request_info": _print_request_info,
    "warning": lambda event: click.secho(f"warning: {make_printable(str(event.data))}", fg="yellow"),
    "error": lambda event: _print_event("error", event, fg="red"),
}


def _print_rest(result: WorkflowRunResult, place: StoreLocation) -> None:
    """The state of the thread when its run has ended: pending requests, and how to answer them."""
    pending = result.get_request_info_events()
    if not pending:
        state = result.get_final_state()
        word = "done" if state is WorkflowRunState.IDLE else state.value.lower()
        click.secho(f"{word}: nothing is pending" if word == "done" else word, bold=True)
        return
    count = "an answer" if len(pending) == 1 else f"{len(pending)} answers"
    click.secho(f"waiting for {count}", bold=True)
    for request in pending:
        print_request(request)
        click.echo(f"  answer it: {place.answer(str(request.request_id), sample_answer(request.response_type))}")


def _print_line(event: WorkflowEvent, text: str, **style: Any) -> None:
    again = " (replayed)" if event.replayed else ""
    click.secho(f"  {make_printable(str(event.executor_id))}: {make_printable(text)}{again}", **style)


def _print_event(what: str, event: WorkflowEvent, **style: Any) -> None:
    again = ", replayed" if event.replayed else ""
    _print_lines(f"{what} of {make_printable(str(event.executor_id))}{again}", event.data, **style)


def _print_lines(title: str, value: Any, **style: Any) -> None:
    first, *more = to_lines(value)
    click.secho(f"{title}: {first}", **style)
    for line in more:
        click.secho(f"  {line}" if line else "", **style)


def _error_text(event: WorkflowEvent) -> str:
    details = event.details
    return "" if details is None else f"{details.error_type}: {details.message}"


@dataclass
class ExecutionProgress(Progress[WorkflowResult]):
    """Prints the events of one execution of a workflow of agents, each in a line."""

    before: ExecutionState | None = None
    """How far the execution was."""
    started: set[str] = field(default_factory=set)
    """Nodes that began to run in this call."""

    def print_earlier_work(self) -> None:
        if self.before is None:
            return
        if self.before.result is not None:
            click.secho("the execution ended before: nothing to run", fg="cyan")
            return
        for node, state in self.before.nodes.items():
            if state.status == "done" and node != "START":
                click.secho(f"  {make_printable(node)}: finished before", fg="cyan")

    def print_event(self, event: Any) -> None:
        if isinstance(event, events.WorkflowDiagnosticEvent) and event.level not in ("info", "warning"):
            return  # it ends the run and is printed then
        self.begin()
        if isinstance(event, events.WorkflowAgentCompletedEvent) and not event.success:
            self.failed_at = self.failed_at or _node_path(event)
        if isinstance(event, events.WorkflowAgentStartedEvent):
            self.started.add(_node_path(event))
        if isinstance(event, events.WorkflowApprovalRequestedEvent) and _node_path(event) not in self.started:
            return  # asked before: pending requests are printed at the end
        if self.is_quiet:
            return
        if isinstance(event, WorkflowEvent):
            self._print_update(event)
        elif type(event) in _EXECUTION_PRINTERS:
            self._end_words()
            _EXECUTION_PRINTERS[type(event)](event)

    def print_result(self, result: WorkflowResult) -> None:
        self.begin()
        if self.is_quiet:
            tree = {name: getattr(result, name) for name in RESULT_FIELDS}
            requests = [_request_tree(request) for request in result.pending]
            print_json({"thread_id": result.execution_id, **tree, "requests": requests})
        else:
            _print_result(result, self.place)
        if result.state == "failed":
            raise Mistake(self.place.add_resume_hint(f"The execution stopped: {result.error}"))
        if result.state == "completed" and not result.success:
            raise Mistake(f"The execution ended with an error: {result.error}")


def _print_resolved(event: events.WorkflowApprovalResolvedEvent) -> None:
    word = "approved" if event.approved else "denied"
    late = ", because no answer came in time" if event.timed_out else ""
    why = f": {event.reason}" if event.reason else ""
    _print_node_line(event, f"{word}{late}{why}", fg="magenta")


def _print_edge(event: events.WorkflowEdgeTraversedEvent) -> None:
    if event.condition_description:
        text = f"{event.from_node_id} -> {event.to_node_id}, as {event.condition_description}"
        click.secho(f"  {make_printable(text)}", dim=True)


def _print_diagnostic(event: events.WorkflowDiagnosticEvent) -> None:
    style: dict[str, Any] = {"fg": "yellow"} if event.level == "warning" else {"dim": True}
    at = "" if event.node_id is None else f" of {event.node_id}"
    click.secho(make_printable(f"{event.level}{at}: {event.message}"), **style)


_EXECUTION_PRINTERS: dict[type, Callable[[Any], None]] = {
    events.WorkflowAgentStartedEvent: lambda event: _print_node_line(event, "runs", dim=True),
    events.WorkflowAgentCompletedEvent: lambda event: (
        _print_node_line(event, "done", fg="green")
        if event.success
        else _print_node_line(event, f"failed: {event.error_message}", fg="red")
    ),
    events.WorkflowAgentSkippedEvent: lambda event: _print_node_line(event, f"skipped: {event.reason}", fg="yellow"),
    events.WorkflowEdgeTraversedEvent: _print_edge,
    events.WorkflowApprovalRequestedEvent: lambda event: _print_node_line(event, "asks for approval", fg="magenta"),
    events.WorkflowApprovalResolvedEvent: _print_resolved,
    events.WorkflowDiagnosticEvent: _print_diagnostic,
}


def _print_node_line(event: Any, text: str, **style: Any) -> None:
    click.secho(f"  {make_printable(_node_path(event))}: {make_printable(text)}", **style)


def _node_path(event: Any) -> str:
    """The node, with those that are the workflows that it is in."""
    return "/".join(event.metadata.agent_chain) or str(event.agent_id)


RESULT_FIELDS = ("checkpoint_id", "state", "success", "final_answer", "outputs", "error", "duration", "usage")


def _request_tree(request: events.WorkflowApprovalRequestedEvent) -> dict[str, Any]:
    return {
        "request_id": _own_id(request),
        "node": _node_path(request),
        "deadline": iso_time(request.deadline),
        "message": request.message,
        "description": request.description,
        "outputs": request.outputs,
    }


def _print_result(result: WorkflowResult, place: StoreLocation) -> None:
    """The result, or the pending requests and how to answer them."""
    if result.final_answer is not None:
        _print_lines("answer", result.final_answer, fg="green")
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
    outputs = (f"{key}: {value}" for key, value in request.outputs.items())
    for text in filter(None, (request.message, request.description, *outputs)):
        for line in to_lines(text):
            print_folded(f"  | {line}", 4)
    click.echo(f"  answer it: {place.answer(_own_id(request), ApprovalDecision.sample_answer)}")
