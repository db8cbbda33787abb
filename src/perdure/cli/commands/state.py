"""`perdure state` and `diff`: what is in a checkpoint, and what differs between two."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import click

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.options import checkpoint_argument, find_checkpoint, store_command
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
from perdure.cli.output.tables import format_time, print_folded, print_json
from perdure.cli.output.values import make_printable, shorten, to_full_lines, to_tree, tree_to_line
from perdure.errors import did_you_mean
from perdure.records import CheckpointInfo

if TYPE_CHECKING:
    from perdure.checkpoints.history.diff import Change, CheckpointDiff


@click.command(short_help="Show all that is in a checkpoint.")
@checkpoint_argument("checkpoint")
@click.option("--key", metavar="KEY", help="Only the value of this key of the state, all of it.")
@store_command
async def state(storage: StoreCheckpointStorage, checkpoint: str, key: str | None, as_json: bool) -> None:
    """Show all that is in CHECKPOINT: state, requests, outputs, and due deliveries.

    CHECKPOINT is its id, the beginning of it, or a thread's id: its newest one then.
    """
    info = await find_checkpoint(storage, checkpoint)
    contents = await storage.load(info)
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


# ---------------------------------------------------------------- diff


VALUE = 200
"""Characters of a value; `--json` has all of it."""
CONTEXT = 20
"""Characters that are shown before the place where two long texts part."""
COLOURS = {"added": "green", "removed": "red", "changed": "yellow"}


@click.command(short_help="Show what differs between two checkpoints.")
@checkpoint_argument("before", "A")
@checkpoint_argument("after", "[B]", required=False)
@store_command
async def diff(storage: StoreCheckpointStorage, before: str, after: str | None, as_json: bool) -> None:
    """Show what differs from checkpoint A to checkpoint B; of A alone, what it changed of the one before it.

    Both are ids, the beginnings of ids, or ids of threads: their newest checkpoints then. They may be on different
    branches, or of different threads.
    """
    difference = await _compare(storage, before, after)
    if as_json:
        print_json(difference.to_dict())
        return
    for change in difference:
        _print_change(change)
    if difference.is_empty:
        click.echo("There is no difference.")


async def _compare(storage: StoreCheckpointStorage, before: str, after: str | None) -> CheckpointDiff:
    first = await find_checkpoint(storage, before)
    if after is not None:
        return await storage.diff(first, await find_checkpoint(storage, after))
    if first.previous_checkpoint_id is None:
        raise Mistake(
            f"Checkpoint {first.checkpoint_id!r} is the first of thread {first.thread_id!r}: there is none before it. "
            "Name the one to compare it with."
        )
    return await storage.diff(first.previous_checkpoint_id, first)


def _print_change(change: Change) -> None:
    path, old, new = make_printable(change.path), change.old_tree, change.new_tree
    if change.kind == "added":
        line = f"+ {path} = {_format_value(new)}"
    elif change.kind == "removed":
        line = f"- {path} = {_format_value(old)}"
    else:
        common = _common_prefix(old, new)
        line = f"~ {path}: {_format_value(old, common)} -> {_format_value(new, common)}"
    print_folded(line, 4, fg=COLOURS[change.kind])


def _common_prefix(old: Any, new: Any) -> int:
    """How many characters two texts begin with alike, but for a few; 0 if they can be shown as they are."""
    if not isinstance(old, str) or not isinstance(new, str) or max(len(old), len(new)) <= VALUE:
        return 0
    same = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
    return max(0, sum(1 for _ in same) - CONTEXT)


def _format_value(tree: Any, alike: int = 0) -> str:
    return f"...{shorten(tree_to_line(tree[alike:]), VALUE)}" if alike else shorten(tree_to_line(tree), VALUE)
