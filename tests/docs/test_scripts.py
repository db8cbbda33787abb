"""Programs that a page shows under a file name do what its console blocks show, killed ones included."""

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
"""What a shell says of a process that was ended with SIGKILL."""


def commands_of(text: str) -> Iterator[tuple[list[str], str]]:
    """The arguments of each `python ...` on a page, with what it prints."""
    for console in CONSOLE.finditer(text):
        for found in COMMAND.finditer(console["block"]):
            yield found["arguments"].split("#")[0].split(), found["printed"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_shows_of_its_program_is_what_happens(page: Path, tmp_path: Path) -> None:
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
            env={**environment, "PYTHONUNBUFFERED": "1"},  # at a terminal each line is out before the process dies
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if expected.endswith(KILLED) else 0), done.stderr
        assert done.stdout == expected.removesuffix(KILLED)


def test_commands_are_found_with_what_they_print() -> None:
    page = "```console\n$ make demo\nno\n$ python a.py b  # why\none\ntwo\n$ python c.py\nKilled\n```\n$ python d.py\n"
    assert list(commands_of(page)) == [(["a.py", "b"], "one\ntwo\n"), (["c.py"], "Killed\n")]
