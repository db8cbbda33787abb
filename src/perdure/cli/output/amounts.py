"""How far long work is: a bar at a terminal, nothing anywhere else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

# ---------------------------------------------------------------- amounts


def format_count(number: int, what: str) -> str:
    """`1 thread`, `3 threads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def format_size(count: int) -> str:
    if abs(count) < 1024:
        return format_count(count, "byte")
    amount, units = count / 1024, ["KB", "MB", "GB", "TB"]
    while abs(amount) >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.1f} {units[0]}"


ReportProgress = Callable[[int, int], None]
"""Called with the amount that is done, and with the whole amount."""


@contextmanager
def progress_bar(what: str) -> Iterator[ReportProgress]:
    """On stderr, as long as the block lasts. It leaves nothing on the screen."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
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

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


# ---------------------------------------------------------------- durations


_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_FORM = re.compile(rf"(\d+)([{''.join(_UNITS)}])", re.ASCII)


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
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except (OverflowError, ValueError) as error:
        raise click.BadParameter(f"{value!r} is longer than a duration can be.", context, parameter) from error
