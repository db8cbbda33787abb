"""A folder with workflows, as a user of the command line has it, and the command in this process."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.e2e.command import STORE
from tests.e2e.terminal import Screen, Shown, in_this_terminal

from perdure.cli.main import main

OFFICE = Path(__file__).with_name("office.py")


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Call: TypeAlias = Callable[..., Ended]
CallJson: TypeAlias = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(OFFICE, tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def made_threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two threads: `r-1` is answered (entry, question, answer, end), `r-2` waits for its answer."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copy(OFFICE, folder)
    refund = '{"customer": "Bob", "amount": 12}'
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv("PERDURE_STORE", STORE)
        for arguments in (
            ["run", "office:refunds", refund, "--json-input", "--thread", "r-1"],
            ["answer", "r-1", "refund", '{"approved": true}', "--app", "office:refunds"],
            ["run", "office:refunds", refund, "--json-input", "--thread", "r-2"],
        ):
            patch.setattr(sys, "argv", ["perdure", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 0
    forget_modules(folder)
    return folder


def forget_modules(folder: Path) -> None:
    for name in [name for name, module in sys.modules.items() if str(folder) in str(module)]:
        del sys.modules[name]  # the next test has a file with the same name


@pytest.fixture
def ids(made_threads: Path, folder: Path, call_json: CallJson) -> list[str]:
    """The checkpoints of `r-1`, oldest first, in a store of the test's own."""
    for file in made_threads.glob("threads.db*"):
        shutil.copy(file, folder)
    return [str(checkpoint["checkpoint_id"]) for checkpoint in call_json("show", "r-1")["checkpoints"]]


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `perdure` in this process, which is quicker than a new one. Its working folder is `folder`."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run_main(*arguments: str, store: str | None = STORE) -> Ended:
        monkeypatch.setattr(sys, "argv", ["perdure", *arguments])
        monkeypatch.delenv("PERDURE_STORE", raising=False)
        if store is not None:
            monkeypatch.setenv("PERDURE_STORE", store)
        with pytest.raises(SystemExit) as ended:
            main()
        forget_modules(folder)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, printed.out, printed.err)

    return run_main


@pytest.fixture
def call_json(call: Call) -> CallJson:
    """Run a command with `--json` and return what it prints. Asserts exit code 0 and an empty stderr."""

    def run_json(*arguments: str, **options: Any) -> Any:
        done = call(*arguments, "--json", **options)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run_json


@pytest.fixture
def screen(call: Call, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Run `perdure` at a terminal, in this process. The fixture `call` sets the working folder."""
    if sys.platform == "win32":
        pytest.skip("Windows has no pseudo-terminals")

    def run_at_terminal(*arguments: str, columns: int = 80, answer: str = "y", store: str = STORE) -> Shown:
        return in_this_terminal(monkeypatch, [*arguments], columns, answer, PERDURE_STORE=store)

    return run_at_terminal
