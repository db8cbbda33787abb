"""Payloads rewritten in files: many of them, beside others who write, and damage that is not made to look sound."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.encryption.places import Place

from perdure.errors import DamagedCheckpoint, DamagedStore
from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.sqlite.history import PAGE_ROWS
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.clauses.copies import wrap
from perdure.testing.conformance.threads import own, save_full_thread, save_thread

FIXTURES = Path(__file__).parents[1] / "fixtures"


async def roots(store: Store, thread_id: str = "t") -> list[bytes | None]:
    return [commit.root for commit in await store.commits(thread_id)]


@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_all_commits_of_a_long_thread_are_rewritten(place: Place) -> None:
    store = place.store()
    await save_thread(store, "t", 2 * PAGE_ROWS + 7, events=1)
    before = await roots(store)
    assert await store.rewrite("t", wrap) == 2 * len(before)
    expected = [wrap("root", str(number), root) for number, root in enumerate(before, 1) if root is not None]
    assert await roots(store) == expected
    assert await store.check() == []
    await store.close()


@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_commits_and_prunes_during_a_rewrite_lose_nothing(place: Place) -> None:
    store, other = place.store(), place.store()
    owner = await own(store)
    for _ in range(100):
        await owner.save(brings=[f"of {owner.number + 1}"], events=1)

    async def go_on() -> None:
        for _ in range(40):
            await owner.save(brings=[f"of {owner.number + 1}"], drops=[f"of {owner.number}"], events=1)
            await owner.record(owner.number)
            if owner.number % 10 == 0:
                await store.prune("t", [f"t-{owner.number - 60}"])

    await asyncio.gather(
        go_on(), *(other.rewrite("t", lambda kind, name, data: data) for _ in range(3)), rewrite(other)
    )
    assert await store.check() == [] and await other.check() == []
    assert [info.number for info in await other.infos()][-1] == 140
    await store.close()
    await other.close()


async def rewrite(store: Store) -> None:
    """Once, each payload."""
    done: set[tuple[str, str]] = set()

    def once(kind: str, name: str, data: bytes) -> bytes:
        assert (kind, name) not in done or kind == "chunk", "it was put through twice"
        done.add((kind, name))
        return wrap(kind, name, data)

    assert await store.rewrite("t", once) > 100


def changed(path: Path, statement: str, *arguments: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute(statement, arguments).rowcount == 1


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE commits SET body = REPLACE(CAST(body AS TEXT), '2}', '3}') WHERE number = 2 AND thread = 1",
            "commit 2",
        ),
        ("UPDATE journal SET body = CAST('{}' AS BLOB)", "the journal of delivery 5"),
        ("UPDATE inbox SET kind = 'other' WHERE body IS NOT NULL", "item 'item'"),
    ],
    ids=["commit", "journal", "inbox"],
)
async def test_rewrite_leaves_damaged_payloads_and_reports_them_at_the_end(
    tmp_path: Path, statement: str, message: str
) -> None:
    path = tmp_path / "threads.db"
    store = SqliteStore(path)
    await save_full_thread(store)
    await store.close()
    changed(path, statement)
    damage = await store.check()
    assert damage
    with pytest.raises(DamagedCheckpoint, match=message):
        await store.rewrite("t", wrap)
    assert await store.check() == damage, "what was damaged before looks sound now"
    first = await store.find_checkpoint("t-1")
    assert first is not None and first.root.startswith(b'["root"')
    await store.close()


async def test_rewrite_does_not_make_damaged_columns_look_sound(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteStore(path)
    await save_full_thread(store)
    await store.close()
    changed(path, "UPDATE commits SET status = 'FORGED' WHERE number = 2")
    damage = await store.check()
    assert "the columns of commit 2 were changed" in damage[0].reason
    assert await store.rewrite("t", wrap) > 0
    assert await store.check() == damage
    await store.close()


async def test_damaged_line_of_a_file_stops_the_rewrite_without_a_change(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "threads")
    await save_full_thread(store)
    await store.close()
    [file] = (tmp_path / "threads").glob("*.jsonl")
    before = file.read_bytes().replace(b'"number": 2', b'"number": 7')
    file.write_bytes(before)
    with pytest.raises(DamagedStore, match="is damaged"):
        await store.rewrite("t", wrap)
    assert file.read_bytes() == before
    await store.close()


@pytest.mark.parametrize(
    ("name", "make"), [("threads.sqlite3", SqliteStore), ("threads", FileStore)], ids=["sqlite", "file"]
)
async def test_payloads_of_an_older_version_are_rewritten(
    tmp_path: Path, name: str, make: Callable[[Path], Store]
) -> None:
    kept = tmp_path / name
    source = FIXTURES / "format-1" / name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, kept)
    store = make(kept)
    thread_ids = await store.thread_ids()
    assert thread_ids
    for thread_id in thread_ids:
        before = await roots(store, thread_id)
        assert await store.rewrite(thread_id, wrap) >= len(before)
        assert [root is not None and root.startswith(b'["root"') for root in await roots(store, thread_id)] == [
            root is not None for root in before
        ]
    assert await store.check() == []
    await store.close()
