"""The contents of a checkpoint: state, outputs, requests and due deliveries, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.cli.tables import format_time, iso_time, print_folded
from perdure.cli.values import make_printable, shorten, to_line, to_lines, to_tree
from perdure.events import WorkflowEvent
from perdure.records import ChildCheckpoint, ExecutorMemory, SuspendedDelivery, WorkflowMessage


def print_request(request: WorkflowEvent) -> None:
    """A question, with its terms."""
    expected = to_line(request.response_type)
    parts = [f"request {request.request_id} of {request.source_executor_id}", f"expects {expected}"]
    if request.terms is not None and request.terms.assignee is not None:
        parts.append(f"for {request.terms.assignee}")
    if request.terms is not None and request.terms.deadline is not None:
        parts.append(f"until {format_time(request.terms.deadline)}")
    print_folded(f"  {make_printable(', '.join(parts))}", 4, fg="magenta")
    for line in to_lines(request.data):
        print_folded(f"  | {line}", 4)


AnyLevel = WorkflowCheckpoint | ChildCheckpoint


# ---------------------------------------------------------------- for machines


def contents_tree(checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    level = _level_tree(checkpoint)
    return {
        "state": level.pop("state"),
        "outputs": [output_tree(item) for item in checkpoint.outputs],
        "answers": {
            key: {
                "answered_at": iso_time(answer.answered_at),
                "answered_by": answer.answered_by,
                "how": answer.outcome,
            }
            for key, answer in checkpoint.answered.items()
        },
        **level,
        "sub_workflows": [{"executor_id": path, **_level_tree(item)} for path, item in _iter_children(checkpoint)],
    }


def _level_tree(level: AnyLevel) -> dict[str, Any]:
    return {
        "state": {key: to_tree(value) for key, value in level.state.items()},
        "due": [_due_tree(*item) for item in _due_deliveries(level)],
        "executors": {
            name: {"saved": to_tree(item.saved), "private": to_tree(item.private)}
            for name, item in level.executors.items()
        },
    }


def question_tree(event: WorkflowEvent) -> dict[str, Any]:
    """A pending request as its checkpoint holds it; the fields have the names that `perdure requests` uses."""
    terms = event.terms
    return {
        "request_id": event.request_id,
        "executor_id": event.source_executor_id,
        "deadline": None if terms is None else iso_time(terms.deadline),
        "assignee": None if terms is None else terms.assignee,
        **expectation_tree(event),
    }


def expectation_tree(event: WorkflowEvent) -> dict[str, Any]:
    """The question of a request, and the type of its answer; a default only if its terms have one."""
    asked = {"expects": to_line(event.response_type), "question": to_tree(event.data)}
    has_default = event.terms is not None and event.terms.default is not ...
    return {**asked, "default": to_tree(event.terms.default)} if event.terms and has_default else asked


def output_tree(event: WorkflowEvent) -> dict[str, Any]:
    return {"executor_id": event.executor_id, "data": to_tree(event.data)}


def _due_tree(message: WorkflowMessage, suspended: SuspendedDelivery | None) -> dict[str, Any]:
    return {
        "executor_id": message.target_id,
        "source_id": message.source_id,
        "due_at": None if suspended is None else iso_time(suspended.due_at),
        "waits_for": [] if suspended is None else list(suspended.waits),
        "message": to_tree(message.data),
    }


def _due_deliveries(level: AnyLevel) -> list[tuple[WorkflowMessage, SuspendedDelivery | None]]:
    """Deliveries that are due, and those that sleep or wait."""
    return [*((item, None) for item in level.deliveries), *((item.message, item) for item in level.suspended.values())]


def _iter_children(level: AnyLevel, path: str = "") -> Iterator[tuple[str, ChildCheckpoint]]:
    for child in level.children.values():
        yield f"{path}{child.executor_id}", child
        yield from _iter_children(child, f"{path}{child.executor_id}/")


# ---------------------------------------------------------------- for people


def print_title(text: str) -> None:
    click.echo()
    click.secho(make_printable(text), bold=True)


def print_contents(checkpoint: WorkflowCheckpoint) -> None:
    """Print state, outputs, settled requests, and due deliveries."""
    _print_values("state", checkpoint.state)
    if checkpoint.outputs:
        print_title("outputs")
    for event in checkpoint.outputs:
        print_value(str(event.executor_id), event.data)
    if checkpoint.answered:
        print_title("settled requests")
    for request_id, answer in checkpoint.answered.items():
        by = "" if answer.answered_by is None else f" by {answer.answered_by}"
        print_folded(make_printable(f"  {request_id}: {answer.outcome}{by}, {format_time(answer.answered_at)}"), 4)
    _print_due("continues with", checkpoint)


def print_depths(checkpoint: WorkflowCheckpoint) -> None:
    """Private state of executors, and the state of sub-workflows."""
    _print_memory("kept by executors", checkpoint.executors)
    for path, child in _iter_children(checkpoint):
        _print_values(f"state of the sub-workflow in {path}", child.state)
        _print_memory(f"kept by executors of {path}", child.executors)
        _print_due(f"{path} continues with", child)


def print_questions(checkpoint: WorkflowCheckpoint) -> None:
    if checkpoint.pending_request_info_events:
        print_title("pending requests")
    for event in checkpoint.pending_request_info_events.values():
        print_request(event)


def print_value(name: str, value: Any) -> None:
    lines = to_lines(value)
    if len(lines) == 1:
        print_folded(f"  {make_printable(name)}: {lines[0]}", 4)
        return
    print_folded(f"  {make_printable(name)}:", 4)
    for line in lines:
        print_folded(f"    {line}", 6)


def _print_values(title: str, values: dict[str, Any]) -> None:
    if values:
        print_title(title)
    for key, value in values.items():
        print_value(str(key), value)


def _print_memory(title: str, executors: dict[str, ExecutorMemory]) -> None:
    memory = {name: {**(item.saved or {}), **(item.private or {})} for name, item in executors.items()}
    _print_values(title, {name: values for name, values in memory.items() if values})


def _print_due(title: str, level: AnyLevel) -> None:
    due = _due_deliveries(level)
    if due:
        print_title(title)
    for message, suspended in due:
        target = make_printable(str(message.target_id))
        print_folded(f"  {target}{_pause_text(suspended)}: {shorten(to_line(message.data), 200)}", 4)


def _pause_text(suspended: SuspendedDelivery | None) -> str:
    if suspended is None:
        return ""
    if suspended.due_at is not None:
        return f", at {format_time(suspended.due_at)}"
    return f", once it is answered ({make_printable(', '.join(suspended.waits))})" if suspended.waits else ""
