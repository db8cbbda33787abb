"""`perdure requests`: who is asked what, across threads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.places import existing_store, json_option, store_option
from perdure.cli.readable import in_a_line, tree_of
from perdure.cli.tables import exact, near, print_json, print_table
from perdure.errors import PerdureError
from perdure.events import WorkflowEvent
from perdure.records import PendingRequest

HEADERS = ("THREAD", "REQUEST", "ASKED BY", "ASKED", "FOR", "UNTIL", "EXPECTS", "QUESTION")
QUESTION = 200
"""Characters of a question in the table; `perdure show` has all of it."""


@dataclass(frozen=True)
class Asked:
    """A pending request with its question, as far as that can be read."""

    request: PendingRequest
    event: WorkflowEvent | None
    problem: str | None = None


@click.command(short_help="List pending requests of all threads.")
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Those that wait longest.")
@json_option
@store_option
def requests(workflow: str | None, limit: int, as_json: bool, store: str | None) -> None:
    """List pending requests of all threads, those that wait longest first."""
    found = asyncio.run(_read(store, workflow, limit))
    if as_json:
        print_json([request_tree(one) for one in found])
    elif not found:
        click.echo("Nobody is asked anything.")
    else:
        print_table(HEADERS, [_row(one) for one in found])


async def _read(store: str | None, workflow: str | None, limit: int) -> list[Asked]:
    async with existing_store(store) as storage:
        pending = await storage.pending_requests(workflow_name=workflow, limit=limit)
        heads = {one: await _questions(storage, one) for one in dict.fromkeys(one.thread_id for one in pending)}
    return [Asked(one, heads[one.thread_id][0].get(one.request_id), heads[one.thread_id][1]) for one in pending]


async def _questions(storage: StoreCheckpointStorage, thread_id: str) -> tuple[dict[str, WorkflowEvent], str | None]:
    """What is asked in one thread, or why that cannot be read: the others are listed all the same."""
    try:
        head = await storage.get_latest(thread_id=thread_id)
    except PerdureError as error:
        return {}, str(error)
    return ({} if head is None else head.pending_request_info_events), None


def request_tree(asked: Asked) -> dict[str, Any]:
    request, event = asked.request, asked.event
    has_default = event is not None and event.terms is not None and event.terms.default is not ...
    return {
        "thread_id": request.thread_id,
        "request_id": request.request_id,
        "workflow_name": request.workflow_name,
        "executor_id": request.executor_id,
        "asked_at": exact(request.asked_at),
        "deadline": exact(request.deadline),
        "assignee": request.assignee,
        "expects": None if event is None else in_a_line(event.response_type),
        "question": None if event is None else tree_of(event.data),
        **({"default": tree_of(event.terms.default)} if has_default and event and event.terms else {}),
        **({} if asked.problem is None else {"problem": asked.problem}),
    }


def _row(asked: Asked) -> tuple[str, ...]:
    request, event = asked.request, asked.event
    question = f"({asked.problem or 'it is gone'})" if event is None else in_a_line(event.data)
    return (
        request.thread_id,
        request.request_id,
        request.executor_id,
        near(request.asked_at),
        request.assignee or "",
        near(request.deadline),
        "" if event is None else in_a_line(event.response_type),
        question if len(question) <= QUESTION else f"{question[:QUESTION]}...",
    )
