"""Sessions on disk: several processes speak at once, die in the middle of a line, or find a damaged one."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.agent_workflow.conversations import files as session_files, sqlite as session_rows
from perdure.agent_workflow.conversations.files import JsonSessionStore
from perdure.agent_workflow.conversations.log import SessionEntry, SessionHead, SessionLine, to_bytes
from perdure.agent_workflow.conversations.sqlite import SqliteSessionStore
from perdure.agent_workflow.conversations.store import LoggedSessionStore, SessionStore
from perdure.agents.conversation.message import Message
from perdure.errors import DamagedStore, NewerFormat, StorageFailed
from perdure.platform import kill_hard, lock_file

ROOT = Path(__file__).parents[4]
MODULE = "tests.unit.orchestrations.agent_workflow.session_speaker"


def an_entry(text: str, parent: str = "") -> SessionEntry:
    return SessionEntry(thread_id="t", parent=parent, messages=(Message("user", text),))


async def append_texts(store: SessionStore, *texts: str, session_id: str = "s") -> str:
    version = ""
    for text in texts:
        version = await store.append(session_id, an_entry(text, version))
    return version


async def texts(store: SessionStore, version: str, session_id: str = "s") -> list[str]:
    return [message.text for message in await store.messages(session_id, "t", version)]


def the_file(folder: Path) -> Path:
    [path] = folder.glob("s~*.jsonl")
    return path


# ---------------------------------------------------------------- torn and damaged files


async def test_truncated_file_keeps_its_whole_lines_and_can_be_continued(tmp_path: Path) -> None:
    version = await append_texts(JsonSessionStore(tmp_path), "one", "two")
    path = the_file(tmp_path)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for end in sorted({*range(0, len(whole), 9), *(boundary + near for boundary in (0, *ends) for near in (-1, 0, 1))}):
        if not 0 <= end < len(whole):
            continue
        path.write_bytes(whole[:end])
        store = JsonSessionStore(tmp_path)
        assert await store.sessions() == (["s"] if end >= ends[0] else [])
        assert await store.heads("s") == []
        assert await append_texts(store, "one", "two") == version, f"cut at byte {end}"
        assert await texts(JsonSessionStore(tmp_path), version) == ["one", "two"], f"cut at byte {end}"
        assert path.read_bytes().count(b"\n") == 3, f"cut at byte {end}"


async def test_zero_blocks_that_were_never_written_are_ignored(tmp_path: Path) -> None:
    first = await append_texts(JsonSessionStore(tmp_path), "one")
    path = the_file(tmp_path)
    with path.open("ab") as file:
        file.write(b"\0" * 300 + b"\n")
    store = JsonSessionStore(tmp_path)
    assert await texts(store, first) == ["one"]
    assert await texts(store, await store.append("s", an_entry("two", first))) == ["one", "two"]


async def test_torn_line_of_another_process_is_removed_by_an_open_store(tmp_path: Path) -> None:
    store = JsonSessionStore(tmp_path)
    first = await append_texts(store, "one")
    with the_file(tmp_path).open("ab") as file:
        file.write(b'{"sum":"half')
    second = await store.append("s", an_entry("two", first))
    assert await texts(JsonSessionStore(tmp_path), second) == ["one", "two"]


@pytest.mark.parametrize("number", [2, 3])
async def test_a_damaged_line_is_named_and_leaves_other_sessions_readable(tmp_path: Path, number: int) -> None:
    store = JsonSessionStore(tmp_path)
    version = await append_texts(store, "one", "two")
    other = await append_texts(store, "three", session_id="other")
    path = the_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(b'"user"', b'"usxr"')
    path.write_bytes(b"".join(lines))
    again = JsonSessionStore(tmp_path)
    for wrong in (again.read("s", version), again.append("s", an_entry("four")), again.heads("s")):
        with pytest.raises(
            DamagedStore, match=f"line {number} is damaged: its checksum does not match its content"
        ) as e:
            await wrong
        assert e.value.path == str(path)
    assert path.read_bytes() == b"".join(lines)
    assert await again.sessions() == ["other", "s"]
    assert await texts(again, other, "other") == ["three"]


async def test_damaged_first_line_is_logged_and_other_sessions_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = JsonSessionStore(tmp_path)
    await append_texts(store, "one")
    await append_texts(store, "two", session_id="other")
    path = the_file(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"session"', b'"sessiom"'))
    with caplog.at_level(logging.WARNING, "perdure"):
        assert await JsonSessionStore(tmp_path).sessions() == ["other"]
    assert f"line 1 of {path} cannot be read: its checksum does not match its content" in caplog.text


async def test_a_damaged_row_is_named_and_leaves_other_sessions_readable(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "sessions.db")
    version = await append_texts(store, "one", "two")
    other = await append_texts(store, "three", session_id="other")
    db = sqlite3.connect(tmp_path / "sessions.db")
    db.execute("UPDATE session_lines SET line = CAST(replace(CAST(line AS TEXT), 'two', 'twx') AS BLOB)")
    db.commit()
    db.close()
    store = SqliteSessionStore(tmp_path / "sessions.db")
    with pytest.raises(DamagedStore, match="line 3 of session_lines, of session 's', is damaged"):
        await store.read("s", version)
    assert await texts(store, other, "other") == ["three"]


async def test_a_session_of_a_newer_format_is_rejected(tmp_path: Path) -> None:
    await append_texts(JsonSessionStore(tmp_path), "one")
    path = the_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(to_bytes(SessionLine("s", 99, "x")) + b"".join(lines[1:]))
    with pytest.raises(NewerFormat, match="has format 99"):
        await JsonSessionStore(tmp_path).heads("s")


# ---------------------------------------------------------------- trouble


async def test_failed_sync_is_reported_and_nothing_counts_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonSessionStore(tmp_path)
    first = await append_texts(store, "one")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(session_files, "fsync_file", full)
        with pytest.raises(StorageFailed, match=r"append to .*No space left on device"):
            await store.append("s", an_entry("two", first))
    synced: list[int] = []
    monkeypatch.setattr(session_files, "fsync_file", synced.append)
    second = await store.append("s", an_entry("two", first))
    assert synced, "what an earlier attempt left in the file was taken for stored"
    assert await texts(JsonSessionStore(tmp_path), second) == ["one", "two"]


async def test_folder_is_synced_before_a_file_of_another_process_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await append_texts(JsonSessionStore(tmp_path), "one")  # this process may have died before the sync
    synced: list[Path] = []
    monkeypatch.setattr(session_files, "fsync_folder", synced.append)
    store = JsonSessionStore(tmp_path)
    assert await append_texts(store, "one") == first and synced == [tmp_path]
    await append_texts(store, "one", "two")
    assert synced == [tmp_path]


async def test_lock_held_too_long_by_another_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonSessionStore(tmp_path)
    first = await append_texts(store, "one")
    monkeypatch.setattr(session_files, "PATIENCE_SECONDS", 0.05)
    fd = os.open(the_file(tmp_path), os.O_RDWR)
    try:
        lock_file(fd)
        with pytest.raises(StorageFailed, match=r"another process has held its lock for more than 0\.05 seconds"):
            await store.read("s", first)
    finally:
        os.close(fd)
    assert await texts(store, first) == ["one"]


async def test_sqlite_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="SqliteSessionStore failed to use"):
        await SqliteSessionStore(tmp_path / "nowhere" / "sessions.db").heads("s")


# ---------------------------------------------------------------- several processes


@contextmanager
def speaking(kind: str, path: Path, name: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready to speak."""
    command = [sys.executable, "-m", MODULE, kind, str(path), name, str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            kill_hard(process.pid)


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize(("kind", "make"), [("json", JsonSessionStore), ("sqlite", SqliteSessionStore)])
async def test_two_processes_that_speak_at_once_lose_nothing(
    kind: str, make: type[JsonSessionStore] | type[SqliteSessionStore], tmp_path: Path
) -> None:
    path, count = tmp_path / "sessions", 12
    store: SessionStore = make(path)
    watching = make(path)  # has read some of it before the end
    with ExitStack() as stack:
        processes = [stack.enter_context(speaking(kind, path, name, count)) for name in ("ann", "bob")]
        for process in processes:
            begin(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() and await watching.heads("s")
            assert len(process.stdout.readlines()) == count - 1 and process.wait() == 0
    for reader in (store, watching):
        for name in ("ann", "bob"):
            received = [message.text.rstrip(".") for message in await reader.messages("s", "t", execution_id=name)]
            assert received == [f"{name} {number} " for number in range(count)]


@pytest.mark.parametrize(("kind", "make"), [("json", JsonSessionStore), ("sqlite", SqliteSessionStore)])
async def test_versions_acknowledged_to_a_killed_process_are_stored(
    kind: str, make: type[JsonSessionStore] | type[SqliteSessionStore], tmp_path: Path
) -> None:
    path = tmp_path / "sessions"
    with speaking(kind, path, "ann", 100_000) as process:
        begin(process)
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(10)]
        kill_hard(process.pid)
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    store: SessionStore = make(path)
    [head] = await store.heads("s")
    kept = list(await store.read("s", head.version))
    assert kept[: len(acknowledged)] == acknowledged and len(kept) <= len(acknowledged) + 1
    again = await store.append("s", an_entry("after", head.version))
    assert list(await make(path).read("s", again)) == [*kept, again]


@pytest.mark.parametrize("make", [JsonSessionStore, SqliteSessionStore])
async def test_session_recreated_by_another_process_is_read_again(
    make: type[JsonSessionStore] | type[SqliteSessionStore], tmp_path: Path
) -> None:
    here, elsewhere = make(tmp_path / "sessions"), make(tmp_path / "sessions")
    await append_texts(here, "one", "two", "three")
    await elsewhere.delete("s")
    version = await append_texts(elsewhere, "another " * 100, "and more")
    assert await texts(here, version) == ["another " * 100, "and more"]
    head = SessionHead(thread_id="t", execution_id="e", version=version)
    await here.advance("s", head)
    assert await elsewhere.heads("s") == [head]


@pytest.mark.parametrize(
    ("module", "log_type"), [(session_files, session_files.SessionFiles), (session_rows, session_rows.SessionDatabase)]
)
async def test_store_remembers_a_limited_number_of_sessions(
    module: Any, log_type: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KNOWN_SESSIONS", 2)
    kept = log_type(tmp_path / "sessions")
    store = LoggedSessionStore(kept, blocks=True)
    versions = [await append_texts(store, "one", session_id=f"s{number}") for number in range(4)]
    assert len(kept._remembered) == 2
    for number, version in enumerate(versions):
        assert await texts(store, version, f"s{number}") == ["one"]
