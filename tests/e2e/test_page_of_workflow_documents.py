"""The page about workflow documents: the test uses its files unchanged, and its commands print what it shows.

The test kills one command with SIGKILL while the tool of an agent runs. `PERDURE_RECORD=1` records the page again, as
for the other pages about the command line.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.following import blocks_of
from tests.e2e.command import COMMAND, needs_pseudo_terminals
from tests.e2e.recording import Recorder, replayed

from perdure.agent_workflow.builder.workflow import AgentWorkflow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "agents" / "run-a-workflow-document.md"
AT_WORK = "looking at the tide table"


def shown(language: str) -> list[str]:
    return [block.code for block in blocks_of(PAGE) if block.language == language]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page."""
    (tmp_path / "story.yaml").write_text(shown("yaml")[0], encoding="utf-8")
    (tmp_path / "team.py").write_text(shown("python")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "team", raising=False)
    return tmp_path


class KillingRecorder(Recorder):
    """A recorder that kills the slow command once its tool runs."""

    def run(self, command: str) -> str:
        if not command.startswith("LOOKING_SECONDS="):
            return super().run(command)
        variable, _, rest = command.partition(" ")
        name, _, value = variable.partition("=")
        with subprocess.Popen(
            ["/bin/sh", "-c", f"exec {rest.replace('perdure', str(COMMAND), 1)}"],
            cwd=self._folder,
            env={**self._variables, name: value},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            printed = []
            try:
                for line in process.stdout:
                    printed.append(line)
                    if AT_WORK in line:
                        break
            finally:
                process.send_signal(signal.SIGKILL)
            printed += process.stdout
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        return "".join([*printed, "Killed\n"])  # as an interactive shell prints it


@needs_pseudo_terminals
def test_document_of_the_page_runs_is_killed_and_resumes_as_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = PAGE.read_text(encoding="utf-8")
    try:
        now = replayed(written, KillingRecorder(folder, monkeypatch))
        if os.environ.get("PERDURE_RECORD"):
            PAGE.write_text(now, encoding="utf-8")
        else:
            assert now == written
        run_awaiting(shown("python")[1])
    finally:
        sys.modules.pop("team", None)
    calls = re.findall(r'"agent": "(\w+)", "kind": "(\w+)"', (folder / "calls.log").read_text())
    first = calls[: len(calls) - 8]  # two more executions, of four each
    assert first.count(("writer", "model")) == 1
    assert (first.count(("checker", "model")), first.count(("checker", "tool"))) == (2, 2)


def run_awaiting(block: str) -> None:
    """Run a block that awaits at its top level."""
    code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert code.co_flags & inspect.CO_COROUTINE
    coroutine: Any = eval(code, {})  # the code of the page
    asyncio.run(coroutine)


@pytest.mark.parametrize("block", range(len(shown("yaml"))))
def test_each_document_of_the_page_is_valid(block: int, tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(shown("yaml")[block], encoding="utf-8")
    AgentWorkflow.from_config(tmp_path / "shown.yaml")
