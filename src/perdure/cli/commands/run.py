"""`perdure run`: start a thread of a workflow, or send a message to one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Union

import click

from perdure.cli.options.app import load_app
from perdure.cli.options.store import StoreLocation, json_option, sessions_option, store_option
from perdure.cli.running.run_thread import Input, run_thread
from perdure.engine.thread.inputs import accepts
from perdure.errors import type_name
from perdure.graph.types.coercion import coerce
from perdure.names import new_thread_id
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.agent_workflow.builder.workflow import AgentWorkflow


INPUTS_OF_AGENTS = (str, dict)
"""What every workflow of agents starts with."""


@click.command(short_help="Run a workflow until it rests.")
@click.argument("app")
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--thread", "thread_id", metavar="ID", help="Which thread; a new one with an id of its own if left out.")
@click.option("--json-input", is_flag=True, help="INPUT is JSON; it becomes what the workflow starts with.")
@click.option(
    "--durability",
    type=click.Choice(["sync", "async", "exit"]),
    default="sync",
    show_default=True,
    help="When to save: before the next superstep starts, while it runs, or only at the end.",
)
@sessions_option
@json_option
@store_option
def run(
    app: str,
    text: str | None,
    thread_id: str | None,
    json_input: bool,
    durability: Any,
    sessions: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """Run the workflow APP with INPUT until it rests, and print its events.

    APP is a module and a name in it, such as 'app:workflow', with the current folder to import from; or a document,
    such as 'workflow.yaml'; or the name of a definition in the store. INPUT is the text that the workflow starts with.

    A thread of a workflow of agents has one input: the same input resumes it, or prints its result.
    """
    if thread_id == "":
        raise click.UsageError("--thread: an id has at least one character.")
    workflow = load_app(app, store, thread_id)
    place = StoreLocation(app, thread_id or new_thread_id(), store, sessions)

    message = the_message(workflow, text, is_json=json_input)

    async def prepare(_: Any, __: Any) -> Input:
        return Input(message, {"durability": durability})

    run_thread(workflow, place, prepare, may_be_new=True, as_json=as_json)


def the_message(workflow: Workflow | AgentWorkflow, text: str | None, *, is_json: bool) -> Any:
    """What the start executor is given. Raises UsageError if it takes no such thing."""
    graph = workflow.graph if isinstance(workflow, Workflow) else None
    accepted = workflow.input_types if isinstance(workflow, Workflow) else list(INPUTS_OF_AGENTS)
    kinds = " or ".join(map(type_name, accepted))
    if text is None:
        if graph is None or not accepts(graph, None):
            raise click.UsageError(
                f"INPUT is missing: the workflow starts with {kinds}. To continue a thread use `perdure resume`."
            )
        return None
    if not is_json:
        if graph is not None and not accepts(graph, text):
            raise click.UsageError(f"INPUT is text, and the workflow starts with {kinds}: give JSON and --json-input.")
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"INPUT is not valid JSON: {error}.") from error
    try:
        return coerce(value, Union[tuple(accepted)])  # noqa: UP007  # a union of types known only now
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"INPUT is not what the workflow starts with, {kinds}: {error}.") from error
