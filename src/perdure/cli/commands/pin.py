"""`perdure pin`: keep a checkpoint, whatever is pruned."""

from __future__ import annotations

import asyncio

import click
import msgspec

from perdure.cli.options.checkpoint import checkpoint_argument, find_checkpoint
from perdure.cli.options.store import existing_store, json_option, store_option
from perdure.cli.output.checkpoint import checkpoint_tree
from perdure.cli.output.tables import print_folded, print_json
from perdure.cli.output.values import make_printable
from perdure.records import CheckpointInfo


@click.command(short_help="Protect a checkpoint from pruning.")
@checkpoint_argument("checkpoint")
@json_option
@store_option
def pin(checkpoint: str, as_json: bool, store: str | None) -> None:
    """Keep CHECKPOINT, whatever retention and `perdure prune` say. Pinning it again changes nothing."""
    print_pin(asyncio.run(set_pin(store, checkpoint, pinned=True)), as_json=as_json)


async def set_pin(store: str | None, named: str, *, pinned: bool) -> CheckpointInfo:
    async with existing_store(store) as storage:
        info = await find_checkpoint(storage, named)
        await (storage.pin(info) if pinned else storage.unpin(info))
        return msgspec.structs.replace(info, is_pinned=pinned)


def print_pin(info: CheckpointInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(checkpoint_tree(info))
        return
    note = "pinned: pruning keeps it" if info.is_pinned else "no longer pinned: pruning may remove it"
    print_folded(
        f"{make_printable(info.checkpoint_id)} (commit {info.number} of {make_printable(info.thread_id)}) is {note}."
    )


# ---------------------------------------------------------------- unpin


@click.command(short_help="Allow pruning of a checkpoint.")
@checkpoint_argument("checkpoint")
@json_option
@store_option
def unpin(checkpoint: str, as_json: bool, store: str | None) -> None:
    """Let CHECKPOINT go like any other, when retention or `perdure prune` say so."""
    print_pin(asyncio.run(set_pin(store, checkpoint, pinned=False)), as_json=as_json)
