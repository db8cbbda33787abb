"""Sessions on disk: several processes speak at once, die in the middle of a write, or find a damaged session."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.session_places import KINDS, ON_DISK, open_sessions

from perdure.agent_workflow import sessions as session_stores, store as state_threads
from perdure.agent_workflow.sessions import (
    PREFIX,
    JsonSessionStore,
    SessionEntry,
    SessionHead,
    SessionStore,
    SqliteSessionStore,
    StorageSessionStore,
)
from perdure.agents.conversation.message import Message
from perdure.checkpoints.history.retention import LatestOnly
from perdure.errors import DamagedCheckpoint, DamagedStore, NewerFormat, StorageFailed
from perdure.platform import kill_hard
from perdure.records import Commit
from perdure.storages import FileCheckpointStorage, InMemoryCheckpointStorage, SqliteCheckpointStorage
from perdure.testing import Faults
from perdure.testing.faults import When

ROOT = Path(__file__).parents[3]
MODULE = "tests.unit.agent_workflow.session_places"


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
    [path] = (folder / "sessions").glob("conversation-s~*.jsonl")
    return path


# ---------------------------------------------------------------- torn and damaged files


async def test_torn_line_of_a_killed_process_is_ignored_and_removed(tmp_path: Path) -> None:
    async with open_sessions("json", tmp_path) as store:
        first = await append_texts(store, "one")
    path = the_file(tmp_path)
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for end in (1, 9, len(last) // 2, len(last) - 1):
        path.write_bytes(whole + last[:end])
        async with open_sessions("json", tmp_path) as store:
            assert await texts(store, first) == ["one"], f"cut at byte {end}"
            second = await store.append("s", an_entry(f"two {end}", first))
        async with open_sessions("json", tmp_path) as store:
            assert await texts(store, second) == ["one", f"two {end}"], f"cut at byte {end}"
        whole = path.read_bytes()


async def test_torn_line_of_another_process_is_removed_by_an_open_store(tmp_path: Path) -> None:
    async with open_sessions("json", tmp_path) as store:
        first = await append_texts(store, "one")
        with the_file(tmp_path).open("ab") as file:
            file.write(b'{"sum":"half')
        second = await store.append("s", an_entry("two", first))
        async with open_sessions("json", tmp_path) as again:
            assert await texts(again, second) == ["one", "two"]


async def test_lost_acknowledged_lines_are_reported(tmp_path: Path) -> None:
    async with open_sessions("json", tmp_path) as store:
        first = await append_texts(store, "one", "two")
    path = the_file(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    async with open_sessions("json", tmp_path) as store:
        with pytest.raises((DamagedStore, DamagedCheckpoint), match="conversation-s"):
            await store.read("s", first)


async def test_a_damaged_session_is_named_and_leaves_others_readable(tmp_path: Path) -> None:
    async with open_sessions("json", tmp_path) as store:
        version = await append_texts(store, "one", "two")
        other = await append_texts(store, "three", session_id="other")
    path = the_file(tmp_path)
    damaged = path.read_bytes().replace(b'"user"', b'"usxr"')
    path.write_bytes(damaged)
    async with open_sessions("json", tmp_path) as again:
        for wrong in (again.read("s", version), again.append("s", an_entry("four")), again.heads("s")):
            with pytest.raises((DamagedStore, DamagedCheckpoint), match=r"conversation[:-]s"):
                await wrong
        assert path.read_bytes() == damaged
        assert await again.sessions() == ["other", "s"]
        assert await texts(again, other, "other") == ["three"]
        await again.delete("s")
        assert await texts(again, await append_texts(again, "new")) == ["new"]


async def test_a_damaged_row_is_named_and_leaves_other_sessions_readable(tmp_path: Path) -> None:
    async with open_sessions("sqlite", tmp_path) as store:
        version = await append_texts(store, "one", "two")
        other = await append_texts(store, "three", session_id="other")
    with closing(sqlite3.connect(tmp_path / "sessions")) as db, db:
        db.execute("UPDATE commits SET body = CAST(replace(CAST(body AS TEXT), 'two', 'twx') AS BLOB)")
    async with open_sessions("sqlite", tmp_path) as store:
        with pytest.raises(DamagedCheckpoint, match="conversation:s"):
            await store.read("s", version)
        assert await texts(store, other, "other") == ["three"]


async def test_a_session_of_a_newer_format_is_rejected() -> None:
    store = StorageSessionStore(InMemoryCheckpointStorage())
    await append_texts(store, "one")
    [info] = await store.storage.list_checkpoint_infos()
    await store.storage.fork(info, thread_id=f"{PREFIX}new", update_state={"format": 99})
    for wrong in (store.heads("new"), store.append("new", an_entry("two"))):
        with pytest.raises(NewerFormat, match="'session new' has format 99"):
            await wrong


def test_a_folder_of_the_earlier_form_is_refused_and_named(tmp_path: Path) -> None:
    earlier = tmp_path / "s~0123456789abcdef.jsonl"
    earlier.write_bytes(b'{"sum":"...","line":"session","session_id":"s","format":1,"created":"00"}\n')
    for _ in range(2):
        with pytest.raises(StorageFailed, match=rf"{earlier.name}.* form of an earlier version.* another folder"):
            JsonSessionStore(tmp_path)
    assert list(tmp_path.iterdir()) == [earlier]


def test_a_database_of_the_earlier_form_is_refused_and_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as db, db:
        db.execute("CREATE TABLE session_lines (number INTEGER PRIMARY KEY, session_id TEXT, line BLOB)")
    with pytest.raises(StorageFailed, match=r"sessions\.db.*'session_lines'.* form of an earlier version"):
        SqliteSessionStore(tmp_path / "sessions.db")


# ---------------------------------------------------------------- trouble


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", ["open", "commit", "release"])
async def test_failed_write_is_reported_and_can_be_repeated(point: Any, when: When) -> None:
    storage, faults = InMemoryCheckpointStorage(retention=LatestOnly), Faults()
    store = StorageSessionStore(faults.wrap(storage))
    first = await append_texts(store, "one")
    faults.fail(point, when=when, error=OSError(28, "No space left on device"))
    with pytest.raises((StorageFailed, OSError), match="No space left on device"):
        await store.append("s", an_entry("two", first))
    if (point, when) in (("open", "after"), ("release", "before")):
        return  # its owner is this process, which lives: as for any run
    second = await store.append("s", an_entry("two", first))
    assert await texts(StorageSessionStore(storage), second) == ["one", "two"]
    assert len(await StorageSessionStore(storage).read("s", second)) == 2


async def test_session_held_too_long_by_another_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sessions("sqlite", tmp_path) as store, open_sessions("sqlite", tmp_path) as other:
        first = await append_texts(store, "one")
        monkeypatch.setattr(state_threads, "PATIENCE_SECONDS", 0.05)
        opened = await other.storage.claim_thread(f"{PREFIX}s", "other")
        assert await texts(store, first) == ["one"], "a reader needs not wait"
        for wrong in (store.append("s", an_entry("two", first)), store.delete("s")):
            with pytest.raises(StorageFailed, match=r"another process has held it for more than 0\.05 seconds"):
                await wrong
        await other.storage.store.release(opened.lease)
        assert await texts(store, await store.append("s", an_entry("two", first))) == ["one", "two"]


async def test_sqlite_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageFailed, match="SqliteStore failed to"):
        await SqliteSessionStore(tmp_path / "taken").heads("s")


# ---------------------------------------------------------------- what a turn costs


class _Reads:
    """A store that counts the commits whose chunks are read."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_chunks(self, thread_id: str, numbers: Any) -> Any:
        self.count += len(list(numbers))
        return await self._store.read_chunks(thread_id, numbers)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_turn_writes_and_reads_only_what_is_new(kind: str, tmp_path: Path) -> None:
    storages = {"file": FileCheckpointStorage, "sqlite": SqliteCheckpointStorage}
    storage = storages[kind](tmp_path / "sessions", retention=LatestOnly)
    sizes: list[int] = []

    def measure(_: str, written: Any) -> None:
        if isinstance(written, Commit):
            sizes.append(len(written.root or b"") + sum(map(len, written.chunks.values())))

    faults = Faults()
    faults.watch(measure)
    wrapped = faults.wrap(storage)
    reads = _Reads(wrapped.store)
    wrapped.store = reads
    store, version = StorageSessionStore(wrapped), ""
    for number in range(120):
        version = await store.append("s", an_entry(f"{number} {'.' * 1000}", version))
        await store.advance("s", SessionHead(thread_id="t", execution_id="e", version=version))
        assert len(await store.read("s", version)) == number + 1
    assert reads.count == 0
    assert max(sizes[-20:]) < 1.5 * max(sizes[20:40]) < 4000
    await store.close()
    async with open_sessions({"file": "json"}.get(kind, kind), tmp_path) as again:
        assert len(await again.read("s", version)) == 120


# ---------------------------------------------------------------- several writers


@pytest.mark.parametrize("kind", KINDS)
async def test_entries_that_are_appended_at_once_are_all_stored(kind: str, tmp_path: Path) -> None:
    async with open_sessions(kind, tmp_path) as store:
        root = await append_texts(store, "root")
        versions = await asyncio.gather(*(store.append("s", an_entry(f"{number}", root)) for number in range(8)))
        for number, version in enumerate(versions):
            assert await texts(store, version) == ["root", f"{number}"]


@contextmanager
def speaking(kind: str, folder: Path, name: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready to speak."""
    command = [sys.executable, "-m", MODULE, kind, str(folder), name, str(count)]
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


@pytest.mark.parametrize("kind", ON_DISK)
async def test_two_processes_that_speak_at_once_lose_nothing(kind: str, tmp_path: Path) -> None:
    count = 12
    store, watching = open_sessions(kind, tmp_path), open_sessions(kind, tmp_path)
    with ExitStack() as stack:
        processes = [stack.enter_context(speaking(kind, tmp_path, name, count)) for name in ("ann", "bob")]
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
        await reader.close()


@pytest.mark.parametrize("kind", ON_DISK)
async def test_versions_acknowledged_to_a_killed_process_are_stored(kind: str, tmp_path: Path) -> None:
    with speaking(kind, tmp_path, "ann", 100_000) as process:
        begin(process)
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(10)]
        kill_hard(process.pid)
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    async with open_sessions(kind, tmp_path) as store, open_sessions(kind, tmp_path) as other:
        [head] = await store.heads("s")
        kept = list(await store.read("s", head.version))
        assert kept[: len(acknowledged)] == acknowledged and len(kept) <= len(acknowledged) + 1
        again = await store.append("s", an_entry("after", head.version))
        assert list(await other.read("s", again)) == [*kept, again]


@pytest.mark.parametrize("kind", ON_DISK)
async def test_session_recreated_by_another_process_is_read_again(kind: str, tmp_path: Path) -> None:
    async with open_sessions(kind, tmp_path) as here, open_sessions(kind, tmp_path) as elsewhere:
        await append_texts(here, "one", "two", "three")
        await elsewhere.delete("s")
        version = await append_texts(elsewhere, "another " * 100, "and more")
        assert await texts(here, version) == ["another " * 100, "and more"]
        head = SessionHead(thread_id="t", execution_id="e", version=version)
        await here.advance("s", head)
        assert await elsewhere.heads("s") == [head]


async def test_store_remembers_a_limited_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_stores, "KNOWN_SESSIONS", 2)
    store = StorageSessionStore(InMemoryCheckpointStorage())
    versions = [await append_texts(store, "one", session_id=f"s{number}") for number in range(4)]
    assert len(store._known) == 2
    for number, version in enumerate(versions):
        assert await texts(store, version, f"s{number}") == ["one"]
