"""What is particular to a store in a SQLite file: the file itself, its locks, the disk, and processes that fork."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import DamagedStore, NewerFormat, StorageFailed
from perdure.stores.process_identity import RENEW_SECONDS
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import checkpoint_ids, own, save_thread, thread_ids

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that any user may enter, unlike pytest's."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def names_beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def run_script(script: str, *arguments: object) -> str:
    """In a process of its own, where a warning is an error too; what it printed."""
    program = textwrap.dedent(script)
    command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


# ---------------------------------------------------------------- others who use the file


async def test_a_write_waits_for_another_writer(path: Path) -> None:
    store = SqliteStore(path)
    await save_thread(store, "t")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.post("t", "item", "message", b"1"))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    other.execute("ROLLBACK")
    await waiting
    other.close()
    await store.close()


async def test_writer_that_never_ends_raises_storage_failed_and_stores_nothing(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=0.1)
    owner = await own(store)
    await owner.save()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageFailed, match=r"another process has held it for more than 0\.1 seconds") as caught:
        await owner.save()
    assert str(path) in str(caught.value)
    assert await checkpoint_ids(store) == ["t-1"]  # readers do not wait for a writer
    other.execute("ROLLBACK")
    other.close()
    await owner.save()
    assert await checkpoint_ids(store) == ["t-1", "t-2"]
    await store.close()


async def test_reader_that_never_ends_blocks_no_writer(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=0.1)
    await save_thread(store, "t")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM commits").fetchone()
    await save_thread(store, "u", 5)
    await store.close()
    reader.close()
    again = SqliteStore(path)
    assert await thread_ids(again) == ["t", "u"]
    await again.close()


async def test_a_closed_store_is_one_file(path: Path) -> None:
    store = SqliteStore(path)
    await save_thread(store, "t", 3)
    await store.close()
    assert names_beside(path) == ["threads.db"]
    again = SqliteStore(path)
    assert await checkpoint_ids(again) == ["t-1", "t-2", "t-3"]
    await again.close()
    assert names_beside(path) == ["threads.db"]


async def test_unclosed_store_is_closed_with_its_object(path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteStore(path)
    await save_thread(store, "t")
    (own_thread,) = set(threading.enumerate()) - before
    del store
    gc.collect()
    own_thread.join(5)
    assert not own_thread.is_alive()
    again = SqliteStore(path)
    assert await checkpoint_ids(again) == ["t-1"]
    await again.close()


def test_process_that_ends_without_closing_is_quiet_and_loses_nothing(path: Path) -> None:
    script = """
        import asyncio, sys
        from perdure.testing.conformance.threads import own
        from perdure.stores.sqlite.store import SqliteStore
        store = SqliteStore(sys.argv[1])
        owner = asyncio.run(own(store))
        asyncio.run(owner.save())
        print("saved")
    """
    assert run_script(script, path) == "saved"
    store = SqliteStore(path)
    assert asyncio.run(checkpoint_ids(store)) == ["t-1"]
    asyncio.run(store.close())


# ---------------------------------------------------------------- files that are not ours to use


@pytest.mark.parametrize("content", [b"hello", b"x" * 20_000, b"SQLite format 3\x00" + b"\xff" * 4080], ids=len)
async def test_file_that_is_not_a_database_is_refused_and_left_unchanged(path: Path, content: bytes) -> None:
    put(path, content)
    store = SqliteStore(path)
    with pytest.raises(DamagedStore, match="Nothing was changed") as caught:
        await store.open("t", "run-1")
    assert str(path) in str(caught.value)
    await store.close()
    assert content_of(path) == content and names_beside(path) == ["threads.db"]


@pytest.mark.parametrize("mark", ["user_version = 0", "user_version = 1", "application_id = 7"])
async def test_database_of_another_program_is_refused_and_left_unchanged(path: Path, mark: str) -> None:
    other = sqlite3.connect(path)
    other.executescript(f"CREATE TABLE threads (thread_id TEXT); PRAGMA {mark};")
    other.close()
    before = content_of(path)
    store = SqliteStore(path)
    with pytest.raises(StorageFailed, match="it is a database of something else"):
        await store.head("t")
    with pytest.raises(StorageFailed, match="it is a database of something else"):
        await store.open("t", "run-1")
    await store.close()
    assert content_of(path) == before and names_beside(path) == ["threads.db"]


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """As a program leaves it that made a temporary file to have a name."""
    put(path, b"")
    store = SqliteStore(path)
    await save_thread(store, "t")
    assert await thread_ids(store) == ["t"]
    await store.close()


async def test_newer_format_is_refused_and_left_unchanged(path: Path) -> None:
    store = SqliteStore(path)
    await save_thread(store, "t")
    await store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = content_of(path)
    with pytest.raises(NewerFormat, match="has format 99; this perdure reads up to 1"):
        await store.open("t", "run-1")
    await store.close()
    assert content_of(path) == before


async def test_a_folder_in_the_place_of_the_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(StorageFailed, match="Nothing was changed") as caught:
        await store.infos()
    assert str(tmp_path) in str(caught.value)
    await store.close()


async def test_missing_folders_are_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a" / "b" / "threads.db")
    assert not (tmp_path / "a").exists()  # not before it is used
    await save_thread(store, "t")
    assert (tmp_path / "a" / "b" / "threads.db").is_file()
    await store.close()


async def test_a_file_in_the_place_of_a_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    store = SqliteStore(tmp_path / "a" / "threads.db")
    with pytest.raises(StorageFailed, match=r"threads\.db"):
        await store.infos()
    await store.close()


# ---------------------------------------------------------------- disks

AS_UNPRIVILEGED = """
    import asyncio, os, sys
    from perdure.testing.conformance.threads import checkpoint_ids, own
    from perdure.errors import PerdureError
    from perdure.stores.sqlite.store import SqliteStore
    if os.getuid() == 0:
        os.setuid(65534)  # root may write anywhere
    async def main():
        store = SqliteStore(sys.argv[1])
        for act in (own(store), checkpoint_ids(store)):
            try:
                print("done", await act)
            except PerdureError as error:
                print(type(error).__name__, sys.argv[1] in str(error))
        await store.close()
    asyncio.run(main())
"""


def test_a_folder_that_may_not_be_written_to_is_an_error_that_names_it(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    output = run_script(AS_UNPRIVILEGED, open_folder / "threads.db")
    assert output.splitlines() == ["StorageFailed True", "StorageFailed True"]
    assert list(open_folder.iterdir()) == []


def test_a_file_that_may_not_be_written_to_is_an_error_that_names_it(open_folder: Path) -> None:
    store = SqliteStore(open_folder / "threads.db")
    asyncio.run(save_thread(store, "t"))
    asyncio.run(store.close())
    before = (open_folder / "threads.db").read_bytes()
    (open_folder / "threads.db").chmod(0o444)
    open_folder.chmod(0o555)
    lines = run_script(AS_UNPRIVILEGED, open_folder / "threads.db").splitlines()
    assert lines[0] == "StorageFailed True"
    assert (open_folder / "threads.db").read_bytes() == before


def test_when_the_disk_is_full_the_commit_fails_and_all_before_it_stays(path: Path) -> None:
    script = """
        import asyncio, resource, sys
        from perdure.testing.conformance.threads import checkpoint_ids, own
        from perdure.errors import StorageFailed
        from perdure.stores.sqlite.store import SqliteStore
        async def main():
            store = SqliteStore(sys.argv[1])
            owner = await own(store)
            await owner.save()
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
            written = 1
            try:
                while True:
                    await owner.save(root=b'"' + b"x" * 20_000 + b'"', events=1)
                    written += 1
            except StorageFailed as error:
                assert sys.argv[1] in str(error), error
            assert len(await checkpoint_ids(store)) == written, (await checkpoint_ids(store), written)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await owner.save()
            await store.close()
            print(written + 1)
        asyncio.run(main())
    """
    written = int(run_script(script, path))
    assert 5 < written < 40
    store = SqliteStore(path)
    assert len(asyncio.run(checkpoint_ids(store))) == written
    asyncio.run(store.close())
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_rows_that_a_full_disk_rolled_back_are_written_again(path: Path) -> None:
    """The first commit of a workflow, and the first claim of a process, write rows that later ones refer to."""
    script = """
        import asyncio, resource, sys
        from perdure.testing.conformance.threads import checkpoint_ids, own
        from perdure.errors import StorageFailed, ThreadBusy
        from perdure.stores.sqlite.store import SqliteStore
        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        async def fails(act):
            limit(1)
            try:
                await act
            except StorageFailed:
                return
            finally:
                limit(resource.RLIM_INFINITY)
            raise AssertionError("it was written")
        async def main():
            store = SqliteStore(sys.argv[1])
            await store.infos()
            await fails(own(store))
            owner = await own(store, workflow_name="first")
            try:
                await own(SqliteStore(sys.argv[1]), owner="run-2")
                raise AssertionError("two own one thread")
            except ThreadBusy:
                pass
            await fails(owner.save())
            other = await own(store, "u", workflow_name="second")
            await other.save()
            await owner.save()
            names = (None, "first", "second")
            print(*[await checkpoint_ids(store, workflow_name=name) for name in names])
            await store.close()
        asyncio.run(main())
    """
    assert run_script(script, path) == "['u-1', 't-1'] ['t-1'] ['u-1']"


# ---------------------------------------------------------------- forks


def test_a_forked_process_uses_the_store_beside_its_parent(path: Path) -> None:
    script = """
        import asyncio, os, sys, warnings
        from perdure.testing.conformance.threads import checkpoint_ids, own, save_thread
        from perdure.errors import ThreadBusy
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forking beside threads
        from perdure.stores.sqlite.store import SqliteStore
        store = SqliteStore(sys.argv[1])
        owner = asyncio.run(own(store, "parent"))
        asyncio.run(owner.save())
        for turn in range(3):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    asyncio.run(save_thread(store, f"child {turn}", 3))
                    try:
                        asyncio.run(own(store, "parent", owner="run-2"))
                    except ThreadBusy:  # another process owns it, which lives
                        code = 0
                    if turn:
                        asyncio.run(store.close())
                finally:
                    os._exit(code)
            asyncio.run(owner.save())
            assert os.waitpid(pid, 0)[1] == 0
            asyncio.run(owner.save())
        print(len(asyncio.run(checkpoint_ids(store))))
        asyncio.run(store.close())
    """
    assert run_script(script, path) == "16"
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    store = SqliteStore(path)
    assert len(asyncio.run(checkpoint_ids(store, thread_id="parent"))) == 7
    asyncio.run(store.close())


async def test_claim_after_a_rest_has_a_process_with_a_lease(path: Path) -> None:
    store = SqliteStore(path)
    await store.release((await store.open("t", "first")).lease)
    db = store._connection._db
    assert db is not None
    db.renewed_at -= RENEW_SECONDS  # no heartbeat renews the lease of a process without threads
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM processes")  # as a process of another machine does after the lease has expired
        await store.open("t", "second")
        query = "SELECT leased_until FROM processes JOIN threads USING (process) WHERE thread_id = 't'"
        ((leased_until,),) = other.execute(query).fetchall()
    assert leased_until > time.time()
    await store.close()
