"""`holdfast completion`: the script with which a shell completes commands, options and ids."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

VARIABLE = "_HOLDFAST_COMPLETE"
"""What click looks for when the shell asks for completions."""
SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(short_help="Print the script that lets a shell complete.")
@click.argument("shell", metavar="SHELL", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the script with which SHELL (bash, zsh or fish) completes commands, options and ids.

    \b
    bash:  holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
    zsh:   holdfast completion zsh > a folder of $fpath/_holdfast
    fish:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from holdfast.cli.main import commands

    script = SHELLS[shell](commands, {}, "holdfast", VARIABLE)
    click.echo(ShellComplete.source(script))  # that of BashComplete would run bash, to complain of an old one
