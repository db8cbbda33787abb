"""`perdure doctor` of a SQLite file and of a folder: its findings, and that it changes no file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.command import running
from tests.e2e.conftest import Call, CallJson, Ended
from tests.e2e.terminal import Screen
from tests.e2e.test_cli import refusal

from perdure import AesGcm
from perdure.platform import try_lock_file

FILES = "file:files"


def marks(done: Ended, code: int = 0) -> dict[str, str]:
    """The mark of each check."""
    assert (done.returncode, done.stderr) == (code, ""), done
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["MARK", "CHECK", "FOUND"]
    start, end = header.index("CHECK"), header.index("FOUND")
    return {row[start:end].strip(): row.split()[0] for row in rows if row.startswith(("ok ", "warn ", "fail "))}


def finding_of(report: Any, check: str) -> Any:
    [finding] = [finding for finding in report["findings"] if finding["check"] == check]
    return finding


def file_hashes(folder: Path) -> dict[str, str]:
    """The hash of each file of a folder, by its path."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def files(call: Call, ids: list[str], folder: Path) -> Path:
    """The threads of `ids` in a file store."""
    assert call("transfer", "sqlite:///threads.db", FILES).returncode == 0
    return folder / "files"


def test_healthy_sqlite_store_has_only_ok_marks_and_stays_unchanged(
    call: Call, call_json: CallJson, ids: list[str], folder: Path
) -> None:
    before = file_hashes(folder)
    done = call("doctor")
    assert done.stdout.endswith("\n8 checks: all is well.\n")
    assert set(marks(done).values()) == {"ok"}
    tree = call_json("doctor", "sqlite:///threads.db", store=None)
    assert (tree["kind"], tree["is_well"], tree["store"]) == ("sqlite", True, str(folder / "threads.db"))
    assert (tree["file"]["version"], tree["file"]["journal_mode"], tree["file"]["is_locked"]) == (1, "wal", False)
    contents = tree["file"]["contents"]
    assert (contents["threads"], contents["checkpoints"], contents["requests"]) == (2, 6, 1)
    assert (contents["owned"], contents["left_behind"], contents["is_encrypted"]) == (0, 0, False)
    assert tree["file"]["free_disk_bytes"] > tree["file"]["file_bytes"] == (folder / "threads.db").stat().st_size
    assert "perdure verify" in finding_of(tree, "integrity")["found"]
    assert file_hashes(folder) == before


def test_healthy_file_store_has_only_ok_marks_and_stays_unchanged(call: Call, call_json: CallJson, files: Path) -> None:
    before = file_hashes(files)
    assert set(marks(call("doctor", FILES)).values()) == {"ok"}
    tree = call_json("doctor", store=FILES)
    assert (tree["kind"], tree["folder"]["files"], tree["folder"]["is_index_current"]) == ("file", 2, True)
    assert tree["folder"]["file_bytes"] == sum(path.stat().st_size for path in files.glob("*.jsonl"))
    assert tree["folder"]["index"]["contents"]["checkpoints"] == 6
    assert file_hashes(files) == before


def test_folder_without_an_index_is_healthy_and_gets_no_index(call: Call, call_json: CallJson, files: Path) -> None:
    (files / "index.db").unlink()
    assert set(marks(call("doctor", FILES)).values()) == {"ok"}
    assert (
        finding_of(call_json("doctor", store=FILES), "index")["found"] == "none: the next use builds it from the files"
    )
    assert not (files / "index.db").exists()


def _cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 7)


def _scribble(path: Path) -> None:
    path.write_text("a letter to ada\n" * 100)


def _other_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE letters (text)")


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("harm", "check", "problem", "remedy"),
    [
        (_cut_off, "database", "it was cut off", "backup"),
        (_scribble, "database", "not a database", "backup"),
        (_other_database, "database", "of another program", "Name another"),
        (_newer, "format", "version 99; this perdure reads up to 1", "Upgrade perdure"),
    ],
)
def test_unusable_database_fails_and_stays_unchanged(
    harm: Callable[[Path], None], check: str, problem: str, remedy: str, call: Call, ids: list[str], folder: Path
) -> None:
    path = folder / "threads.db"
    harm(path)
    before = path.read_bytes()
    done = call("doctor")
    assert marks(done, 1)[check] == "fail"
    assert problem in done.stdout and remedy in done.stdout
    assert path.read_bytes() == before


def test_files_that_lost_acknowledged_commits_fail(call: Call, call_json: CallJson, files: Path) -> None:
    _cut_off(files / "r-1.jsonl")
    (files / "r-2.jsonl").write_text('{"no": "thread"}\n' * 1000)
    done = call("doctor", FILES)
    assert marks(done, 1)["files"] == "fail"
    assert "r-1: the file is shorter than what was acknowledged. Commits were lost" in done.stdout
    assert "r-2.jsonl: the first line names no thread. Restore" in done.stdout


def test_files_of_a_newer_perdure_fail(call: Call, files: Path) -> None:
    path = files / "r-1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":9', 1))
    done = call("doctor", FILES)
    assert marks(done, 1)["format"] == "fail"
    assert "r-1.jsonl: of a newer perdure; this one reads up to version 1. Upgrade perdure" in done.stdout


def test_lock_that_stays_held_gets_a_warning(call: Call, files: Path, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "threads.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert marks(call("doctor"))["lock"] == "warn"
    with (files / "index.lock").open("r+b") as file:
        assert try_lock_file(file.fileno())
        assert marks(call("doctor", FILES))["lock"] == "warn"


def test_thread_of_a_killed_process_gets_a_warning(call: Call, call_json: CallJson, folder: Path) -> None:
    (folder / "hold").touch()
    with running("run", "office:build", "x", "--thread", "t", folder=folder, until="work: runs") as process:
        contents = call_json("doctor")["file"]["contents"]
        assert (contents["owned"], contents["left_behind"], contents["processes"]) == (1, 0, 1)
        process.kill()
        process.wait()
    done = call("doctor")
    assert marks(done)["owners"] == "warn"
    assert "owned by processes that ended: 1 thread. `perdure threads`" in done.stdout
    assert done.stdout.endswith(" checks: 1 warning.\n")


def test_overdue_thread_gets_a_warning_and_late_request_is_counted(
    call: Call, call_json: CallJson, ids: list[str], folder: Path
) -> None:
    with closing(sqlite3.connect(folder / "threads.db", isolation_level=None)) as db:
        db.execute("UPDATE requests SET deadline = 1")
        db.execute("UPDATE threads SET due_at = 1 WHERE thread_id = 'r-2'")
    assert marks(call("doctor"))["due"] == "warn"
    assert finding_of(call_json("doctor"), "requests")["found"] == "1 pending, 1 of them past the deadline"


def test_doctor_of_an_encrypted_store_needs_no_key(
    call: Call, call_json: CallJson, ids: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_KEYS", f"k1:{AesGcm.generate_key()}")
    for target in ("sqlite:///locked.db", "file:locked"):
        assert call("transfer", "sqlite:///threads.db", target).returncode == 0
    monkeypatch.delenv("PERDURE_KEYS")
    for target, name in (("sqlite:///locked.db", "file"), ("file:locked", "folder")):
        tree = call_json("doctor", target)
        contents = tree["file"]["contents"] if name == "file" else tree["folder"]["index"]["contents"]
        assert (contents["threads"], contents["inbox"], contents["is_encrypted"]) == (2, 0, True)
        assert finding_of(tree, "encryption")["found"].startswith("on")


def test_doctor_does_not_create_a_missing_store(call: Call, folder: Path) -> None:
    assert "No store exists at" in refusal(call("doctor", "sqlite:///none.db"), 1)
    assert "No store was named" in refusal(call("doctor", store=None), 1)
    assert "ends with the command" in refusal(call("doctor", "memory:"), 2)
    assert not (folder / "none.db").exists()


@pytest.mark.parametrize("columns", [30, 72, 140])
def test_doctor_output_fits_the_terminal(screen: Screen, ids: list[str], columns: int) -> None:
    shown = screen("doctor", columns=columns)
    assert shown.returncode == 0
    assert shown.width <= columns
    assert " ".join(shown.text.split()).endswith("8 checks: all is well.")
