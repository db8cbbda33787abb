"""`perdure answer`: answer a request and continue its thread."""

from __future__ import annotations

import json
from typing import Any

import click

from perdure.checkpoints.any_storage import load_checkpoint
from perdure.cli.options.app import load_app
from perdure.cli.options.store import (
    StoreLocation,
    find_thread,
    json_option,
    sessions_option,
    store_option,
    thread_argument,
)
from perdure.cli.output.errors import Mistake
from perdure.cli.running.run_thread import Input, run_thread
from perdure.errors import type_name
from perdure.events import WorkflowEvent
from perdure.graph.types.coercion import coerce
from perdure.workflows.workflow import Workflow


@click.command(short_help="Answer a request and continue its thread.")
@thread_argument
@click.argument("request_id", metavar="REQUEST")
@click.argument("value")
@click.option("--app", help="The workflow of the thread, as for `perdure run`: it continues with the answer.")
@click.option("--by", metavar="NAME", help="Who answers; kept with the answer.")
@sessions_option
@json_option
@store_option
def answer(
    thread_id: str,
    request_id: str,
    value: str,
    app: str | None,
    by: str | None,
    sessions: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """Answer REQUEST of THREAD with VALUE, and run the workflow on until it rests.

    VALUE is JSON, or text where the request expects text. It is checked against what the request expects before
    anything is written.
    """
    place = StoreLocation(app or "APP", thread_id, store, sessions)
    if app is None:
        raise click.UsageError(
            "An answer is checked by the workflow, which then continues with it: name it with --app. Nothing was "
            f"written. The command: {place.answer(request_id, value)}"
        )

    async def prepare(storage: Any, graph: Workflow) -> Input:
        request = await find_request(storage, graph, thread_id, request_id)
        named = request_id if request is None else str(request.request_id)
        return Input(None, {"responses": {named: parse_answer(request, value)}, "answered_by": by})

    run_thread(load_app(app, store, place.thread_id), place, prepare, as_json=as_json)


async def find_request(storage: Any, workflow: Workflow, thread_id: str, request_id: str) -> WorkflowEvent | None:
    """The request as it stands in the thread's head; None if it is not pending there: the run then says why."""
    info = await find_thread(storage, thread_id)
    if info.checkpoint_id is None:
        return None
    compiled = workflow._compiled
    head = await load_checkpoint(storage, info.checkpoint_id, compiled.declared, compiled.migrator())
    pending = head.pending_request_info_events
    # Workflows of agents put the thread's id before it, so that it is one among those of all threads.
    return pending.get(request_id) or pending.get(request_id.removeprefix(f"{thread_id}:"))


def parse_answer(request: WorkflowEvent | None, value: str) -> Any:
    """The value as what the request expects. Raises Mistake if it does not fit."""
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
