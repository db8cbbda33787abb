"""What cannot be undone is asked for first: at a terminal with a question, elsewhere with `--yes`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from perdure.cli.output.errors import Mistake

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def yes_option(command: Decorated) -> Decorated:
    return click.option("--yes", is_flag=True, help="Do not ask; needed without a terminal.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Returns after a yes. Raises UsageError without a terminal, and Mistake if the answer is no.

    The question goes to stderr: stdout is for what the command has to say.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This needs a confirmation and no terminal is attached: add --yes. Nothing was done.")
    if not click.confirm(question, default=False, err=True):
        raise Mistake("Not confirmed. Nothing was done.")
