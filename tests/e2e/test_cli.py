"""The command `perdure` itself, and what a mistake on the command line comes to: a sentence and an exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.e2e.command import perdure
from tests.e2e.conftest import Call, Ended, Told

import perdure as package


def refusal(done: Ended, code: int) -> str:
    """The sentence of a command that failed as it should: nothing on stdout."""
    assert (done.returncode, done.stdout) == (code, "")
    return re.split("^Error: ", done.stderr, flags=re.MULTILINE)[-1]


def test_the_version_is_that_of_the_package() -> None:
    assert perdure("--version").stdout == f"perdure, version {package.__version__}\n"


def test_help_lists_every_command_in_the_order_in_which_one_meets_them() -> None:
    listed = perdure("--help").stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == [
        *("demo", "init", "run", "resume", "answer", "requests", "threads", "show"),
        *("state", "diff", "fork", "rewind", "pin", "unpin"),
        *(
            "prune",
            "export",
            "import",
            "transfer",
            "verify",
            "serve",
            "keys",
            "doctor",
            "rekey",
            "workflows",
            "completion",
        ),
    ]


def test_a_mistake_of_a_process_is_one_sentence_and_no_stack_trace() -> None:
    done = perdure("demo", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: No such option '--nonsense'.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["demo", "more"], "unexpected extra argument"),
        (
            ["run", "office"],
            "APP is a module and a name in it, such as 'app:workflow', a document, such as 'workflow.ya",
        ),
        (["run", "office:"], "APP is a module and a name in it, such as 'app:workflow'; got 'office:'."),
        (["run", "office.py:build"], "APP names a module, not a file: try 'office:build'"),
        (["run", "office:build"], "INPUT is missing: the workflow starts with str."),
        (["run", "office:refunds", "text"], "the workflow starts with Refund: give JSON and --json-input."),
        (["run", "office:refunds", "{", "--json-input"], "INPUT is not valid JSON"),
        (["run", "office:refunds", '{"customer": "Ada"}', "--json-input"], "missing required field `amount`"),
        (["run", "office:build", "text", "--thread", ""], "an id has at least one character"),
        (["run", "office:build", "text", "--durability", "none"], "'none' is not one of"),
        (["answer", "t", "r", "yes"], "perdure answer t r yes --app APP"),
        (["threads", "--store", "somewhere"], "'somewhere' does not name a store."),
        (["threads", "--store", "memory:"], "what is kept in memory is gone when the command ends"),
        (["threads", "--limit", "0"], "--limit"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(
    arguments: list[str], sentence: str, call: Call, folder: Path
) -> None:
    assert sentence in refusal(call(*arguments), 2)
    assert not list(folder.glob("threads.db*"))


@pytest.mark.parametrize(
    ("app", "sentence"),
    [
        ("ofice:build", "There is no module 'ofice' here or on Python's path (did you mean 'office'?)."),
        ("office:biuld", "'office' has no 'biuld' (did you mean 'build'?)."),
        ("office:nothing", "'office' has no 'nothing'. Its workflows: 'refunds', 'titles', 'kept', 'desk'."),
        ("office:Refund", "'office:Refund' is not a workflow but a type."),
        ("office:build_later", "'office:build_later' is not a workflow but a coroutine."),
        ("wrong:flow", "Importing 'wrong' failed: NameError: name 'nothing' is not defined ("),
        ("needy:flow", "Importing 'needy' failed: ModuleNotFoundError: No module named 'not_there' ("),
        ("exits:flow", "Importing 'exits' failed: SystemExit: 3 ("),
        ("asks:build", "Calling 'asks:build' without arguments failed: TypeError: build() missing 1 required"),
    ],
)
def test_an_app_that_cannot_be_had_ends_with_1_and_says_why(app: str, sentence: str, call: Call, folder: Path) -> None:
    (folder / "wrong.py").write_text("\nflow = nothing\n")
    (folder / "needy.py").write_text("import not_there\n")
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "asks.py").write_text("def build(storage): ...\n")
    assert refusal(call("run", app, "text"), 1).startswith(sentence)


@pytest.mark.parametrize("arguments", [["threads"], ["run", "office:build", "text"]])
def test_without_a_store_a_command_says_how_to_name_one(arguments: list[str], call: Call) -> None:
    said = refusal(call(*arguments, store=None), 1)
    assert "there is no perdure.db in this folder. Name one with --store URL or PERDURE_STORE=URL" in said


def test_a_store_that_is_not_there_is_not_made_by_looking(call: Call, folder: Path) -> None:
    assert refusal(call("threads"), 1) == f"There is no store at '{folder / 'threads.db'}'.\n"
    assert not (folder / "threads.db").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["threads"],
        ["requests"],
        ["show", "t"],
        ["run", "office:build", "text"],
        ["resume", "office:build", "t"],
        ["answer", "t", "r", "5", "--app", "office:build"],
        ["state", "t"],
        ["diff", "t"],
        ["fork", "t"],
        ["rewind", "t", "c", "--yes"],
        ["pin", "t"],
        ["unpin", "t"],
        ["prune", "--keep", "1", "--yes"],
        ["export", "t", "file"],
        ["transfer", "threads.db", "file:other"],
    ],
)
def test_a_damaged_store_is_named(command: list[str], call: Call, folder: Path) -> None:
    (folder / "threads.db").write_bytes(b"this is no database, whatever its name says" * 100)
    said = refusal(call(*command), 1)
    assert said.startswith(f"The store '{folder / 'threads.db'}' cannot be read: file is not a database.")


def test_a_thread_request_or_workflow_that_is_not_there_is_named_and_the_right_one_guessed(
    call: Call, told: Told
) -> None:
    assert call("run", "office:titles", "tides", "--thread", "monday").returncode == 0
    for arguments in (["show", "mondy"], ["resume", "office:titles", "mondy"]):
        said = refusal(call(*arguments), 1)
        assert said.startswith("There is no thread 'mondy' in this store (did you mean 'monday'?).")
    said = refusal(call("answer", "monday", "titel", "x", "--app", "office:titles"), 1)
    assert said.startswith("Thread 'monday' has no request 'titel' (did you mean 'title'?). Pending: 'title'.")
    said = refusal(call("resume", "office:build", "monday"), 1)
    assert said.endswith("Nothing was changed. Is APP the workflow of this thread?\n")
    assert told("show", "monday")["number"] == 2
