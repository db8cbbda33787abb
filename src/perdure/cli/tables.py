"""The output of commands: tables that fit the terminal, plain columns anywhere else, JSON for machines, amounts."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec

from perdure.cli.values import make_printable
from perdure.events import WorkflowRunState
from perdure.records import ThreadInfo

Rows = Sequence[Sequence[str]]

TEXT = 24
"""Characters that the last column of a table needs at least, to be folded; otherwise each row becomes several lines."""


def print_table(headers: Sequence[str], rows: Rows) -> None:
    """In a terminal the table fits the width: the last column is folded, or each row becomes several lines.

    In a file or a pipe each row is one line of any length.
    """
    cleaned = [[" ".join(make_printable(cell).split()) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = _widths(headers, cleaned)
        for row in (headers, *cleaned):
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    used = [index for index in range(len(headers)) if any(row[index] for row in cleaned)]
    shown, cells = [headers[index] for index in used], [[row[index] for index in used] for row in cleaned]
    *widths, last = _widths(shown, cells)
    if sum(widths) + 2 * len(widths) + min(last, TEXT) > shutil.get_terminal_size().columns:
        for number, row in enumerate(cells):
            if number:
                click.echo()
            print_facts([*zip(shown, row, strict=True)])
    else:
        _print_folded(shown, cells)


def _widths(headers: Sequence[str], rows: Rows) -> list[int]:
    return [max(map(len, column)) for column in zip(headers, *rows, strict=True)]


def _print_folded(headers: Sequence[str], rows: Rows) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True, header_style="bold")
    for header in headers[:-1]:
        table.add_column(header, no_wrap=True)
    table.add_column(headers[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: stored values may look like markup
    Console(highlight=False, emoji=False).print(table)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and values, without empty values."""
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        if value:
            lines = fold(make_printable(value), name.ljust(width), " " * width)
            click.echo(f"{click.style(lines[:width], bold=True)}{lines[width:]}")


def print_folded(text: str, indent: int = 0, **style: Any) -> None:
    """A line that is folded in a terminal, and itself anywhere else."""
    click.secho(fold(text, rest=" " * indent), **style)


def fold(text: str, first: str = "", rest: str = "") -> str:
    """The text after `first`, as lines of a terminal that begin with `rest`; without a terminal one line."""
    if not sys.stdout.isatty():
        return first + text
    width = max(shutil.get_terminal_size().columns, len(rest) + 8)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return "\n".join(lines) or first + text


def print_json(tree: Any) -> None:
    """ASCII only, so that no terminal or pipe can spoil it."""
    click.echo(json.dumps(tree, indent=2))


def print_result(tree: Any, sentence: str, *, as_json: bool) -> None:
    """The result of a command: for machines as JSON, for people as a sentence."""
    if as_json:
        print_json(tree)
    else:
        print_folded(make_printable(sentence))


def print_list(trees: list[Any], headers: Sequence[str], rows: Rows, *, as_json: bool, nothing: str) -> None:
    """Items for machines as JSON, for people as a table. `nothing`: the sentence where no item exists."""
    if as_json:
        print_json(trees)
    elif not trees:
        click.echo(nothing)
    else:
        print_table(headers, rows)


def format_time(at: datetime | str | None) -> str:
    """A time for people: local, to the second."""
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return "" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_age(at: datetime | str | None) -> str:
    """A time in a table: how long ago in a terminal, where there is little room; itself elsewhere."""
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    if time is None or not sys.stdout.isatty():
        return format_time(time)
    seconds = round((time - datetime.now(UTC)).total_seconds())
    size, unit = next((size, unit) for size, unit in _UNITS if abs(seconds) >= size or size == 1)
    amount = f"{abs(seconds) // size} {unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def iso_time(at: datetime | None) -> str | None:
    """A time for machines."""
    return None if at is None else at.isoformat()


STATUS_WORDS = {
    WorkflowRunState.IDLE: "idle",
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS: "waiting",
    WorkflowRunState.FAILED: "failed",
    WorkflowRunState.CANCELLED: "cancelled",
}


def thread_status(thread: ThreadInfo) -> str:
    """running: a run owns it. interrupted: no run owns it, and the last run did not end. Otherwise how the last run
    ended: idle (nothing is due or asked), waiting (for answers), failed, cancelled."""
    if thread.run_id is not None:
        return "running"
    return STATUS_WORDS.get(WorkflowRunState(thread.status), "interrupted") if thread.status else "new"


def thread_tree(thread: ThreadInfo) -> dict[str, Any]:
    fields = msgspec.structs.asdict(thread)
    return {**fields, "standing": thread_status(thread), "due_at": iso_time(thread.due_at)}


ReportProgress = Callable[..., None]
"""Called with the amount that is done, the whole amount, and further details."""


@contextmanager
def progress_bar(what: str) -> Iterator[ReportProgress]:
    """On stderr, as long as the block lasts. It leaves nothing on the screen."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, expand=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=None)

        yield lambda done, total, *_: bar.update(task, completed=done, total=total)


_UNITS_OF_DURATIONS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_FORM = re.compile(rf"(\d+)([{''.join(_UNITS_OF_DURATIONS)}])", re.ASCII)


def parse_duration(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """The callback of an option that takes a whole number and a unit. Raises BadParameter for anything else."""
    if value is None:
        return None
    match = _FORM.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not a duration: a whole number and a unit, such as 30d, 12h, 45m or 90s.", context, parameter
        )
    try:
        return timedelta(**{_UNITS_OF_DURATIONS[match[2]]: int(match[1])})
    except (OverflowError, ValueError) as error:
        raise click.BadParameter(f"{value!r} is longer than a duration can be.", context, parameter) from error
