"""What is in a checkpoint: its state, outputs, requests, and what it goes on with; for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.level import ChildCheckpoint
from perdure.cli.output.tables import exact, folded, moment, print_folded
from perdure.cli.output.values import cut, in_a_line, in_lines, printable, tree_of
from perdure.events import WorkflowEvent
from perdure.records import Answer, CheckpointInfo, ExecutorMemory, SuspendedDelivery, WorkflowMessage

# ---------------------------------------------------------------- questions


def tell_request(request: WorkflowEvent) -> None:
    """A question, with its terms."""
    expected = in_a_line(request.response_type)
    said = [f"request {request.request_id} of {request.source_executor_id}", f"expects {expected}"]
    if request.terms is not None and request.terms.assignee is not None:
        said.append(f"for {request.terms.assignee}")
    if request.terms is not None and request.terms.deadline is not None:
        said.append(f"until {moment(request.terms.deadline)}")
    print_folded(f"  {printable(', '.join(said))}", 4, fg="magenta")
    for line in in_lines(request.data):
        print_folded(f"  | {line}", 4)


Level = WorkflowCheckpoint | ChildCheckpoint


# ---------------------------------------------------------------- for machines


def checkpoint_tree(info: CheckpointInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}


def contents_tree(checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    return {
        "state": _values(checkpoint.state),
        "outputs": [output_tree(one) for one in checkpoint.outputs],
        "answers": {key: _answer_tree(one) for key, one in checkpoint.answered.items()},
        "due": [_due_tree(*one) for one in _due(checkpoint)],
        "executors": {name: _memory_tree(one) for name, one in checkpoint.executors.items()},
        "sub_workflows": [
            {
                "executor_id": path,
                "state": _values(one.state),
                "due": [_due_tree(*due) for due in _due(one)],
                "executors": {name: _memory_tree(memory) for name, memory in one.executors.items()},
            }
            for path, one in _below(checkpoint)
        ],
    }


def question_tree(event: WorkflowEvent) -> dict[str, Any]:
    """A pending request as its checkpoint holds it; the fields have the names that `perdure requests` uses."""
    terms = event.terms
    has_default = terms is not None and terms.default is not ...
    return {
        "request_id": event.request_id,
        "executor_id": event.source_executor_id,
        "deadline": None if terms is None else exact(terms.deadline),
        "assignee": None if terms is None else terms.assignee,
        "expects": in_a_line(event.response_type),
        "question": tree_of(event.data),
        **({"default": tree_of(terms.default)} if has_default and terms is not None else {}),
    }


def how_settled(answer: Answer) -> str:
    """answered; expired: the deadline passed first; withdrawn: whoever asked went on without an answer."""
    if answer.is_withdrawn:
        return "withdrawn"
    return "answered" if answer.expired_for is None else "expired"


def _values(state: dict[str, Any]) -> dict[str, Any]:
    return {key: tree_of(value) for key, value in state.items()}


def output_tree(event: WorkflowEvent) -> dict[str, Any]:
    return {"executor_id": event.executor_id, "data": tree_of(event.data)}


def _answer_tree(answer: Answer) -> dict[str, Any]:
    return {"answered_at": exact(answer.answered_at), "answered_by": answer.answered_by, "how": how_settled(answer)}


def _memory_tree(memory: ExecutorMemory) -> dict[str, Any]:
    return {"saved": tree_of(memory.saved), "private": tree_of(memory.private)}


def _due_tree(message: WorkflowMessage, suspended: SuspendedDelivery | None) -> dict[str, Any]:
    return {
        "executor_id": message.target_id,
        "source_id": message.source_id,
        "due_at": None if suspended is None else exact(suspended.due_at),
        "waits_for": [] if suspended is None else list(suspended.waits),
        "message": tree_of(message.data),
    }


def _due(level: Level) -> list[tuple[WorkflowMessage, SuspendedDelivery | None]]:
    """What it goes on with: deliveries that are due, and those that sleep or wait."""
    return [*((one, None) for one in level.deliveries), *((one.message, one) for one in level.suspended.values())]


def _below(level: Level, path: str = "") -> Iterator[tuple[str, ChildCheckpoint]]:
    for child in level.children.values():
        yield f"{path}{child.executor_id}", child
        yield from _below(child, f"{path}{child.executor_id}/")


# ---------------------------------------------------------------- for people


def print_title(text: str) -> None:
    click.echo()
    click.secho(printable(text), bold=True)


def print_facts(facts: dict[str, str]) -> None:
    """Names and what they are, those that are nothing left out."""
    width = max(map(len, facts))
    for name, value in facts.items():
        if value:
            lines = folded(f"{name.ljust(width)}  {printable(value)}", width + 2)
            click.echo(f"{click.style(lines[:width], bold=True)}{lines[width:]}")


def print_contents(checkpoint: WorkflowCheckpoint) -> None:
    """State, outputs, settled requests, what it goes on with."""
    _print_values("state", checkpoint.state)
    if checkpoint.outputs:
        print_title("outputs")
    for event in checkpoint.outputs:
        print_value(str(event.executor_id), event.data)
    if checkpoint.answered:
        print_title("settled requests")
    for request_id, answer in checkpoint.answered.items():
        by = "" if answer.answered_by is None else f" by {answer.answered_by}"
        print_folded(printable(f"  {request_id}: {how_settled(answer)}{by}, {moment(answer.answered_at)}"), 4)
    _print_due("goes on with", checkpoint)


def print_depths(checkpoint: WorkflowCheckpoint) -> None:
    """What executors keep for themselves, and what is in sub-workflows."""
    _print_memory("kept by executors", checkpoint.executors)
    for path, child in _below(checkpoint):
        _print_values(f"state of the sub-workflow in {path}", child.state)
        _print_memory(f"kept by executors of {path}", child.executors)
        _print_due(f"{path} goes on with", child)


def print_questions(checkpoint: WorkflowCheckpoint) -> None:
    if checkpoint.pending_request_info_events:
        print_title("pending requests")
    for event in checkpoint.pending_request_info_events.values():
        tell_request(event)


def print_value(name: str, value: Any) -> None:
    lines = in_lines(value)
    if len(lines) == 1:
        print_folded(f"  {printable(name)}: {lines[0]}", 4)
        return
    print_folded(f"  {printable(name)}:", 4)
    for line in lines:
        print_folded(f"    {line}", 6)


def _print_values(title: str, values: dict[str, Any]) -> None:
    if values:
        print_title(title)
    for key, value in values.items():
        print_value(str(key), value)


def _print_memory(title: str, executors: dict[str, ExecutorMemory]) -> None:
    kept = {name: {**(one.saved or {}), **(one.private or {})} for name, one in executors.items()}
    _print_values(title, {name: values for name, values in kept.items() if values})


def _print_due(title: str, level: Level) -> None:
    due = _due(level)
    if due:
        print_title(title)
    for message, suspended in due:
        target = printable(str(message.target_id))
        print_folded(f"  {target}{_pause(suspended)}: {cut(in_a_line(message.data), 200)}", 4)


def _pause(suspended: SuspendedDelivery | None) -> str:
    if suspended is None:
        return ""
    if suspended.due_at is not None:
        return f", at {moment(suspended.due_at)}"
    return f", once it is answered ({printable(', '.join(suspended.waits))})" if suspended.waits else ""
