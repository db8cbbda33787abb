"""`perdure export`, `import`, `transfer` and `verify` move threads between stores, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.command import COMMAND, environment, needs_pseudo_terminals, perdure, read_or_end, running
from tests.e2e.conftest import Call, CallJson
from tests.e2e.terminal import Screen
from tests.e2e.test_cli import refusal
from tests.e2e.test_run_and_answer import WORK
from tests.e2e.threads import answer, ask, checkpoints_of, damage

FILES = "file:files"


def history_of(call_json: CallJson, thread_id: str, **options: Any) -> Any:
    return call_json("show", thread_id, "--events", **options)


def test_exported_thread_is_equal_in_another_store_and_continues_there(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    done = call("export", "r-2", "r-2.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Thread r-2 is in r-2.jsonl: 2 commits, 2 checkpoints, ")
    brought = call("import", "r-2.jsonl", store=FILES)
    assert brought.stdout == "Imported thread r-2 of workflow refunds: commit 2, waiting.\n"
    assert history_of(call_json, "r-2", store=FILES) == history_of(call_json, "r-2")
    answer(call, "r-2", store=FILES)


def test_import_gives_a_thread_another_id(call: Call, call_json: CallJson, ids: list[str]) -> None:
    assert call_json("export", "r-1", "r-1.jsonl")["checkpoints"] == 4
    made = call_json("import", "r-1.jsonl", "--thread", "r-1b")
    assert (made["thread_id"], made["number"], made["standing"]) == ("r-1b", 4, "idle")
    assert call_json("state", "r-1b")["outputs"] == call_json("state", "r-1")["outputs"]
    assert not set(ids) & set(checkpoints_of(call_json, "r-1b"))


def test_export_replaces_a_file_only_with_overwrite(call: Call, ids: list[str], folder: Path) -> None:
    (folder / "notes").write_text("mine")
    error = refusal(call("export", "r-1", "notes"), 1)
    assert error == "File 'notes' exists already and was not overwritten. Name another, or add --overwrite.\n"
    assert (folder / "notes").read_text() == "mine"
    assert call("export", "r-1", "notes", "--overwrite").returncode == 0
    assert '"perdure thread"' in (folder / "notes").read_text()


def test_import_does_not_replace_an_existing_thread(call: Call, call_json: CallJson, ids: list[str]) -> None:
    call("export", "r-1", "r-1.jsonl")
    for options in ([], ["--thread", "r-2"]):
        error = refusal(call("import", "r-1.jsonl", *options), 1)
        assert "was not added: the store has a thread with that id. Nothing was changed. Use --thread ID." in error
    assert checkpoints_of(call_json, "r-1") == ids


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: data.replace(b"Bob", b"Eve", 1), "is damaged: its content does not match its checksum"),
        (lambda data: data[: len(data) // 2], "was cut off"),
        (lambda data: b"", "it is empty"),
        (lambda data: b"{}\n", "it is not a file that export_thread wrote"),
        (lambda data: data + data, "something follows line"),
    ],
)
def test_import_rejects_a_damaged_or_foreign_file(
    spoil: Any, reason: str, call: Call, call_json: CallJson, ids: list[str], folder: Path
) -> None:
    call("export", "r-1", "r-1.jsonl")
    file = folder / "r-1.jsonl"
    file.write_bytes(spoil(file.read_bytes()))
    error = refusal(call("import", "r-1.jsonl", "--thread", "new"), 1)
    assert error.startswith("'r-1.jsonl' cannot be imported: ")
    assert reason in error
    assert [thread["thread_id"] for thread in call_json("threads")] == ["r-1", "r-2"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["import", "nowhere.jsonl"], 2, "'nowhere.jsonl' does not exist."),
        (["import", "."], 2, "is a directory."),
        (["import", "office.py", "--thread", ""], 2, "--thread: an id has at least one character."),
        (["export", "r-1", "."], 2, "is a directory."),
        (["export", "r-3", "out"], 1, "No thread 'r-3' exists in this store (did you mean 'r-2'?)."),
        (["export", "r-1", "no/folder/out"], 1, "The folder of the exported file does not exist"),
        (["transfer", "threads.db"], 2, "Missing argument 'DST_URL'"),
        (["transfer", "threads.db", "nothing"], 2, "DST_URL: 'nothing' does not name a store."),
        (["transfer", "memory:", "file:x"], 2, "SRC_URL: a store in memory ends with the command."),
        (["transfer", "threads.db", "sqlite:///./threads.db"], 2, "SRC_URL and DST_URL are the same store."),
        (["transfer", "other.db", "file:x"], 1, "No store exists at"),
        (["transfer", "threads.db", "file:x", "--thread", "r-3"], 1, "No thread 'r-3' exists in this store"),
        (["verify", "sqlite:///other.db"], 1, "No store exists at"),
        (["verify", "nothing"], 2, "'nothing' does not name a store."),
        (["verify", "--thread", "r-3"], 1, "No thread 'r-3' exists in this store (did you mean 'r-2'?)."),
    ],
)
def test_wrong_arguments_report_an_error_and_create_no_file(
    arguments: list[str], code: int, sentence: str, call: Call, ids: list[str], folder: Path
) -> None:
    assert sentence in refusal(call(*arguments), code)
    assert not [path for path in folder.iterdir() if path.name in ("x", "out", "other.db", "nothing")]


# ---------------------------------------------------------------- transfer


def test_transfer_copies_all_threads_to_another_store_and_is_repeatable(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    done = call("transfer", "threads.db", FILES, store=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "copied         2 threads\n", "")
    assert [history_of(call_json, thread_id, store=FILES) for thread_id in ("r-1", "r-2")] == [
        history_of(call_json, thread_id) for thread_id in ("r-1", "r-2")
    ]
    ask(call, "r-3")
    again = call_json("transfer", "threads.db", FILES)
    assert again == {"copied": ["r-3"], "already_there": ["r-1", "r-2"], "conflicts": [], "failed": []}
    assert call("transfer", "threads.db", FILES).stdout.splitlines()[1] == "already there  3 threads"
    assert call_json("transfer", FILES, "back.db")["copied"] == ["r-1", "r-2", "r-3"]
    assert history_of(call_json, "r-2", store="back.db") == history_of(call_json, "r-2")


def test_transfer_copies_only_selected_threads(call: Call, call_json: CallJson, ids: list[str]) -> None:
    assert call_json("transfer", "threads.db", FILES, "--thread", "r-2")["copied"] == ["r-2"]
    call("run", "office:build", "a text", "--thread", "w")
    assert call_json("transfer", "threads.db", FILES, "--workflow", "works")["copied"] == ["w"]


def test_transfer_reports_conflicts_and_damage_and_copies_the_others(
    call: Call, call_json: CallJson, ids: list[str], folder: Path
) -> None:
    for thread_id, customer in (("r-2", "Sue"), ("sound", "Bob"), ("broken", "Eve")):
        ask(call, thread_id, customer, store=FILES)
    damage(folder / "files")
    done = call("transfer", FILES, "threads.db")
    assert (done.returncode, done.stderr) == (1, "")
    counts, _, rows = done.stdout.partition("\n\n")
    assert counts.splitlines() == ["copied         1 thread", "conflicts      1 thread", "damaged        1 thread"]
    headers, conflict, damaged = rows.splitlines()
    assert headers.split() == ["NOT", "COPIED", "WHY"]
    assert conflict.startswith("r-2         in conflict  the target has another thread of that id")
    assert damaged.startswith("broken      damaged      Checkpoint '")
    assert [thread["thread_id"] for thread in call_json("threads")] == ["r-1", "r-2", "sound"]
    reported = call("transfer", FILES, "threads.db", "--json")
    assert reported.returncode == 1
    assert [conflict["thread_id"] for conflict in json.loads(reported.stdout)["conflicts"]] == ["r-2"]


@needs_pseudo_terminals
def test_interrupted_transfer_completes_when_it_runs_again(call_json: CallJson, ids: list[str], folder: Path) -> None:
    call_json("transfer", "threads.db", "other.db", "--thread", "r-1")
    screen, terminal = os.openpty()
    with closing(sqlite3.connect(folder / "other.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")  # so that the transfer cannot end
        with subprocess.Popen(
            [COMMAND, "transfer", "threads.db", "other.db"], cwd=folder, env=environment(TERM="xterm"), stderr=terminal
        ) as process:
            os.close(terminal)
            shown = b""
            while b"copying threads" not in shown:
                shown += os.read(screen, 1000)
            process.send_signal(signal.SIGINT)
            holder.execute("ROLLBACK")
            while part := read_or_end(screen):
                shown += part
    os.close(screen)
    assert process.returncode == 130
    assert b"Interrupted. Copied threads stay; run the same command again to continue." in shown
    again = call_json("transfer", "threads.db", "other.db")
    assert sorted([*again["copied"], *again["already_there"]]) == ["r-1", "r-2"]
    assert history_of(call_json, "r-2", store="other.db") == history_of(call_json, "r-2")


def test_running_thread_is_exported_and_copied_at_its_last_checkpoint(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    (folder / "hold").touch()
    with running(*WORK, folder=folder, until="work: runs") as process:
        assert call_json("export", "t", "t.jsonl")["checkpoints"] == 2
        assert call_json("transfer", "threads.db", FILES)["copied"] == ["t"]
        process.send_signal(signal.SIGKILL)
    (folder / "hold").unlink()
    assert call_json("import", "t.jsonl", "--thread", "again")["standing"] == "interrupted"
    for store, thread_id in ((FILES, "t"), ("threads.db", "again")):
        assert "worked on A TEXT" in call("resume", "office:build", thread_id, store=store).stdout


# ---------------------------------------------------------------- verify


def test_verify_takes_the_store_from_variable_argument_or_option(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    for arguments in (["verify"], ["verify", "threads.db"], ["verify", "--store", "threads.db"]):
        done = call(*arguments)
        assert (done.returncode, done.stdout) == (0, "2 threads checked: no damage.\n")
    assert call_json("verify", "--thread", "r-1") == {"threads": 1, "damage": []}


def test_verify_lists_all_damage_with_thread_and_checkpoint(call: Call, call_json: CallJson, folder: Path) -> None:
    for thread_id, customer in (("sound", "Bob"), ("broken", "Eve"), ("torn", "Sue")):
        ask(call, thread_id, customer, store=FILES)
    known = {thread_id: checkpoints_of(call_json, thread_id, store=FILES) for thread_id in ("broken", "torn")}
    damage(folder / "files")
    damage(folder / "files", b"Sue", b"Ann")
    done = call("verify", FILES)
    assert (done.returncode, done.stderr) == (1, "")
    headers, *rows, total = done.stdout.splitlines()
    assert headers.split() == ["THREAD", "CHECKPOINT", "DAMAGE"]
    assert {row.split()[0] for row in rows} == {"broken", "torn"}
    reported = json.loads(call("verify", FILES, "--json").stdout)
    assert total == f"3 threads checked: {len(reported['damage'])} problems."
    assert (reported["threads"], len(rows)) == (3, len(reported["damage"]))
    for thread_id, checkpoints in known.items():
        problems = [problem for problem in reported["damage"] if problem["thread_id"] == thread_id]
        assert checkpoints[1] in {problem["checkpoint_id"] for problem in problems}
        assert all(problem["reason"] in done.stdout for problem in problems)
    assert call("verify", FILES, "--thread", "sound").returncode == 0


def test_verify_reports_a_file_that_is_not_a_store(folder: Path) -> None:
    (folder / "threads.db").write_bytes(b"this is no database, whatever its name says" * 100)
    done = perdure("verify", folder=folder)
    assert done.returncode == 1
    assert "file is not a database" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- at a terminal


def test_long_commands_show_a_progress_bar_and_remove_it_at_the_end(screen: Screen, ids: list[str]) -> None:
    for columns in (40, 80):
        for arguments in (["transfer", "threads.db", f"file:at-{columns}"], ["verify"], ["prune", "--keep", "9"]):
            shown = screen(*arguments, columns=columns)
            assert "2/2" in shown.raw
            assert "2/2" not in shown.text
            assert (shown.returncode, shown.width <= columns) == (0, True)
