"""The command `holdfast`. A user's mistake ends with one sentence and exit code 1 or 2, never with a stack trace."""

from __future__ import annotations

import sys

import click

import holdfast
from holdfast.cli.demo import demo
from holdfast.errors import HoldfastError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def commands() -> None:
    """Durable agent workflows: they survive crashes, restarts and people who answer tomorrow."""


commands.add_command(demo)


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    try:
        commands()
    except HoldfastError as problem:
        click.echo(f"Error: {problem}", err=True)
        sys.exit(1)
