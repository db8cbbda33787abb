"""The command `perdure`. A user's mistake ends with one sentence and exit code 1 or 2, never with a stack trace."""

from __future__ import annotations

import importlib
import io
import keyword
import sys

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

import perdure
from perdure.errors import PerdureError

COMMANDS = {
    "demo": "commands.demo",
    "init": "commands.init",
    **dict.fromkeys(("run", "resume", "answer"), "commands.run"),
    **dict.fromkeys(("requests", "threads", "show"), "commands.threads"),
    **dict.fromkeys(("state", "diff", "fork", "rewind", "pin", "unpin"), "commands.checkpoint"),
    "prune": "commands.upkeep",
    **dict.fromkeys(("export", "import", "transfer"), "commands.transfer"),
    "verify": "commands.upkeep",
    **dict.fromkeys(("serve", "keys"), "commands.serve"),
    "doctor": "commands.doctor",
    "rekey": "commands.upkeep",
    "workflows": "commands.workflows",
    "completion": "main",
}
"""Each command's module, in the order in which users meet the commands. The function has the command's name."""


class Commands(click.Group):
    """Loads only the command that is called: one that lists threads needs no engine."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(importlib.import_module(f"perdure.cli.{COMMANDS[cmd_name]}"), name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(perdure.__version__, prog_name="perdure")
def commands() -> None:
    """Durable agent workflows: they survive crashes, restarts and people who answer tomorrow."""


VARIABLE = "_PERDURE_COMPLETE"
"""The variable that click reads when the shell asks for completions."""
SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", metavar="SHELL", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the script with which SHELL (bash, zsh or fish) completes commands, options and ids.

    \b
    bash:  perdure completion bash > ~/.local/share/bash-completion/completions/perdure
    zsh:   perdure completion zsh > a folder of $fpath/_perdure
    fish:  perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    script = SHELLS[shell](commands, {}, "perdure", VARIABLE)
    click.echo(ShellComplete.source(script))  # that of BashComplete would run bash, to complain of an old one


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows few characters is no reason to fail
    try:
        commands(prog_name="perdure")
    except (PerdureError, OSError) as problem:
        from perdure.cli.errors import explain
        from perdure.cli.values import make_printable

        click.echo(f"Error: {make_printable(explain(problem))}", err=True)
        sys.exit(1)
