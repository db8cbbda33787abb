"""`perdure completion`: the scripts, and the words that Tab proposes."""

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
def press_tab(call: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return the words that the command proposes to a shell after these words. The last word is incomplete."""

    def complete(*words: str, store: str = STORE) -> list[str]:
        monkeypatch.setenv("_PERDURE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("perdure", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = call(store=store)
        monkeypatch.delenv("_PERDURE_COMPLETE")
        assert (done.returncode, done.stderr) == (0, "")
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    return complete


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _perdure_completion perdure"),
        ("zsh", "#compdef perdure"),
        ("fish", "complete --no-files --command perdure"),
    ],
)
def test_completion_prints_the_script_of_the_shell(shell: str, line: str, call: Call) -> None:
    done = call("completion", shell, store=None)
    assert (done.returncode, done.stderr) == (0, "")
    assert line in done.stdout
    assert "_PERDURE_COMPLETE" in done.stdout


def test_completion_rejects_another_shell(call: Call) -> None:
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'." in refusal(call("completion", "tcsh"), 2)


def test_bash_completes_with_the_script(call: Call, folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None, "the machine that runs the tests has bash"
    (folder / "script").write_text(call("completion", "bash", store=None).stdout)
    asked = "source ./script; COMP_WORDS=(perdure th); COMP_CWORD=1; _perdure_completion perdure; echo ${COMPREPLY[@]}"
    path = environment(PATH=f"{COMMAND.parent}:/usr/bin:/bin")
    done = subprocess.run(
        [bash, "-c", asked], cwd=folder, env=path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("threads\n", "")


def test_tab_proposes_commands_threads_and_checkpoints(
    press_tab: Callable[..., list[str]], call: Call, ids: list[str]
) -> None:
    assert set(press_tab("")) == set(COMMANDS)
    assert press_tab("show", "r-") == ["r-2", "r-1"]
    assert press_tab("rewind", "r-1", "") == ids[::-1]
    assert press_tab("state", ids[1][:-2]) == [ids[1]]
    assert call("transfer", "threads.db", "file:other").returncode == 0
    assert press_tab("show", "--store", "file:other", "r-1", store="sqlite:///not-there.db") == ["r-1"]
    assert press_tab("prune", "--thread", "", store="file:other") == ["r-2", "r-1"]


def test_tab_proposes_names_of_definitions(press_tab: Callable[..., list[str]], call: Call, folder: Path) -> None:
    (folder / "clerk.py").write_text(
        "from perdure.testing import ScriptedAgent\nclerk = ScriptedAgent('clerk', ['Hi.'])\n"
    )
    document = '{"name": "%s", "agents": {"a": {"agent": "clerk:clerk"}}}'
    for name in ("greeting", "guide", "story"):
        (folder / f"{name}.json").write_text(document % name)
        assert call("workflows", "save", f"{name}.json").returncode == 0
    assert sorted(press_tab("workflows", "show", "g")) == ["greeting", "guide"]


def test_tab_without_a_readable_store_proposes_and_prints_nothing(
    press_tab: Callable[..., list[str]], folder: Path
) -> None:
    assert press_tab("show", "", store="sqlite:///not-there.db") == []
    assert press_tab("show", "", store="nonsense") == []
    (folder / "wrong.db").write_bytes(b"this is no database, whatever its name says" * 100)
    assert press_tab("show", "", store="wrong.db") == []
