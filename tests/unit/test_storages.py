"""The storages users construct: the options they accept, those they reject at once, and the URLs that name them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    CheckpointStorage,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SqliteCheckpointStorage,
    WorkflowCheckpoint,
    open_store,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.stores.file.store import FileStore
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.sqlite.store import SqliteStore


@dataclass
class Report:
    title: str


def a_checkpoint(**parts: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(**{"workflow_name": "w", "graph_signature_hash": "h", "thread_id": "t", **parts})


MAKERS: dict[str, Callable[..., StoreCheckpointStorage]] = {
    "memory": lambda path, **options: InMemoryCheckpointStorage(**options),
    "sqlite": SqliteCheckpointStorage,
    "file": FileCheckpointStorage,
}
every_storage = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
on_disk = pytest.mark.parametrize("make", [SqliteCheckpointStorage, FileCheckpointStorage])


# ---------------------------------------------------------------- what they take


@every_storage
async def test_a_storage_has_the_six_methods_and_can_be_used_as_a_context(
    make: Callable[..., StoreCheckpointStorage], tmp_path: Path
) -> None:
    async with make(tmp_path / "threads.db") as storage:
        assert isinstance(storage, CheckpointStorage)
        await storage.save(a_checkpoint(checkpoint_id="c1"))
    assert (await storage.load("c1")).thread_id == "t"  # opens itself again
    await storage.close()
    await storage.close()


@every_storage
async def test_a_context_that_fails_is_closed_and_its_error_comes_out(
    make: Callable[..., StoreCheckpointStorage], tmp_path: Path
) -> None:
    async def fail() -> None:
        async with make(tmp_path / "threads.db") as storage:
            await storage.save(a_checkpoint())
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()
    assert not any(name.endswith("-wal") for name in os.listdir(tmp_path))


@on_disk
@pytest.mark.parametrize("kind", [str, Path])
async def test_path_can_be_text_or_a_path_object_with_any_character(
    make: Callable[..., StoreCheckpointStorage], kind: Callable[[str], Any], tmp_path: Path
) -> None:
    path = tmp_path / "naïve folder" / "100% a?b#c 'd'.db"
    async with make(kind(str(path))) as storage:
        await storage.save(a_checkpoint(checkpoint_id="c1"))
    assert path.exists()
    async with make(kind(str(path))) as again:
        assert await again.list_checkpoint_ids() == ["c1"]


@on_disk
async def test_a_relative_path_is_from_where_the_storage_was_made(
    make: Callable[..., StoreCheckpointStorage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that changes its folder later must not find another, empty store."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    storage = make("threads.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    await storage.save(a_checkpoint())
    await storage.close()
    assert (tmp_path / "threads.db").exists() and list((tmp_path / "elsewhere").iterdir()) == []


@on_disk
def test_making_a_storage_touches_no_disk(make: Callable[..., StoreCheckpointStorage], tmp_path: Path) -> None:
    make(tmp_path / "new" / "threads.db")
    assert list(tmp_path.iterdir()) == []


@every_storage
@pytest.mark.parametrize("option", ["allowed_types", "allowed_checkpoint_types"])
@pytest.mark.parametrize("types", [[Report], [f"{Report.__module__}:Report"], (Report,), set(), None])
async def test_types_can_be_allowed_under_either_name(
    make: Callable[..., StoreCheckpointStorage], option: str, types: Any, tmp_path: Path
) -> None:
    async with make(tmp_path / "threads.db", **{option: types}) as storage:
        await storage.save(a_checkpoint(checkpoint_id="c1", state={"count": 1}))
        assert (await storage.load("c1")).state == {"count": 1}


# ---------------------------------------------------------------- what they refuse at once


@on_disk
@pytest.mark.parametrize("path", [None, 7, b"bytes.db", ["a.db"]])
def test_invalid_path_type_is_rejected(make: Callable[..., StoreCheckpointStorage], path: Any) -> None:
    with pytest.raises(TypeError):
        make(path)


@on_disk
def test_an_empty_path_is_rejected(make: Callable[..., StoreCheckpointStorage]) -> None:
    with pytest.raises(ValueError, match="Storage"):
        make("")


@on_disk
@pytest.mark.parametrize("url", ["sqlite:///threads.db", "file:///threads", "postgresql://host/db"])
def test_url_in_place_of_a_path_is_rejected_with_advice(make: Callable[..., StoreCheckpointStorage], url: str) -> None:
    with pytest.raises(ValueError, match="open_store"):
        make(url)


def test_a_database_in_memory_is_rejected_with_the_storage_to_use() -> None:
    with pytest.raises(ValueError, match=r"use InMemoryCheckpointStorage\(\)"):
        SqliteCheckpointStorage(":memory:")


@pytest.mark.parametrize("value", ["OFF", "full", "", None, True, 2])
def test_unknown_synchronous_mode_is_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match="synchronous expects 'FULL' or 'NORMAL', got"):
        SqliteCheckpointStorage("threads.db", synchronous=value)


@on_disk
@pytest.mark.parametrize("value", [-1, float("nan"), "30", None])
def test_invalid_busy_seconds_are_rejected(make: Callable[..., StoreCheckpointStorage], value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="busy_seconds"):
        make("threads.db", busy_seconds=value)


@pytest.mark.parametrize("value", ["no", None])
def test_fsync_that_is_not_a_bool_is_rejected(value: Any) -> None:
    with pytest.raises(TypeError, match="fsync"):
        FileCheckpointStorage("threads", fsync=value)


@every_storage
@pytest.mark.parametrize("types", [[42], [Report("an instance")], 42])
@pytest.mark.parametrize("option", ["allowed_types", "allowed_checkpoint_types"])
def test_invalid_allowed_types_are_rejected(
    make: Callable[..., StoreCheckpointStorage], option: str, types: Any
) -> None:
    with pytest.raises(TypeError):
        make("threads.db", **{option: types})


@every_storage
@pytest.mark.parametrize("value", ["json", object()])
def test_invalid_serializer_is_rejected(make: Callable[..., StoreCheckpointStorage], value: Any) -> None:
    with pytest.raises(TypeError, match="serializer"):
        make("threads.db", serializer=value)


@every_storage
def test_a_misspelt_option_is_rejected(make: Callable[..., StoreCheckpointStorage]) -> None:
    with pytest.raises(TypeError, match="allowed_type"):
        make("threads.db", allowed_type=[])


# ---------------------------------------------------------------- URLs

PATHS = [
    ("sqlite:///threads.db", SqliteStore, "threads.db"),
    ("sqlite:///some/folder/threads.db", SqliteStore, "some/folder/threads.db"),
    ("sqlite:////var/lib/threads.db", SqliteStore, "/var/lib/threads.db"),
    ("sqlite:///C:/data/threads.db", SqliteStore, "C:/data/threads.db"),
    ("sqlite:///with%20space/na%C3%AFve%25.db", SqliteStore, "with space/naïve%.db"),
    ("sqlite:///../up.db", SqliteStore, "../up.db"),
    ("threads.db", SqliteStore, "threads.db"),
    ("/var/lib/threads.sqlite3", SqliteStore, "/var/lib/threads.sqlite3"),
    ("C:\\data\\threads.db", SqliteStore, "C:\\data\\threads.db"),
    ("100%25.db", SqliteStore, "100%25.db"),
    ("SQLite:///threads.db", SqliteStore, "threads.db"),
    ("file:threads", FileStore, "threads"),
    ("file:../with%20space", FileStore, "../with space"),
    ("file:///var/lib/threads", FileStore, "/var/lib/threads"),
    (Path("/var/lib/na\u00efve threads%").as_uri(), FileStore, "/var/lib/na\u00efve threads%"),
]


@pytest.mark.parametrize(("url", "kind", "path"), PATHS)
def test_a_url_names_a_store_and_its_path(
    url: str, kind: type, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url).store
    assert isinstance(store, SqliteStore | FileStore) and type(store) is kind
    assert store.path.absolute() == tmp_path / path
    assert list(tmp_path.iterdir()) == []  # nothing is opened yet


@pytest.mark.parametrize("url", ["memory:", "memory://"])
async def test_memory_is_a_store_of_its_own_each_time(url: str) -> None:
    first, second = open_store(url), open_store(url)
    await first.save(a_checkpoint())
    assert isinstance(first, InMemoryCheckpointStorage) and await second.list_checkpoint_ids() == []


async def test_url_and_path_open_the_same_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///a%20b.db") as storage:
        await storage.save(a_checkpoint(checkpoint_id="c1"))
    async with SqliteCheckpointStorage("a b.db") as same, open_store(tmp_path / "a b.db") as by_path:
        assert await same.list_checkpoint_ids() == await by_path.list_checkpoint_ids() == ["c1"]


@pytest.mark.parametrize("url", ["sqlit:///a.db", "sqlite3:///a.db", "SQLit:///a.db"])
def test_unknown_scheme_is_rejected_with_the_nearest_scheme(url: str) -> None:
    with pytest.raises(ValueError, match=r"[Dd]id you mean 'sqlite'"):
        open_store(url)


@pytest.mark.parametrize("url", ["mysql://host/db", "", "threads", ":", "://", "http://example.com/a.db"])
def test_url_that_names_no_store_is_rejected_with_examples(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///threads\.db, file:folder, postgresql://host/database or memory:"):
        open_store(url)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite:///", "file:", "file://"])
def test_a_url_without_a_path_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="no path"):
        open_store(url)


@pytest.mark.parametrize("url", ["sqlite:///a.db?mode=ro", "file:///folder?fsync=false", "sqlite:///a.db#part"])
def test_url_with_options_is_rejected_and_not_taken_as_a_path(url: str) -> None:
    with pytest.raises(ValueError, match="options"):
        open_store(url)


@pytest.mark.parametrize("url", ["postgresql://user:secret@host/db", "postgres://host/db?schema=perdure"])
def test_a_url_of_postgresql_opens_nothing_yet(url: str) -> None:
    storage = open_store(url)
    assert isinstance(storage, PostgresCheckpointStorage)
    assert isinstance(storage.store, PostgresStore) and storage.store.location == "host:5432/db perdure"


@pytest.mark.parametrize("url", ["postgresq://user:secret@host/db", "mysql://user:secret@host/db"])
def test_a_mistyped_scheme_does_not_show_a_password(url: str) -> None:
    with pytest.raises(ValueError, match="does not name a store") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dsn": "host=db password=secret"}, "begins with postgresql://"),
        ({"dsn": None}, "begins with postgresql://"),
        ({"pool_size": 0}, "pool_size expects"),
        ({"pool_size": True}, "pool_size expects"),
        ({"acquire_seconds": -1}, "acquire_seconds expects"),
        ({"statement_seconds": "10"}, "statement_seconds expects"),
        ({"schema": ""}, "schema expects"),
        ({"schema": "pg_mine"}, "schema expects"),
        ({"schema": "s" * 64}, "schema expects"),
    ],
)
def test_invalid_postgresql_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        PostgresCheckpointStorage(**{"dsn": "postgresql://host/db", **options})
    assert "secret" not in str(caught.value)


def test_invalid_encryption_is_rejected_and_not_shown() -> None:
    with pytest.raises(TypeError, match=r"encryption expects AesGcm\(key\), got a str") as caught:
        InMemoryCheckpointStorage(encryption="secret")  # type: ignore[arg-type]  # what people try
    assert "secret" not in str(caught.value)


def test_redis_is_for_postgresql_only() -> None:
    with pytest.raises(ValueError, match="redis_url is for a store in PostgreSQL"):
        open_store("sqlite:///threads.db", redis_url="redis://localhost")


@pytest.mark.parametrize("url", [None, 7, b"sqlite:///a.db"])
def test_invalid_url_type_is_rejected(url: Any) -> None:
    with pytest.raises(TypeError):
        open_store(url)
