"""The command `holdfast`. A user's mistake ends with one sentence and exit code 1 or 2, never with a stack trace."""

from __future__ import annotations

import io
import sys

import click

import holdfast
from holdfast.cli.answer import answer
from holdfast.cli.demo import demo
from holdfast.cli.mistakes import explained
from holdfast.cli.readable import printable
from holdfast.cli.requests import requests
from holdfast.cli.resume import resume
from holdfast.cli.run import run
from holdfast.cli.show import show
from holdfast.cli.threads import threads
from holdfast.errors import HoldfastError


class InOrder(click.Group):
    """Lists its commands as they are added: first what starts something."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def commands() -> None:
    """Durable agent workflows: they survive crashes, restarts and people who answer tomorrow."""


for command in (demo, run, resume, answer, requests, threads, show):
    commands.add_command(command)


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows few characters is no reason to fail
    try:
        commands()
    except (HoldfastError, OSError) as problem:
        click.echo(f"Error: {printable(explained(problem))}", err=True)
        sys.exit(1)
