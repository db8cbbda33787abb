"""The storages that users construct: `StoreCheckpointStorage` over each store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack
from urllib.parse import unquote

from perdure.checkpoints.history.retention import Retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codec import Codec
from perdure.errors import did_you_mean
from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.memory.store import MemoryStore
from perdure.stores.postgres.urls import redacted_url, split_schema
from perdure.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from perdure.codecs.aes_gcm import AesGcm as AesGcm  # noqa: PLC0414  # for agent_workflow, too


class StorageOptions(TypedDict, total=False):
    """Options that all storages have, as `StoreCheckpointStorage` takes them."""

    serializer: Codec | None
    allowed_types: Iterable[type | str] | None
    retention: Retention | type[Retention] | None


class InMemoryCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints until the process ends: for tests, demonstrations and short-lived work."""

    def __init__(
        self,
        *,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        encryption: AesGcm | None = None,
        **options: Unpack[StorageOptions],
    ) -> None:
        store = _encrypt(MemoryStore(), encryption)
        super().__init__(store, allowed_checkpoint_types=allowed_checkpoint_types, **options)


class SqliteCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints in one SQLite file, for any number of processes of one machine.

    `synchronous="FULL"` keeps every acknowledged commit over a power cut. `"NORMAL"` is faster; it survives any crash
    of the process, and may lose the last commits in a power cut.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        busy_seconds: float = 30.0,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        encryption: AesGcm | None = None,
        **options: Unpack[StorageOptions],
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueError(f"synchronous expects 'FULL' or 'NORMAL', got {synchronous!r}.")
        _check_path(path, "SqliteCheckpointStorage")
        _check_seconds(busy_seconds)
        if os.fspath(path) == ":memory:":
            raise ValueError("A SqliteCheckpointStorage is a file. For one in memory use InMemoryCheckpointStorage().")
        store = SqliteStore(path, synchronous=synchronous, busy_seconds=busy_seconds)
        super().__init__(_encrypt(store, encryption), allowed_checkpoint_types=allowed_checkpoint_types, **options)


class FileCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints in a folder, a file of JSON lines for each thread, for any number of processes of one machine.

    `fsync=False` is faster; it survives any crash of the process, and may lose the last commits in a power cut.
    """

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        encryption: AesGcm | None = None,
        **options: Unpack[StorageOptions],
    ) -> None:
        _check_path(storage_path, "FileCheckpointStorage")
        _check_seconds(busy_seconds)
        if not isinstance(fsync, bool):
            raise TypeError(f"fsync expects True or False, got {fsync!r}.")
        self.storage_path = Path(storage_path)
        """The folder. The first write creates it."""
        store = FileStore(storage_path, fsync=fsync, busy_seconds=busy_seconds)
        super().__init__(_encrypt(store, encryption), allowed_checkpoint_types=allowed_checkpoint_types, **options)


class PostgresCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints in PostgreSQL, for any number of processes on any number of machines.

    The first use creates the tables in `schema`. `redis_url` names a Valkey or Redis for notifications and live events.
    Without it, or while it is down, everything works, and followers get events later. At most `pool_size` connections
    are open. A caller that waits `acquire_seconds` for one gets `PoolExhausted`; a statement without an answer for
    `statement_seconds` fails.
    """

    def __init__(
        self,
        dsn: str,
        *,
        redis_url: str | None = None,
        schema: str = "perdure",
        pool_size: int = 10,
        acquire_seconds: float = 30.0,
        statement_seconds: float = 30.0,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        encryption: AesGcm | None = None,
        **options: Unpack[StorageOptions],
    ) -> None:
        _check_dsn(dsn)
        _check_schema(schema)
        if type(pool_size) is not int or pool_size < 1:
            raise ValueError(f"pool_size expects a number of connections, 1 or more, got {pool_size!r}.")
        limits = {"acquire_seconds": acquire_seconds, "statement_seconds": statement_seconds}
        for name, seconds in limits.items():
            _check_seconds(seconds, name)
        from perdure.stores.postgres.store import PostgresStore

        postgres = PostgresStore(dsn, schema=schema, pool_size=pool_size, **limits)
        store: Store = postgres
        if redis_url is not None:
            from perdure.stores.valkey.store import AcceleratedStore, Valkey

            store = AcceleratedStore(postgres, Valkey(redis_url), postgres.location)
        super().__init__(_encrypt(store, encryption), allowed_checkpoint_types=allowed_checkpoint_types, **options)


def open_store(
    url: str | os.PathLike[str],
    *,
    retention: Retention | type[Retention] | None = None,
    encryption: AesGcm | None = None,
    redis_url: str | None = None,
) -> StoreCheckpointStorage:
    """The storage of a URL: `sqlite:///threads.db`, `file:folder`, `memory:`, `postgresql://host/database`. Opens
    nothing yet.

    A relative path follows `sqlite:///`, an absolute one `sqlite:////`; `file:///var/x` is absolute and `file:x`
    relative. `postgresql://host/database?schema=name` names a schema other than `perdure`. A path without a scheme is a
    SQLite file if it ends in `.db`, `.sqlite` or `.sqlite3`. Raises ValueError for anything else.
    """
    text = os.fspath(url)
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if not colon or len(scheme) == 1:  # no scheme; C: is a drive
        if text.endswith((".db", ".sqlite", ".sqlite3")):
            return SqliteCheckpointStorage(text, retention=retention, encryption=encryption)
        raise ValueError(f"{text!r} does not name a store. Expected {_EXAMPLES}.")
    if scheme in ("postgresql", "postgres"):
        dsn, schema = split_schema(text)
        return PostgresCheckpointStorage(
            dsn, retention=retention, encryption=encryption, redis_url=redis_url, schema=schema or "perdure"
        )
    if redis_url is not None:
        raise ValueError(f"redis_url is for a store in PostgreSQL, not for {text!r}.")
    if scheme not in _SCHEMES:
        named = redacted_url(text) if "@" in text else text  # a mistyped scheme must not reveal a password
        raise ValueError(f"{named!r} does not name a store{did_you_mean(scheme, _SCHEMES)}. Expected {_EXAMPLES}.")
    if "?" in rest or "#" in rest:
        raise ValueError(f"{text!r}: pass options to the storage's constructor, not in a URL.")
    path = unquote(rest.removeprefix("///" if scheme == "sqlite" and rest.startswith("///") else "//"))
    if os.name == "nt" and path[2:3] == ":":  # file:///C:/folder
        path = path.removeprefix("/")
    if not path and scheme != "memory":
        raise ValueError(f"{text!r} has no path. Expected {_EXAMPLES}.")
    return _SCHEMES[scheme](path, retention=retention, encryption=encryption)


def keys_in_environment() -> AesGcm | None:
    """The encryption keys in PERDURE_KEYS; None without it. Raises ValueError for an invalid key."""
    from perdure.codecs.aes_gcm import VARIABLE, AesGcm

    return AesGcm.from_environment() if os.environ.get(VARIABLE) else None


_SCHEMES: dict[str, Callable[..., StoreCheckpointStorage]] = {
    "sqlite": SqliteCheckpointStorage,
    "file": FileCheckpointStorage,
    "memory": lambda _, **options: InMemoryCheckpointStorage(**options),
}
_EXAMPLES = "sqlite:///threads.db, file:folder, postgresql://host/database or memory:"


def _encrypt(store: Store, encryption: AesGcm | None) -> Store:
    if encryption is None:
        return store
    from perdure.stores.encrypted.store import EncryptedStore

    if not hasattr(encryption, "encrypt"):  # without its value, which may be a key
        raise TypeError(f"encryption expects AesGcm(key), got a {type(encryption).__name__}.")
    return EncryptedStore(store, encryption)


def _check_dsn(dsn: object) -> None:
    if not isinstance(dsn, str) or not dsn.startswith(("postgresql://", "postgres://")):
        kind = "a text that does not" if isinstance(dsn, str) else f"a {type(dsn).__name__}"  # it may hold a password
        raise ValueError(f"A PostgreSQL storage needs a URL that begins with postgresql://, got {kind}.")


def _check_schema(schema: object) -> None:
    is_name = isinstance(schema, str) and 0 < len(schema.encode()) <= 63 and "\0" not in schema
    if not is_name or str(schema).startswith("pg_"):
        raise ValueError(f"schema expects a name of at most 63 bytes that does not begin with pg_, got {schema!r}.")


def _check_path(argument: str | os.PathLike[str], kind: str) -> None:
    path = os.fspath(argument)
    if not path:
        raise ValueError(f"A {kind} needs a path, got an empty one.")
    if "://" in path:
        raise ValueError(f"A {kind} takes a path, and {path!r} is a URL. Use open_store({path!r}).")


def _check_seconds(seconds: object, name: str = "busy_seconds") -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"{name} expects a number of seconds, got {seconds!r}.")
