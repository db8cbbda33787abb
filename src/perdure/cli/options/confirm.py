"""What cannot be undone is asked for first: at a terminal with a question, elsewhere with `--yes`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from perdure.cli.output.errors import Mistake

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def yes_option(command: Decorated) -> Decorated:
    return click.option("--yes", is_flag=True, help="Do not ask; needed where nobody is at a terminal.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Returns if it may be done. Raises UsageError where nobody can be asked, and Mistake if the answer is no.

    The question goes to stderr: stdout is for what the command has to say.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "Nobody is at a terminal who could be asked: say --yes if it is meant. Nothing was done."
        )
    if not click.confirm(question, default=False, err=True):
        raise Mistake("Not confirmed. Nothing was done.")
