"""The pages about the command line: what their console blocks show is what happens, and no option is left out.

The blocks are recorded runs. After a change, `PERDURE_RECORD=1 pytest tests/e2e/test_pages_of_the_command_line.py`
writes into the pages what the commands print now; read the difference before it is committed. To add a command, write
its line beginning with `$` and record. Ids and times are made the same in every run, so a later command can use an id
that an earlier one printed; `[y/N]` is always answered with y; `...` stands for anything.
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


def the_module() -> str:
    [module] = re.findall(r"^```python\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(module)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the pages are about."""
    (tmp_path / "office.py").write_text(the_module(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "office", raising=False)
    return tmp_path


@needs_pseudo_terminals
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(page: Path, office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """With those of a group by two words."""
    context = click.Context(commands)
    for name in COMMANDS:
        command = commands.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {word}", one) for word, one in command.commands.items())
        else:
            yield name, command


EVERY = dict(every_command())


def test_every_command_is_shown_at_work_in_the_reference() -> None:
    shown = " ".join(step.command for step in steps_of(REFERENCE.read_text(encoding="utf-8")))
    assert [name for name in EVERY if f"perdure {name} " not in f"{shown} "] == ["demo"], "demo shows itself"


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"demo", "completion"}))
def test_every_command_that_tells_something_of_a_store_tells_it_as_json_too(name: str) -> None:
    assert "--json" in {option for parameter in EVERY[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", EVERY)
def test_every_argument_and_option_is_in_the_reference_and_no_other(name: str) -> None:
    command = EVERY[name]
    section = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [mine] = [one for one in section if one.startswith(f"`{name}`")]
    options = {option for one in command.params for option in one.opts if option.startswith("--")}
    assert options - {"--store"} == set(re.findall(r"`(--[a-z-]+)", mine)) - {"--store"}
    for one in command.params:
        if isinstance(one, click.Argument):
            assert f"`{one.make_metavar(click.Context(command)).strip('[]')}`" in mine
