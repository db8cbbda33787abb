"""Programs with a file name on a page print what its console blocks show, also if they are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = re.compile(r"^<!-- file: (?P<name>\S+\.py) -->\n```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(?P<block>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ python (?P<arguments>.*)\n(?P<printed>(?:(?!\$ ).*\n)*)", re.MULTILINE)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if SCRIPT.search(page.read_text(encoding="utf-8"))
]
KILLED = "Killed\n"
"""The message of a shell for a process that SIGKILL ended."""


def commands_of(text: str) -> Iterator[tuple[list[str], str]]:
    """The arguments of each `python ...` on a page, with its output."""
    for console in CONSOLE.finditer(text):
        for match in COMMAND.finditer(console["block"]):
            yield match["arguments"].split("#")[0].split(), match["printed"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_program_of_a_page_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for script in SCRIPT.finditer(text):
        (tmp_path / script["name"]).write_text(script["code"], encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERDURE"))}
    shown = list(commands_of(text))
    assert shown
    for arguments, expected in shown:
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=tmp_path,
            env={**environment, "PYTHONUNBUFFERED": "1"},  # so that each line is written before the process dies
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if expected.endswith(KILLED) else 0), done.stderr
        assert done.stdout == expected.removesuffix(KILLED)


def test_commands_of_a_page_have_arguments_and_output() -> None:
    page = "```console\n$ make demo\nno\n$ python a.py b  # why\none\ntwo\n$ python c.py\nKilled\n```\n$ python d.py\n"
    assert list(commands_of(page)) == [(["a.py", "b"], "one\ntwo\n"), (["c.py"], "Killed\n")]
