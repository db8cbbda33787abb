"""The history of a thread as a graph: a line for each checkpoint, newest first, folded where a terminal is narrow."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

from perdure.checkpoints.history import Branches
from perdure.cli.readable import printable
from perdure.cli.tables import near
from perdure.records import CheckpointInfo


def print_graph(branches: Branches) -> None:
    rows = list(branches.rows())
    for place, (drawn, info) in enumerate(rows, 1):
        if info is None:
            click.echo(drawn)
        else:
            _print_row(f"{drawn} ", _described(info, branches), is_last=place == len(rows))


def _print_row(drawn: str, text: str, *, is_last: bool) -> None:
    lines = [text]
    if sys.stdout.isatty():
        lines = textwrap.wrap(text, max(8, shutil.get_terminal_size().columns - len(drawn)), break_on_hyphens=False)
    beside = " " * len(drawn) if is_last else drawn.replace("*", "|")
    for number, line in enumerate(lines):
        click.echo(f"{beside if number else drawn}{line}")


def _described(info: CheckpointInfo, branches: Branches) -> str:
    said = printable(f"{info.checkpoint_id}  commit {info.number}, {near(info.timestamp)}, {info.status}")
    notes = notes_on(info, branches)
    return f"{said} ({printable(notes)})" if notes else said


def notes_on(info: CheckpointInfo, branches: Branches) -> str:
    """What is special about it: head, pinned, forked from another thread."""
    origin = next((one.forked_from for one in branches if one.checkpoints[0] is info), None)
    notes = {"head": info is branches.head, "pinned": info.is_pinned, f"forked from {origin}": origin is not None}
    return ", ".join(note for note, is_so in notes.items() if is_so)
