"""A folder with workflows in it, as somebody who uses the command line has one, and the command in this process."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.e2e.command import STORE

from holdfast.cli.main import main

OFFICE = Path(__file__).with_name("office.py")


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Call: TypeAlias = Callable[..., Ended]
Told: TypeAlias = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(OFFICE, tmp_path)
    return tmp_path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`holdfast` without a process of its own, which is quicker. It sees the folder as a process there would."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run_main(*arguments: str, store: str | None = STORE) -> Ended:
        monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        monkeypatch.delenv("HOLDFAST_STORE", raising=False)
        if store is not None:
            monkeypatch.setenv("HOLDFAST_STORE", store)
        with pytest.raises(SystemExit) as ended:
            main()
        for name in [name for name, module in sys.modules.items() if str(folder) in str(module)]:
            del sys.modules[name]  # the next test has a file of this name too
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, printed.out, printed.err)

    return run_main


@pytest.fixture
def told(call: Call) -> Told:
    """What `--json` prints; the command must end well and say nothing else."""

    def run_json(*arguments: str, **options: Any) -> Any:
        done = call(*arguments, "--json", **options)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run_json
