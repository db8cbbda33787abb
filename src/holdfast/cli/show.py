"""`holdfast show`: where one thread stands, what it waits for, what is in it, and what happened last."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import click

from holdfast.checkpoints.checkpoint import WorkflowCheckpoint
from holdfast.checkpoints.storage import StoreCheckpointStorage, read_events
from holdfast.cli.places import find_thread, reading, store_option
from holdfast.cli.questions import tell_request
from holdfast.cli.readable import cut, in_a_line, in_lines, printable, tree_of
from holdfast.cli.requests import Asked, request_tree
from holdfast.cli.standing import standing, thread_tree
from holdfast.cli.tables import exact, moment, near, print_json, print_table
from holdfast.errors import HoldfastError
from holdfast.events import WorkflowEvent
from holdfast.records import Answer, CheckpointInfo, PendingRequest, SuspendedDelivery, ThreadInfo, WorkflowMessage

FEW = 10
"""How many of the newest checkpoints and events are shown."""
ERROR_FIELDS = ("error_type", "message", "executor_id", "traceback")


@dataclass
class Picture:
    """All that `show` knows of a thread."""

    thread: ThreadInfo
    checkpoints: list[CheckpointInfo]
    requests: list[PendingRequest]
    head: WorkflowCheckpoint | None = None
    events: list[WorkflowEvent] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What could not be read. The rest is shown all the same."""

    @property
    def asked(self) -> list[Asked]:
        known = {} if self.head is None else self.head.pending_request_info_events
        return [Asked(one, known.get(one.request_id)) for one in self.requests]


@click.command(short_help="Show one thread.")
@click.argument("thread_id", metavar="THREAD")
@click.option("--events", "all_events", is_flag=True, help="The whole log, not only its end.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@store_option
@click.pass_context
def show(context: click.Context, thread_id: str, all_events: bool, as_json: bool, store: str | None) -> None:
    """Show where THREAD stands: status, pending requests, state, checkpoints, last events."""
    picture = asyncio.run(_read(store, thread_id, all_events=all_events))
    if as_json:
        print_json(_tree(picture))
    else:
        _print(picture, all_events=all_events)
    for problem in picture.problems:
        click.echo(f"Error: {printable(problem)}", err=True)
    if picture.problems:
        context.exit(1)


async def _read(store: str | None, thread_id: str, *, all_events: bool) -> Picture:
    async with reading(store) as storage:
        thread = await find_thread(storage, thread_id)
        checkpoints = await storage.list_checkpoint_infos(thread_id=thread_id)
        picture = Picture(thread, checkpoints, await storage.pending_requests(thread_id=thread_id))
        try:
            picture.head = await storage.get_latest(thread_id=thread_id)
        except HoldfastError as error:
            picture.problems.append(str(error))
        try:
            picture.events = await _events(storage, thread_id, None if all_events else FEW)
        except HoldfastError as error:
            picture.problems.append(str(error))
    return picture


async def _events(storage: StoreCheckpointStorage, thread_id: str, last: int | None) -> list[WorkflowEvent]:
    kept: deque[WorkflowEvent] = deque(maxlen=last)
    async for event in read_events(storage, thread_id, 0, None):
        kept.append(event)
    return list(kept)


# ---------------------------------------------------------------- for machines


def _tree(picture: Picture) -> dict[str, Any]:
    head = picture.head
    return {
        **thread_tree(picture.thread),
        "checkpoints": [_checkpoint_tree(one) for one in picture.checkpoints],
        "requests": [request_tree(one) for one in picture.asked],
        "state": None if head is None else {key: tree_of(value) for key, value in head.state.items()},
        "outputs": None if head is None else [_output_tree(one) for one in head.outputs],
        "answers": None if head is None else {key: _answer_tree(one) for key, one in head.answered.items()},
        "due": None if head is None else [_due_tree(*one) for one in _due(head)],
        "events": [_event_tree(one) for one in picture.events],
    }


def _checkpoint_tree(info: CheckpointInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}


def _output_tree(event: WorkflowEvent) -> dict[str, Any]:
    return {"executor_id": event.executor_id, "data": tree_of(event.data)}


def _answer_tree(answer: Answer) -> dict[str, Any]:
    return {"answered_at": exact(answer.answered_at), "answered_by": answer.answered_by, "how": how_settled(answer)}


def how_settled(answer: Answer) -> str:
    """answered; expired: the deadline passed first; withdrawn: whoever asked went on without an answer."""
    if answer.is_withdrawn:
        return "withdrawn"
    return "answered" if answer.expired_for is None else "expired"


def _event_tree(event: WorkflowEvent) -> dict[str, Any]:
    """What is set of it; the fields have the names of `WorkflowEvent`."""
    details = event.details
    fields = {
        "seq": event.seq,
        "timestamp": exact(event.timestamp),
        "type": event.type,
        "executor_id": event.executor_id,
        "run_id": event.run_id,
        "iteration": event.iteration,
        "state": None if event.state is None else event.state.value,
        "request_id": event.request_id,
        "details": None if details is None else {name: getattr(details, name) for name in ERROR_FIELDS},
        "data": None if event.data is None else tree_of(event.data),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _due_tree(message: WorkflowMessage, suspended: SuspendedDelivery | None) -> dict[str, Any]:
    return {
        "executor_id": message.target_id,
        "source_id": message.source_id,
        "due_at": None if suspended is None else exact(suspended.due_at),
        "waits_for": [] if suspended is None else list(suspended.waits),
    }


def _due(head: WorkflowCheckpoint) -> list[tuple[WorkflowMessage, SuspendedDelivery | None]]:
    """What the thread goes on with: deliveries that are due, and those that sleep or wait."""
    return [*((one, None) for one in head.deliveries), *((one.message, one) for one in head.suspended.values())]


# ---------------------------------------------------------------- for people


def _print(picture: Picture, *, all_events: bool) -> None:
    _print_standing(picture)
    head = picture.head
    if picture.requests:
        _title("pending requests")
    for asked in picture.asked:
        if asked.event is not None:
            tell_request(asked.event)
        else:
            click.echo(f"  request {printable(asked.request.request_id)} of {printable(asked.request.executor_id)}")
    if head is not None:
        _print_head(head)
    if picture.checkpoints:
        _title(f"checkpoints ({len(picture.checkpoints)})")
        shown = picture.checkpoints[-FEW:]
        rows = [(one.checkpoint_id, str(one.number), str(one.iteration_count), near(one.timestamp)) for one in shown]
        print_table(("CHECKPOINT", "COMMIT", "SUPERSTEP", "MADE"), rows)
    if picture.events:
        _title("events" if all_events else "last events")
        print_table(("SEQ", "TIME", "EVENT", "EXECUTOR", "DETAIL"), [_event_row(one) for one in picture.events])
    for event in picture.events if all_events else ():
        if event.type == "failed" and event.details is not None and event.details.traceback:
            _title(f"stack trace of event {event.seq}")
            click.echo(printable(event.details.traceback.rstrip()))


def _print_standing(picture: Picture) -> None:
    thread = picture.thread
    lines = {
        "thread": thread.thread_id,
        "workflow": thread.workflow_name,
        "standing": f"{standing(thread)} ({thread.status})" if thread.status else standing(thread),
        "moved": moment(thread.updated_at),
        "head": thread.checkpoint_id or "none",
        "owner": thread.run_id or "",
        "due": moment(thread.due_at),
    }
    for name, value in lines.items():
        if value:
            click.echo(f"{click.style(name.ljust(9), bold=True)} {printable(value)}")


def _print_head(head: WorkflowCheckpoint) -> None:
    if head.state:
        _title("state")
    for key, value in head.state.items():
        _print_value(str(key), value)
    if head.outputs:
        _title("outputs")
    for event in head.outputs:
        _print_value(str(event.executor_id), event.data)
    if head.answered:
        _title("settled requests")
    for request_id, answer in head.answered.items():
        by = "" if answer.answered_by is None else f" by {answer.answered_by}"
        click.echo(printable(f"  {request_id}: {how_settled(answer)}{by}, {moment(answer.answered_at)}"))
    due = _due(head)
    if due:
        _title("goes on with")
    for message, suspended in due:
        click.echo(f"  {printable(str(message.target_id))}{_pause(suspended)}: {cut(in_a_line(message.data), 200)}")


def _pause(suspended: SuspendedDelivery | None) -> str:
    if suspended is None:
        return ""
    if suspended.due_at is not None:
        return f", at {moment(suspended.due_at)}"
    return f", once it is answered ({printable(', '.join(suspended.waits))})" if suspended.waits else ""


def _print_value(name: str, value: Any) -> None:
    lines = in_lines(value)
    if len(lines) == 1:
        click.echo(f"  {printable(name)}: {lines[0]}")
        return
    click.echo(f"  {printable(name)}:")
    for line in lines:
        click.echo(f"    {line}")


def _event_row(event: WorkflowEvent) -> tuple[str, ...]:
    said = ""
    if event.state is not None:
        said = event.state.value
    elif event.details is not None:
        said = f"{event.details.error_type}: {event.details.message}"
    elif event.iteration is not None:
        said = f"superstep {event.iteration}"
    elif event.data is not None:
        said = in_a_line(event.data)
    if event.request_id is not None:
        said = f"request {event.request_id}: {said}"
    return (str(event.seq), near(event.timestamp), event.type, event.executor_id or "", cut(said, 200))


def _title(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)
