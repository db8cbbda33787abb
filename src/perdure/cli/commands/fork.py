"""`perdure fork`: a new thread that begins with what a checkpoint holds, edited if need be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from perdure.cli.options.checkpoint import checkpoint_argument, find_checkpoint
from perdure.cli.options.store import StoreLocation, existing_store, json_option, store_option
from perdure.cli.output.checkpoint import checkpoint_tree
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import print_folded, print_json
from perdure.cli.output.values import make_printable
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import InvalidRun, UnreadableValue
from perdure.records import CheckpointInfo


@click.command(short_help="Start a new thread from a checkpoint.")
@checkpoint_argument("checkpoint")
@click.option("--thread", "thread_id", metavar="ID", help="The new thread; one with an id of its own if left out.")
@click.option("--set", "changes", metavar="KEY=JSON", multiple=True, help="Another value of a key of the state.")
@click.option("--remove", "removed", metavar="KEY", multiple=True, help="A key of the state to leave out.")
@json_option
@store_option
def fork(
    checkpoint: str,
    thread_id: str | None,
    changes: Sequence[str],
    removed: Sequence[str],
    as_json: bool,
    store: str | None,
) -> None:
    """Begin a new thread with all that CHECKPOINT holds. Nothing is run, and the thread that it is of is not touched.

    A value that is set has to have the type of the one before it. It is JSON, and values of other types have the form
    in which `perdure state CHECKPOINT --key KEY --json` shows them.
    """
    if thread_id == "":
        raise click.UsageError("--thread: an id has at least one character.")
    update = dict(map(_parse_change, changes))
    both = [key for key in removed if key in update]
    if both:
        raise click.UsageError(f"--set and --remove both name {both[0]!r}: give it a value, or remove it.")
    source, forked = asyncio.run(_fork(store, checkpoint, thread_id, update, removed))
    if as_json:
        print_json(checkpoint_tree(forked))
        return
    print_folded(
        f"Thread {make_printable(forked.thread_id)} begins with checkpoint {make_printable(source.checkpoint_id)}, "
        f"commit {source.number} of {make_printable(source.thread_id)}."
    )
    click.echo(f"Continue with: {StoreLocation('APP', forked.thread_id, store).resume()}")


def _parse_change(text_pair: str) -> tuple[str, Any]:
    """Raises UsageError for what is not KEY=JSON."""
    key, equals, text = text_pair.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--set: expected KEY=JSON, such as 'limit=50', got {text_pair!r}.")
    try:
        return key, JsonCodec(lenient=True).decode(json.loads(text), f"the value of {key!r}")
    except ValueError as error:
        hint = f""" A text is JSON, too, in quotes: --set '{key}="{text}"'.""" if text.isalpha() else ""
        raise click.UsageError(f"--set: the value of {key!r} is not valid JSON: {error}.{hint}") from error
    except UnreadableValue as error:
        raise click.UsageError(f"--set: {error}") from error


async def _fork(
    store: str | None, named: str, thread_id: str | None, update: dict[str, Any], removed: Sequence[str]
) -> tuple[CheckpointInfo, CheckpointInfo]:
    async with existing_store(store) as storage:
        source = await find_checkpoint(storage, named)
        try:
            return source, await storage.fork(source, thread_id=thread_id, update_state=update, remove_state=removed)
        except InvalidRun as error:
            raise Mistake(str(error).replace("remove_state", "--remove").replace("update_state", "--set")) from error
