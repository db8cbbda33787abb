"""`perdure state`: all that is in one checkpoint, or the value of one key."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.cli.options.checkpoint import checkpoint_argument, find_checkpoint
from perdure.cli.options.store import existing_store, json_option, store_option
from perdure.cli.output.checkpoint import (
    checkpoint_tree,
    contents_tree,
    print_contents,
    print_depths,
    print_facts,
    print_questions,
    question_tree,
)
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import format_time, print_json
from perdure.cli.output.values import to_full_lines, to_tree
from perdure.errors import did_you_mean
from perdure.records import CheckpointInfo


@click.command(short_help="Show all that is in a checkpoint.")
@checkpoint_argument("checkpoint")
@click.option("--key", metavar="KEY", help="Only the value of this key of the state, all of it.")
@json_option
@store_option
def state(checkpoint: str, key: str | None, as_json: bool, store: str | None) -> None:
    """Show all that is in CHECKPOINT: state, requests, outputs, and due deliveries.

    CHECKPOINT is its id, the beginning of it, or a thread's id: its newest one then.
    """
    info, contents = asyncio.run(_read(store, checkpoint))
    if key is not None:
        value = _value(contents, key)
        if as_json:
            print_json(to_tree(value))
        else:
            click.echo("\n".join(to_full_lines(value)))
    elif as_json:
        print_json(_tree(info, contents))
    else:
        _print(info, contents)


async def _read(store: str | None, named: str) -> tuple[CheckpointInfo, WorkflowCheckpoint]:
    async with existing_store(store) as storage:
        info = await find_checkpoint(storage, named)
        return info, await storage.load(info)


def _value(checkpoint: WorkflowCheckpoint, key: str) -> Any:
    if key not in checkpoint.state:
        keys = ", ".join(map(repr, checkpoint.state)) or "none"
        guess = did_you_mean(key, checkpoint.state)
        raise Mistake(f"The state of {checkpoint.checkpoint_id!r} has no key {key!r}{guess}. Its keys: {keys}.")
    return checkpoint.state[key]


def _tree(info: CheckpointInfo, checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    return {
        **checkpoint_tree(info),
        "requests": [question_tree(event) for event in checkpoint.pending_request_info_events.values()],
        **contents_tree(checkpoint),
    }


def _print(info: CheckpointInfo, checkpoint: WorkflowCheckpoint) -> None:
    print_facts(
        {
            "checkpoint": info.checkpoint_id,
            "thread": info.thread_id,
            "workflow": info.workflow_name,
            "made": f"{format_time(info.timestamp)}, by commit {info.number}, after superstep {info.iteration_count}",
            "status": info.status,
            "follows": info.previous_checkpoint_id or "",
            "pinned": "yes" if info.is_pinned else "",
        }
    )
    print_questions(checkpoint)
    print_contents(checkpoint)
    print_depths(checkpoint)
