"""Every script in examples/ runs in an empty folder and prints its expected output."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parsing import parse

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


def run(*arguments: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in this folder, without the variables of the caller's shell that change its behaviour."""
    unwanted = ("PYTHON", "PYTEST", "PERDURE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**environment, "PYTHONUTF8": "1", **more},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_runs_and_prints_its_expected_output(script: Path, tmp_path: Path) -> None:
    done = run(str(script), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    expected = EXAMPLES / "expected" / f"{script.stem}.txt"
    if expected.exists():
        assert done.stdout == expected.read_text(encoding="utf-8")
    assert done.stdout, "an example prints something"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_docstring_describes_it_and_names_its_command(script: Path) -> None:
    docstring = ast.get_docstring(parse(script.read_text(encoding="utf-8"))) or ""
    assert len(docstring.splitlines()[0]) > 40, "the first line names what the example shows"
    assert f"python examples/{script.name}" in docstring


def test_example_of_tests_passes_with_pytest(tmp_path: Path) -> None:
    script = EXAMPLES / "testing_your_workflow.py"
    options = ("-q", "-p", "no:cacheprovider", "-p", "perdure.testing.plugin", "-c", os.devnull, "--noconftest")
    done = run("-m", "pytest", *options, str(script), folder=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_every_expected_output_belongs_to_an_example() -> None:
    expected = {file.stem for file in (EXAMPLES / "expected").glob("*.txt")}
    assert expected <= {script.stem for script in SCRIPTS}
