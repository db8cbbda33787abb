"""`perdure unpin`: let a checkpoint go like any other."""

from __future__ import annotations

import asyncio

import click

from perdure.cli.choosing import checkpoint_argument
from perdure.cli.pin import set_pin, tell_pin
from perdure.cli.places import json_option, store_option


@click.command(short_help="Let a checkpoint go like any other.")
@checkpoint_argument("checkpoint")
@json_option
@store_option
def unpin(checkpoint: str, as_json: bool, store: str | None) -> None:
    """Let CHECKPOINT go like any other, when retention or `perdure prune` say so."""
    tell_pin(asyncio.run(set_pin(store, checkpoint, pinned=False)), as_json=as_json)
