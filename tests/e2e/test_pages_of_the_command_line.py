"""The pages about the command line: what their console blocks show is what happens, and no option is left out."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.e2e.command import COMMAND, environment

from holdfast.cli.main import COMMANDS, commands

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = DOCS / "how-to" / "run-from-the-command-line.md"
REFERENCE = DOCS / "reference" / "cli.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with what it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def test_what_the_how_to_shows_is_what_happens(tmp_path: Path) -> None:
    [module] = blocks(HOW_TO, "python")
    (tmp_path / "office.py").write_text(module, encoding="utf-8")
    variables = environment(PATH=f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}")
    for command, expected in [one for block in blocks(HOW_TO, "console") for one in commands_of(block)]:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            variables[name] = value
            continue
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=20,
        )
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, done.stdout, flags), f"$ {command}\n{done.stdout}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_in_the_reference_and_no_other(name: str) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    section = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [mine] = [one for one in section if one.startswith(f"`{name}`")]
    options = {option for one in command.params for option in one.opts if option.startswith("--")}
    assert options - {"--store"} == set(re.findall(r"`(--[a-z-]+)", mine)) - {"--store"}
    for one in command.params:
        if isinstance(one, click.Argument):
            assert f"`{one.make_metavar(click.Context(command)).strip('[]')}`" in mine
