"""`perdure threads`, `requests` and `show`: the status of threads, their requests, and their last events."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.history.branches import Branches, build_branches
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.contents import (
    checkpoint_tree,
    contents_tree,
    expectation_tree,
    print_contents,
    print_facts,
    print_request,
    print_title,
)
from perdure.cli.errors import explain
from perdure.cli.options import find_thread, store_command, thread_argument
from perdure.cli.tables import (
    format_age,
    format_time,
    iso_time,
    print_json,
    print_list,
    print_table,
    thread_status,
    thread_tree,
)
from perdure.cli.values import make_printable, shorten, to_line, to_tree
from perdure.errors import PerdureError
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo, PendingRequest, ThreadInfo

HEADERS = ("THREAD", "WORKFLOW", "STANDING", "MOVED", "DUE")


@click.command(short_help="List threads and their status.")
@click.option("--workflow", metavar="NAME", help="Only threads of this workflow.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest of them.")
@store_command
async def threads(storage: StoreCheckpointStorage, workflow: str | None, limit: int, as_json: bool) -> None:
    """List threads, the last one changed at the end."""
    listed = await storage.list_threads(workflow_name=workflow, limit=limit)
    rows = [
        (row.thread_id, row.workflow_name, thread_status(row), format_age(row.updated_at), format_age(row.due_at))
        for row in listed
    ]
    print_list([thread_tree(row) for row in listed], HEADERS, rows, as_json=as_json, nothing="No threads.")


def print_graph(branches: Branches) -> None:
    rows = list(branches.rows())
    for place, (drawn, info) in enumerate(rows, 1):
        if info is None:
            click.echo(drawn)
        else:
            _print_row(f"{drawn} ", _describe(info, branches), is_last=place == len(rows))


def _print_row(drawn: str, text: str, *, is_last: bool) -> None:
    lines = [text]
    if sys.stdout.isatty():
        lines = textwrap.wrap(text, max(8, shutil.get_terminal_size().columns - len(drawn)), break_on_hyphens=False)
    beside = " " * len(drawn) if is_last else drawn.replace("*", "|")
    for number, line in enumerate(lines):
        click.echo(f"{beside if number else drawn}{line}")


def _describe(info: CheckpointInfo, branches: Branches) -> str:
    text = make_printable(f"{info.checkpoint_id}  commit {info.number}, {format_age(info.timestamp)}, {info.status}")
    notes = branches.notes(info)
    return f"{text} ({make_printable(notes)})" if notes else text


REQUEST_HEADERS = ("THREAD", "REQUEST", "ASKED BY", "ASKED", "FOR", "UNTIL", "EXPECTS", "QUESTION")
QUESTION = 200
"""Characters of a question in the table; `perdure show` has all of it."""


@click.command(short_help="List pending requests of all threads.")
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The oldest of them.")
@store_command
async def requests(storage: StoreCheckpointStorage, workflow: str | None, limit: int, as_json: bool) -> None:
    """List pending requests of all threads, the oldest first."""
    infos = await storage.pending_requests(workflow_name=workflow, limit=limit)
    heads = {item: await _questions(storage, item) for item in dict.fromkeys(item.thread_id for item in infos)}
    pending = [(item, heads[item.thread_id][0].get(item.request_id), heads[item.thread_id][1]) for item in infos]
    trees, rows = [request_tree(*item) for item in pending], [_row(*item) for item in pending]
    print_list(trees, REQUEST_HEADERS, rows, as_json=as_json, nothing="No pending requests.")


async def _questions(storage: StoreCheckpointStorage, thread_id: str) -> tuple[dict[str, WorkflowEvent], str | None]:
    """The requests of one thread, or why they cannot be read: the command still lists the others."""
    try:
        head = await storage.get_latest(thread_id=thread_id)
    except PerdureError as error:
        return {}, str(error)
    return ({} if head is None else head.pending_request_info_events), None


def request_tree(request: PendingRequest, event: WorkflowEvent | None, problem: str | None = None) -> dict[str, Any]:
    """A pending request with its question, as far as that can be read."""
    return {
        **msgspec.structs.asdict(request),
        "asked_at": iso_time(request.asked_at),
        "deadline": iso_time(request.deadline),
        **({"expects": None, "question": None} if event is None else expectation_tree(event)),
        **({} if problem is None else {"problem": problem}),
    }


def _row(request: PendingRequest, event: WorkflowEvent | None, problem: str | None) -> tuple[str, ...]:
    question = f"({problem or 'no longer pending'})" if event is None else to_line(event.data)
    return (
        request.thread_id,
        request.request_id,
        request.executor_id,
        format_age(request.asked_at),
        request.assignee or "",
        format_age(request.deadline),
        "" if event is None else to_line(event.response_type),
        question if len(question) <= QUESTION else f"{question[:QUESTION]}...",
    )


MAX_SHOWN = 10
"""How many of the newest checkpoints and events are shown."""
ERROR_FIELDS = ("error_type", "message", "executor_id", "traceback")


@dataclass
class ThreadView:
    """The parts of a thread that `show` prints."""

    thread: ThreadInfo
    checkpoints: list[CheckpointInfo]
    requests: list[PendingRequest]
    head: WorkflowCheckpoint | None = None
    events: list[WorkflowEvent] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Errors of parts that could not be read. `show` prints the rest."""

    @property
    def branches(self) -> Branches | None:
        return build_branches(self.thread.thread_id, self.checkpoints) if self.checkpoints else None

    @property
    def questions(self) -> list[tuple[PendingRequest, WorkflowEvent | None]]:
        """Pending requests, each with its question, as far as that can be read."""
        events = {} if self.head is None else self.head.pending_request_info_events
        return [(item, events.get(item.request_id)) for item in self.requests]


@click.command(short_help="Show one thread.")
@thread_argument
@click.option("--events", "all_events", is_flag=True, help="Show the whole log, not only its end.")
@click.option("--branches", "as_graph", is_flag=True, help="Show only its checkpoints, as a graph.")
@store_command
async def show(
    storage: StoreCheckpointStorage, thread_id: str, all_events: bool, as_graph: bool, as_json: bool
) -> None:
    """Show THREAD: status, pending requests, state, checkpoints, last events."""
    picture = await _read(storage, thread_id, all_events=all_events)
    if as_json:
        print_json(_tree(picture))
    else:
        _print(picture, all_events=all_events, as_graph=as_graph)
    for problem in picture.problems:
        click.echo(f"Error: {make_printable(problem)}", err=True)
    if picture.problems:
        click.get_current_context().exit(1)


async def _read(storage: StoreCheckpointStorage, thread_id: str, *, all_events: bool) -> ThreadView:
    thread = await find_thread(storage, thread_id)
    checkpoints = await storage.list_checkpoint_infos(thread_id=thread_id)
    picture = ThreadView(thread, checkpoints, await storage.pending_requests(thread_id=thread_id))
    try:
        picture.head = await storage.get_latest(thread_id=thread_id)
    except PerdureError as error:
        picture.problems.append(explain(error))
    events: deque[WorkflowEvent] = deque(maxlen=None if all_events else MAX_SHOWN)
    try:
        async for event in read_events(storage, thread_id, None, None):
            events.append(event)
        picture.events.extend(events)
    except PerdureError as error:
        picture.problems.append(explain(error))
    return picture


# ---------------------------------------------------------------- for machines


def _tree(picture: ThreadView) -> dict[str, Any]:
    head, branches = picture.head, picture.branches
    nothing = dict.fromkeys(("state", "outputs", "answers", "due"))
    questions = nothing if head is None else contents_tree(head)
    return {
        **thread_tree(picture.thread),
        "checkpoints": [checkpoint_tree(item) for item in picture.checkpoints],
        "branches": [
            {**branch, "checkpoints": [item["checkpoint_id"] for item in branch["checkpoints"]]}
            for branch in (branches.to_dict()["branches"] if branches else ())
        ],
        "requests": [request_tree(*item) for item in picture.questions],
        **{name: questions[name] for name in nothing},
        "events": [_event_tree(item) for item in picture.events],
    }


def _event_tree(event: WorkflowEvent) -> dict[str, Any]:
    """The fields that are set, under the names of `WorkflowEvent`."""
    details = event.details
    fields = {
        "seq": event.seq,
        "timestamp": iso_time(event.timestamp),
        "type": event.type,
        "executor_id": event.executor_id,
        "run_id": event.run_id,
        "iteration": event.iteration,
        "state": None if event.state is None else event.state.value,
        "request_id": getattr(event, "request_id", None),
        "details": None if details is None else {name: getattr(details, name) for name in ERROR_FIELDS},
        "data": None if event.data is None else to_tree(event.data),
    }
    return {name: value for name, value in fields.items() if value is not None}


# ---------------------------------------------------------------- for people


def _print(picture: ThreadView, *, all_events: bool, as_graph: bool) -> None:
    _print_status(picture)
    branches, head = picture.branches, picture.head
    if as_graph:
        if branches is not None:
            _print_count(picture, branches)
            print_graph(branches)
        return
    if picture.requests:
        print_title("pending requests")
    for request, event in picture.questions:
        if event is not None:
            print_request(event)
        else:
            click.echo(f"  request {make_printable(request.request_id)} of {make_printable(request.executor_id)}")
    if head is not None:
        print_contents(head)
    if branches is not None:
        _print_checkpoints(picture, branches)
    if picture.events:
        print_title("events" if all_events else "last events")
        print_table(("SEQ", "TIME", "EVENT", "EXECUTOR", "DETAIL"), [_event_row(item) for item in picture.events])
    for item in picture.events if all_events else ():
        if item.type == "failed" and item.details is not None and item.details.traceback:
            print_title(f"stack trace of event {item.seq}")
            click.echo(make_printable(item.details.traceback.rstrip()))


def _print_status(picture: ThreadView) -> None:
    thread = picture.thread
    print_facts(
        {
            "thread": thread.thread_id,
            "workflow": thread.workflow_name,
            "standing": f"{thread_status(thread)} ({thread.status})" if thread.status else thread_status(thread),
            "moved": format_time(thread.updated_at),
            "head": thread.checkpoint_id or "none",
            "owner": thread.run_id or "",
            "due": format_time(thread.due_at),
        }
    )


def _print_count(picture: ThreadView, branches: Branches) -> None:
    apart = "" if len(branches) == 1 else f", on {len(branches)} branches"
    print_title(f"checkpoints ({len(picture.checkpoints)}{apart})")


def _print_checkpoints(picture: ThreadView, branches: Branches) -> None:
    _print_count(picture, branches)
    line = {item.checkpoint_id for item in branches.line(branches.head)}
    rows = []
    for item in picture.checkpoints[-MAX_SHOWN:]:
        aside = "" if item.checkpoint_id in line else "on another branch"
        note = ", ".join(filter(None, (branches.notes(item), aside)))
        rows.append((item.checkpoint_id, str(item.number), str(item.iteration_count), format_age(item.timestamp), note))
    print_table(("CHECKPOINT", "COMMIT", "SUPERSTEP", "MADE", "NOTE"), rows)


def _event_row(event: WorkflowEvent) -> tuple[str, ...]:
    text = ""
    if event.state is not None:
        text = event.state.value
    elif event.details is not None:
        text = f"{event.details.error_type}: {event.details.message}"
    elif event.iteration is not None:
        text = f"superstep {event.iteration}"
    elif event.data is not None:
        text = to_line(event.data)
    if event.type == "request_info":
        text = f"request {event.request_id}: {text}"
    return (str(event.seq), format_age(event.timestamp), event.type, event.executor_id or "", shorten(text, 200))
