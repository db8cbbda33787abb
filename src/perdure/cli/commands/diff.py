"""`perdure diff`: what differs between two checkpoints."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.options.checkpoint import checkpoint_argument, find_checkpoint
from perdure.cli.options.store import existing_store, json_option, store_option
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import print_folded, print_json
from perdure.cli.output.values import make_printable, shorten, tree_to_line

if TYPE_CHECKING:
    from perdure.checkpoints.history.diff import Change, CheckpointDiff


VALUE = 200
"""Characters of a value; `--json` has all of it."""
CONTEXT = 20
"""Characters that are shown before the place where two long texts part."""
COLOURS = {"added": "green", "removed": "red", "changed": "yellow"}


@click.command(short_help="Show what differs between two checkpoints.")
@checkpoint_argument("before", "A")
@checkpoint_argument("after", "[B]", required=False)
@json_option
@store_option
def diff(before: str, after: str | None, as_json: bool, store: str | None) -> None:
    """Show what differs from checkpoint A to checkpoint B; of A alone, what it changed of the one before it.

    Both are ids, the beginnings of ids, or ids of threads: their newest checkpoints then. They may be on different
    branches, or of different threads.
    """
    difference = asyncio.run(_compare(store, before, after))
    if as_json:
        print_json(difference.to_dict())
        return
    for change in difference:
        _print(change)
    if difference.is_empty:
        click.echo("There is no difference.")


async def _compare(store: str | None, before: str, after: str | None) -> CheckpointDiff:
    async with existing_store(store) as storage:
        first = await find_checkpoint(storage, before)
        if after is not None:
            return await storage.diff(first, await find_checkpoint(storage, after))
        if first.previous_checkpoint_id is None:
            raise Mistake(
                f"Checkpoint {first.checkpoint_id!r} is the first of thread {first.thread_id!r}: there is none before "
                "it. Name the one to compare it with."
            )
        return await storage.diff(first.previous_checkpoint_id, first)


def _print(change: Change) -> None:
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
