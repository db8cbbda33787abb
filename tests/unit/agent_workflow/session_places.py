"""Session stores of every kind, and a process that waits for a line on stdin, appends, and prints each version."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.schemas import where

from perdure.agent_workflow.sessions import (
    InMemorySessionStore,
    JsonSessionStore,
    SessionEntry,
    SessionHead,
    SqliteSessionStore,
    StorageSessionStore,
)
from perdure.agents.conversation.message import Message
from perdure.codecs.aes_gcm import AesGcm
from perdure.storages import PostgresCheckpointStorage

ON_DISK = ["json", "sqlite", "postgres"]
"""Several objects, in one process or in more, can use the same store."""
KINDS = ["memory", *ON_DISK]


def open_sessions(kind: str, folder: Path, encryption: AesGcm | None = None) -> StorageSessionStore:
    """The store of this kind that belongs to the folder."""
    if kind == "json":
        return JsonSessionStore(folder / "sessions", encryption=encryption)
    if kind == "sqlite":
        return SqliteSessionStore(folder / "sessions", encryption=encryption)
    if kind == "postgres":
        place = where(folder)
        return StorageSessionStore(PostgresCheckpointStorage(place.dsn, schema=place.schema, encryption=encryption))
    return InMemorySessionStore()


async def speak(store: StorageSessionStore, name: str, count: int) -> None:
    version = ""
    for number in range(count):
        messages = (Message("user", f"{name} {number} {'.' * 200}"),)
        entry = SessionEntry(thread_id="t", parent=version, messages=messages, execution_id=name)
        version = await store.append("s", entry)
        await store.advance("s", SessionHead(thread_id="t", execution_id=name, version=version))
        print(version, flush=True)
    await store.close()


if __name__ == "__main__":
    own_kind, path, own_name, times = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(speak(open_sessions(own_kind, Path(path)), own_name, int(times)))
