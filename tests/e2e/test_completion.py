"""`perdure completion`: the scripts, and what a shell is told when Tab is pressed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.command import COMMAND, STORE, environment
from tests.e2e.conftest import Call
from tests.e2e.test_cli import refusal

from perdure.cli.main import COMMANDS


@pytest.fixture
def proposed(call: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What the command says to a shell in which these words were typed; the last one is not ended."""

    def press_tab(*words: str, store: str = STORE) -> list[str]:
        monkeypatch.setenv("_PERDURE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("perdure", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = call(store=store)
        monkeypatch.delenv("_PERDURE_COMPLETE")
        assert (done.returncode, done.stderr) == (0, "")
        return [one.partition(",")[2] for one in done.stdout.splitlines() if one]

    return press_tab


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _perdure_completion perdure"),
        ("zsh", "#compdef perdure"),
        ("fish", "complete --no-files --command perdure"),
    ],
)
def test_the_script_of_a_shell_is_printed(shell: str, line: str, call: Call) -> None:
    done = call("completion", shell, store=None)
    assert (done.returncode, done.stderr) == (0, "")
    assert line in done.stdout
    assert "_PERDURE_COMPLETE" in done.stdout


def test_another_shell_is_refused(call: Call) -> None:
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'." in refusal(call("completion", "tcsh"), 2)


def test_bash_takes_the_script_and_completes_with_it(call: Call, folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None, "the machine that runs the tests has bash"
    (folder / "script").write_text(call("completion", "bash", store=None).stdout)
    asked = "source ./script; COMP_WORDS=(perdure th); COMP_CWORD=1; _perdure_completion perdure; echo ${COMPREPLY[@]}"
    path = environment(PATH=f"{COMMAND.parent}:/usr/bin:/bin")
    done = subprocess.run(
        [bash, "-c", asked], cwd=folder, env=path, capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.stdout, done.stderr) == ("threads\n", "")


def test_commands_threads_and_checkpoints_are_proposed(
    proposed: Callable[..., list[str]], call: Call, ids: list[str]
) -> None:
    assert set(proposed("")) == set(COMMANDS)
    assert proposed("show", "r-") == ["r-2", "r-1"]
    assert proposed("rewind", "r-1", "") == ids[::-1]
    assert proposed("state", ids[1][:-2]) == [ids[1]]
    assert call("transfer", "threads.db", "file:other").returncode == 0
    assert proposed("show", "--store", "file:other", "r-1", store="sqlite:///not-there.db") == ["r-1"]
    assert proposed("prune", "--thread", "", store="file:other") == ["r-2", "r-1"]


def test_names_of_definitions_are_proposed(proposed: Callable[..., list[str]], call: Call, folder: Path) -> None:
    (folder / "clerk.py").write_text(
        "from perdure.testing import ScriptedAgent\nclerk = ScriptedAgent('clerk', ['Hi.'])\n"
    )
    document = '{"name": "%s", "agents": {"a": {"agent": "clerk:clerk"}}}'
    for name in ("greeting", "guide", "story"):
        (folder / f"{name}.json").write_text(document % name)
        assert call("workflows", "save", f"{name}.json").returncode == 0
    assert sorted(proposed("workflows", "show", "g")) == ["greeting", "guide"]


def test_where_there_is_no_store_nothing_is_proposed_and_nothing_is_said(
    proposed: Callable[..., list[str]], folder: Path
) -> None:
    assert proposed("show", "", store="sqlite:///not-there.db") == []
    assert proposed("show", "", store="nonsense") == []
    (folder / "wrong.db").write_bytes(b"this is no database, whatever its name says" * 100)
    assert proposed("show", "", store="wrong.db") == []
