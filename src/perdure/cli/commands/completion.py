"""`perdure completion`: the script with which a shell completes commands, options and ids."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

VARIABLE = "_PERDURE_COMPLETE"
"""What click looks for when the shell asks for completions."""
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
    from perdure.cli.main import commands

    script = SHELLS[shell](commands, {}, "perdure", VARIABLE)
    click.echo(ShellComplete.source(script))  # that of BashComplete would run bash, to complain of an old one
