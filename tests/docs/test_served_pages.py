"""`perdure init`, `perdure serve` and every curl command of a page print what the page shows."""

from __future__ import annotations

import doctest
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.command import COMMAND, environment
from tests.server.serving import Server
from tests.server.steps import printed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "how-to" / "serve" / "serve-a-project.md"]
CONSOLE = re.compile(r"^```console\n(?P<block>.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)


class Typed(NamedTuple):
    command: str
    shown: str


def typed_on(text: str) -> Iterator[Typed]:
    """The commands that serve a project on a page. Commands joined by && are separate."""
    for console in CONSOLE.finditer(text):
        if not re.search(r"^\$ .*\b(perdure serve|curl)\b", console["block"], re.MULTILINE):
            continue
        for match in TYPED.finditer(console["block"]):
            *before, last = match["command"].split(" && ")
            yield from (Typed(command, "") for command in before)
            yield Typed(last, match["shown"])


class Terminals:
    """A terminal for the server, and another for all other commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: Server | None = None

    def run(self, command: str) -> str:
        """The output of a command. Raises AssertionError for a command that no page may have."""
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return ""
        if command == "perdure serve":
            self.server = Server(self.folder).start()
            return self.server.log.replace(self.server.url, "http://127.0.0.1:8000")
        if command.startswith("curl "):
            assert self.server is not None
            return printed(command, self.server)
        assert command.startswith("perdure init "), command
        return subprocess.run(
            [COMMAND, *command.split()[1:]],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_project_of_a_page_is_created_served_and_called_as_shown(page: Path, tmp_path: Path) -> None:
    commands = list(typed_on(page.read_text(encoding="utf-8")))
    assert sum(typed.command.startswith("curl ") for typed in commands) >= 5  # the page has all three steps
    terminals = Terminals(tmp_path)
    try:
        for command, shown in commands:
            output = terminals.run(command)
            assert not shown or is_as_shown(shown, output), f"{command}\nprints\n{output}\nnot\n{shown}"
    finally:
        if terminals.server is not None:
            terminals.server.kill()


def is_as_shown(shown: str, output: str) -> bool:
    """Whether the output matches the page. `...` stands for any text."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, output, flags)


def test_commands_of_a_page_have_their_output() -> None:
    page = "```console\n$ a && perdure serve\nServing\n$ curl x \\\n  -d y\n{}\n```\n```console\n$ make\n```\n"
    assert list(typed_on(page)) == [("a", ""), ("perdure serve", "Serving\n"), ("curl x \\\n  -d y", "{}\n")]
