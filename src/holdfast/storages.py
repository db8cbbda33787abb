"""The storages users construct: a driver under the one storage class."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Literal
from urllib.parse import unquote

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
    ) -> None:
        super().__init__(
            MemoryStore(),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
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
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueError(f"synchronous expects 'FULL' or 'NORMAL', got {synchronous!r}.")
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("A SqliteCheckpointStorage is a file. For one in memory use InMemoryCheckpointStorage().")
        super().__init__(
            SqliteStore(path, synchronous=synchronous, busy_seconds=busy_seconds),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
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
    ) -> None:
        if not os.fspath(storage_path):
            raise ValueError("A FileCheckpointStorage needs the path of a folder, got an empty one.")
        super().__init__(
            FileStore(storage_path, fsync=fsync, busy_seconds=busy_seconds),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
        )


def open_store(url: str | os.PathLike[str]) -> StoreCheckpointStorage:
    """The storage that a URL names: `sqlite:///threads.db`, `file:///folder`, `memory:`. Opens nothing yet.

    Three slashes lead to a path from here, four to one from the root, as in `sqlite:////var/lib/threads.db`. A path
    without a scheme is a SQLite file if it ends in `.db`, `.sqlite` or `.sqlite3`. Raises ValueError for anything else.
    """
    text = os.fspath(url)
    scheme, found, rest = text.partition(":")
    if not found or len(scheme) == 1:  # no scheme; or C:, which is none
        if text.endswith((".db", ".sqlite", ".sqlite3")):
            return SqliteCheckpointStorage(text)
        raise ValueError(f"{text!r} names no store. Expected {_EXAMPLES}.")
    if scheme == "memory":
        return InMemoryCheckpointStorage()
    if scheme in ("postgresql", "postgres"):
        raise ValueError("PostgreSQL comes with a later version of holdfast. For now: " + _EXAMPLES + ".")
    if scheme not in _SCHEMES:
        raise ValueError(f"{text!r} names no store{did_you_mean(scheme, _SCHEMES)}. Expected {_EXAMPLES}.")
    path = unquote(rest.removeprefix("///") if rest.startswith("///") else rest.removeprefix("//"))
    if not path:
        raise ValueError(f"{text!r} has no path. Expected {_EXAMPLES}.")
    return _SCHEMES[scheme](path)


_SCHEMES: dict[str, Callable[[str], StoreCheckpointStorage]] = {
    "sqlite": SqliteCheckpointStorage,
    "file": FileCheckpointStorage,
    "memory": lambda _: InMemoryCheckpointStorage(),
}
_EXAMPLES = "sqlite:///threads.db, file:///folder or memory:"
