"""The storages users construct: a driver under the one storage class."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Literal
from urllib.parse import unquote

from holdfast.checkpoints.retention import Retention
from holdfast.checkpoints.storage import StoreCheckpointStorage
from holdfast.codec import Codec
from holdfast.errors import did_you_mean
from holdfast.stores.file import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore


class InMemoryCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints as long as the process lives: for tests, demonstrations and short-lived work."""

    def __init__(
        self,
        *,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] | None = None,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        retention: Retention | type[Retention] | None = None,
    ) -> None:
        super().__init__(
            MemoryStore(),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
            retention=retention,
        )


class SqliteCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints in one SQLite file, for any number of processes of one machine.

    `synchronous="FULL"` survives a power cut with everything that was acknowledged. `"NORMAL"` is faster, survives any
    crash of the process, and may lose the last commits to a power cut.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        busy_seconds: float = 30.0,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] | None = None,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        retention: Retention | type[Retention] | None = None,
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueError(f"synchronous expects 'FULL' or 'NORMAL', got {synchronous!r}.")
        _check_path(path, "SqliteCheckpointStorage")
        _check_seconds(busy_seconds)
        if os.fspath(path) == ":memory:":
            raise ValueError("A SqliteCheckpointStorage is a file. For one in memory use InMemoryCheckpointStorage().")
        super().__init__(
            SqliteStore(path, synchronous=synchronous, busy_seconds=busy_seconds),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
            retention=retention,
        )


class FileCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints in a folder, a file of JSON lines for each thread, for any number of processes of one machine.

    `fsync=False` is faster, survives any crash of the process, and may lose the last commits to a power cut.
    """

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] | None = None,
        allowed_checkpoint_types: Iterable[type | str] | None = None,
        retention: Retention | type[Retention] | None = None,
    ) -> None:
        _check_path(storage_path, "FileCheckpointStorage")
        _check_seconds(busy_seconds)
        if not isinstance(fsync, bool):
            raise TypeError(f"fsync expects True or False, got {fsync!r}.")
        super().__init__(
            FileStore(storage_path, fsync=fsync, busy_seconds=busy_seconds),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
            retention=retention,
        )


def open_store(
    url: str | os.PathLike[str], *, retention: Retention | type[Retention] | None = None
) -> StoreCheckpointStorage:
    """The storage that a URL names: `sqlite:///threads.db`, `file:folder`, `memory:`. Opens nothing yet.

    As everywhere, `sqlite:///` is followed by a path from here and `sqlite:////` by one from the root; `file:///var/x`
    is a path from the root and `file:x` one from here. A path without a scheme is a SQLite file if it ends in `.db`,
    `.sqlite` or `.sqlite3`. Raises ValueError for anything else.
    """
    text = os.fspath(url)
    scheme, found, rest = text.partition(":")
    scheme = scheme.lower()
    if not found or len(scheme) == 1:  # no scheme; or C:, which is none
        if text.endswith((".db", ".sqlite", ".sqlite3")):
            return SqliteCheckpointStorage(text, retention=retention)
        raise ValueError(f"{text!r} names no store. Expected {_EXAMPLES}.")
    if scheme in ("postgresql", "postgres"):
        raise ValueError(f"PostgreSQL comes with a later version of holdfast. For now: {_EXAMPLES}.")
    if scheme not in _SCHEMES:
        raise ValueError(f"{text!r} names no store{did_you_mean(scheme, _SCHEMES)}. Expected {_EXAMPLES}.")
    if "?" in rest or "#" in rest:
        raise ValueError(f"{text!r}: options are given to the storage's constructor, not in a URL.")
    path = unquote(rest.removeprefix("///" if scheme == "sqlite" and rest.startswith("///") else "//"))
    if os.name == "nt" and path[2:3] == ":":  # file:///C:/folder
        path = path.removeprefix("/")
    if not path and scheme != "memory":
        raise ValueError(f"{text!r} has no path. Expected {_EXAMPLES}.")
    return _SCHEMES[scheme](path, retention=retention)


_SCHEMES: dict[str, Callable[..., StoreCheckpointStorage]] = {
    "sqlite": SqliteCheckpointStorage,
    "file": FileCheckpointStorage,
    "memory": lambda _, **given: InMemoryCheckpointStorage(**given),
}
_EXAMPLES = "sqlite:///threads.db, file:folder or memory:"


def _check_path(given: str | os.PathLike[str], kind: str) -> None:
    path = os.fspath(given)
    if not path:
        raise ValueError(f"A {kind} needs a path, got an empty one.")
    if "://" in path:
        raise ValueError(f"A {kind} takes a path, and {path!r} is a URL. Use open_store({path!r}).")


def _check_seconds(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"busy_seconds expects a number of seconds, got {seconds!r}.")
