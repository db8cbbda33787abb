"""The pages about the command line: their console blocks show real output, and they name every option.

The blocks are recorded runs. After a change, `PERDURE_RECORD=1 pytest tests/e2e/test_pages_of_the_command_line.py`
writes the current output of the commands into the pages. Read the difference before you commit it. To add a command,
write a line that begins with `$`, and record. Ids and times are the same in every run, so a command can use an id that
an earlier command printed. The recorder answers each `[y/N]` with y. `...` stands for any text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.e2e.command import needs_pseudo_terminals
from tests.e2e.recording import Recorder, replayed, steps_of

from perdure.cli.main import COMMANDS, commands

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = DOCS / "how-to" / "operate" / "run-from-the-command-line.md"
REFERENCE = DOCS / "reference" / "cli.md"
PAGES = [HOW_TO, REFERENCE]


def module_of_the_page() -> str:
    [module] = re.findall(r"^```python\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(module)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the pages."""
    (tmp_path / "office.py").write_text(module_of_the_page(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "office", raising=False)
    return tmp_path


@needs_pseudo_terminals
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_console_blocks_of_a_page_show_real_output(page: Path, office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = page.read_text(encoding="utf-8")
    try:
        now = replayed(written, Recorder(office, monkeypatch))
    finally:
        for module in ("office", "clerk"):
            sys.modules.pop(module, None)
    if os.environ.get("PERDURE_RECORD"):
        page.write_text(now, encoding="utf-8")
    else:
        assert now == written


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Each command with its name. The name of a command of a group has two words."""
    context = click.Context(commands)
    for name in COMMANDS:
        command = commands.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {word}", member) for word, member in command.commands.items())
        else:
            yield name, command


EVERY = dict(every_command())


def test_reference_shows_a_run_of_every_command() -> None:
    shown = " ".join(step.command for step in steps_of(REFERENCE.read_text(encoding="utf-8")))
    assert [name for name in EVERY if f"perdure {name} " not in f"{shown} "] == ["demo"], (
        "the demo prints its own explanation"
    )


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"demo", "completion"}))
def test_every_command_has_a_json_option(name: str) -> None:
    assert "--json" in {option for parameter in EVERY[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", EVERY)
def test_reference_names_exactly_the_arguments_and_options(name: str) -> None:
    command = EVERY[name]
    sections = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [mine] = [section for section in sections if section.startswith(f"`{name}`")]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert options - {"--store"} == set(re.findall(r"`(--[a-z-]+)", mine)) - {"--store"}
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert f"`{parameter.make_metavar(click.Context(command)).strip('[]')}`" in mine
