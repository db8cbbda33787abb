"""The command `perdure` itself. An error on the command line prints a sentence and sets the exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.e2e.command import perdure
from tests.e2e.conftest import Call, CallJson, Ended

import perdure as package


def refusal(done: Ended, code: int) -> str:
    """The error of a command that failed with this code and an empty stdout."""
    assert (done.returncode, done.stdout) == (code, "")
    return re.split("^Error: ", done.stderr, flags=re.MULTILINE)[-1]


def test_version_option_prints_the_version_of_the_package() -> None:
    assert perdure("--version").stdout == f"perdure, version {package.__version__}\n"


def test_help_lists_every_command_in_order_of_use() -> None:
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


def test_usage_error_of_a_process_prints_a_sentence_and_no_stack_trace() -> None:
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
        (["run", "office:refunds", "text"], "the workflow starts with Refund: pass JSON and --json-input."),
        (["run", "office:refunds", "{", "--json-input"], "INPUT is not valid JSON"),
        (["run", "office:refunds", '{"customer": "Ada"}', "--json-input"], "missing required field `amount`"),
        (["run", "office:build", "text", "--thread", ""], "an id has at least one character"),
        (["run", "office:build", "text", "--durability", "none"], "'none' is not one of"),
        (["answer", "t", "r", "yes"], "perdure answer t r yes --app APP"),
        (["threads", "--store", "somewhere"], "'somewhere' does not name a store."),
        (["threads", "--store", "memory:"], "a store in memory ends with the command"),
        (["threads", "--limit", "0"], "--limit"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_right_usage(
    arguments: list[str], sentence: str, call: Call, folder: Path
) -> None:
    assert sentence in refusal(call(*arguments), 2)
    assert not list(folder.glob("threads.db*"))


@pytest.mark.parametrize(
    ("app", "sentence"),
    [
        ("ofice:build", "'ofice:build' cannot be imported: no module 'ofice' exists in "),
        (
            "office:biuld",
            "'office:biuld' cannot be imported: the module 'office' has no 'biuld' (did you mean 'build'?",
        ),
        (
            "office:nothing",
            "'office:nothing' cannot be imported: the module 'office' has no 'nothing'. Its workflows: 'refunds', ",
        ),
        ("office:Refund", "'office:Refund' is the class Refund, not an object of it. perdure runs a Workflow, "),
        (
            "office:build_later",
            "'office:build_later' is an async function. Make it synchronous: no event loop runs yet.",
        ),
        ("wrong:flow", "'wrong:flow' cannot be imported: NameError: name 'nothing' is not defined ("),
        ("needy:flow", "'needy:flow' cannot be imported: ModuleNotFoundError: No module named 'not_there' ("),
        ("exits:flow", "'exits:flow' cannot be imported: SystemExit: 3 ("),
        (
            "asks:build",
            "'asks:build' is a function that needs arguments: missing a required argument: 'storage'.",
        ),
    ],
)
def test_app_that_cannot_be_loaded_exits_1_and_names_the_reason(
    app: str, sentence: str, call: Call, folder: Path
) -> None:
    (folder / "wrong.py").write_text("\nflow = nothing\n")
    (folder / "needy.py").write_text("import not_there\n")
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "asks.py").write_text("def build(storage): ...\n")
    assert refusal(call("run", app, "text"), 1).startswith(sentence)


@pytest.mark.parametrize("arguments", [["threads"], ["run", "office:build", "text"]])
def test_command_without_a_store_explains_how_to_name_it(arguments: list[str], call: Call) -> None:
    error = refusal(call(*arguments, store=None), 1)
    assert "this folder has no perdure.db. Name a store with --store URL or PERDURE_STORE=URL" in error


def test_reading_a_missing_store_does_not_create_it(call: Call, folder: Path) -> None:
    assert refusal(call("threads"), 1) == f"No store exists at '{folder / 'threads.db'}'.\n"
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
def test_error_names_a_damaged_store(command: list[str], call: Call, folder: Path) -> None:
    (folder / "threads.db").write_bytes(b"this is no database, whatever its name says" * 100)
    error = refusal(call(*command), 1)
    assert error.startswith(f"The store '{folder / 'threads.db'}' cannot be read: file is not a database.")


def test_unknown_thread_request_or_wrong_workflow_error_has_a_hint(call: Call, call_json: CallJson) -> None:
    assert call("run", "office:titles", "tides", "--thread", "monday").returncode == 0
    for arguments in (["show", "mondy"], ["resume", "office:titles", "mondy"]):
        error = refusal(call(*arguments), 1)
        assert error.startswith("No thread 'mondy' exists in this store (did you mean 'monday'?).")
    error = refusal(call("answer", "monday", "titel", "x", "--app", "office:titles"), 1)
    assert "Thread 'monday' has no request 'titel' (did you mean 'title'?). Pending: 'title'." in error
    error = refusal(call("resume", "office:build", "monday"), 1)
    assert error.endswith("Nothing was changed. Is APP the workflow of this thread?\n")
    assert call_json("show", "monday")["number"] == 2
