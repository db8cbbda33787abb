"""Conversations that are stored: a session is a thread of a storage, with entries that are only appended."""

from __future__ import annotations

import os
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import msgspec

from perdure import storages
from perdure.agent_workflow.store import StateThreads
from perdure.agents.conversation.json_struct import encode_value
from perdure.agents.conversation.message import Message
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.encode import declare_types
from perdure.checkpoints.history.retention import LatestOnly
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import ConversationNotFound, NewerFormat, StorageFailed
from perdure.isolation import isolate
from perdure.names import check_identifier, digest_of

T = TypeVar("T")

FORMAT = 1
PART = 256
"""How many items of a log are in one list of the state: only the last list costs anything in a commit."""


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages, and the entry that they follow. An entry never changes. A version of a conversation is the id of an
    entry: it means that entry and all entries before it."""

    thread_id: str
    parent: str = ""
    """The version that it follows; empty for the first entry."""
    messages: tuple[Message, ...] = ()
    repeats: tuple[str, ...] = ()
    """Instead of messages: entries whose messages are part of the conversation from here on. They are stored once."""
    workflow_name: str = ""
    execution_id: str = ""
    node_id: str = ""
    at: datetime | None = None
    state: dict[str, Any] = {}  # msgspec copies it
    """The state that the node's agent keeps between turns."""


class SessionHead(msgspec.Struct, frozen=True, kw_only=True):
    """The version that an execution has reached in a thread."""

    thread_id: str
    execution_id: str
    version: str
    """Empty: a rewind removed its entries."""


declare_types((), (), (SessionEntry, SessionHead))  # a storage reads them without a workflow


class Session:
    """A session as of one checkpoint of its thread. The state has a log, in lists `log.0`, `log.1` and so on, of heads
    and of entries with their ids.

    In an encrypted storage the ids depend on a random `key` in the state. So a checkpoint elsewhere that names an id
    reveals nothing to a reader who guesses its messages. The key stays when the encryption key changes.
    """

    def __init__(self, session_id: str, state: Mapping[str, Any] | None, *, is_encrypted: bool) -> None:
        """Raises NewerFormat. Without a state it is new."""
        self.session_id = session_id
        self._state = state or {"format": FORMAT, "key": os.urandom(16).hex() if is_encrypted else ""}
        if self._state["format"] > FORMAT:
            raise NewerFormat(f"session {session_id}", self._state["format"], FORMAT)
        self._entries: dict[str, SessionEntry] = {}
        self._heads: dict[tuple[str, str], SessionHead] = {}
        """By thread and execution, in the order of their last change."""
        self._size = 0
        while part := self._state.get(f"log.{self._size // PART}"):
            for item in part:
                self._index(item)
            if self._size % PART:
                break

    def _index(self, item: Any) -> None:
        self._size += 1
        if isinstance(item, SessionHead):
            self._heads.pop((item.thread_id, item.execution_id), None)
            self._heads[item.thread_id, item.execution_id] = item
        else:
            version, entry = item
            self._entries[version] = entry

    def with_entry(self, entry: SessionEntry) -> tuple[str, Mapping[str, Any] | None]:
        """The entry's id, and the state with the entry; None if it is part of the session. Raises ConversationNotFound
        if the entries that it refers to are missing.

        The id comes from the content: equal messages after the same entry, as after a crash, are the same entry.
        """
        self._check([entry.parent, *entry.repeats])
        tree = encode_value(msgspec.structs.replace(entry, at=None), "conversation")
        version = digest_of(self._state["key"].encode() + msgspec.json.encode(tree, order="deterministic"))
        return version, None if version in self._entries else self._with([version, isolate(entry)])

    def with_head(self, head: SessionHead) -> Mapping[str, Any] | None:
        """The state with this head; None if it is the current one. Raises ConversationNotFound."""
        self._check([head.version])
        return None if self._heads.get((head.thread_id, head.execution_id)) == head else self._with(head)

    def _with(self, item: Any) -> Mapping[str, Any]:
        """With the same items, of which a commit encodes only the new one."""
        key = f"log.{self._size // PART}"
        return {**self._state, key: [*self._state.get(key, ()), item]}

    def follow(self, state: Mapping[str, Any]) -> None:
        """Continue to a state of `with_entry` or `with_head`, once it is stored."""
        self._index(state[f"log.{self._size // PART}"][-1])
        self._state = state

    def _check(self, versions: Iterable[str]) -> None:
        for version in versions:
            if version and version not in self._entries:
                raise ConversationNotFound(self.session_id, version)

    def read(self, version: str) -> dict[str, SessionEntry]:
        """The entries up to a version, by id, in the order in which they are part of the conversation. A reader may
        change what they hold."""
        self._check([version])
        line: list[str] = []
        while version:
            line.append(version)
            version = self._entries[version].parent
        ids: dict[str, None] = {}
        for entry_id in reversed(line):
            ids |= dict.fromkeys([*self._entries[entry_id].repeats, entry_id])
        return {entry_id: isolate(self._entries[entry_id]) for entry_id in ids}

    def heads(self) -> list[SessionHead]:
        return list(self._heads.values())


def messages_in(entries: Mapping[str, SessionEntry]) -> list[Message]:
    return [message for entry in entries.values() for message in entry.messages]


WORKFLOW = "perdure.conversations"
"""The name of the workflow whose threads are sessions."""
PREFIX = "conversation:"
"""The prefix of these threads' ids; the session's id follows."""
KNOWN_SESSIONS = 64
"""How many sessions are cached, so that only changed ones are read."""


@runtime_checkable
class SessionStore(Protocol):
    """Stores conversations. Entries never change, so a version can always be read.

    A version is the id of an entry. Entries that follow the same entry are branches: neither contains the other.
    """

    async def append(self, session_id: str, entry: SessionEntry) -> str:
        """Append an entry, and return its version. It is durable when this returns. An equal entry changes nothing.

        Raises ConversationNotFound if the session has not what it follows.
        """

    async def advance(self, session_id: str, head: SessionHead) -> None:
        """Set the version that an execution has reached in a thread. Existing versions stay readable."""

    async def read(self, session_id: str, version: str) -> dict[str, SessionEntry]:
        """The entries up to a version, by version, in the order of the conversation. Raises ConversationNotFound."""

    async def heads(self, session_id: str) -> list[SessionHead]:
        """The version that each execution has reached in each thread, in the order of their last change."""

    async def sessions(self) -> list[str]:
        """The ids of all sessions, in order."""

    async def delete(self, session_id: str) -> None:
        """Delete a session, if it exists. An execution that refers to it cannot continue."""

    async def threads(self, session_id: str) -> list[str]:
        """The ids of threads with messages."""
        return list(dict.fromkeys(head.thread_id for head in await self.heads(session_id) if head.version))

    async def messages(
        self, session_id: str, thread_id: str, version: str | None = None, *, execution_id: str | None = None
    ) -> list[Message]:
        """The messages of a thread: up to a version, or up to the head of an execution; by default the newest head.
        Empty for a thread without messages."""
        if version is None:
            versions = [
                head.version
                for head in await self.heads(session_id)
                if head.version and head.thread_id == thread_id and execution_id in (None, head.execution_id)
            ]
            version = versions[-1] if versions else ""
        return messages_in(await self.read(session_id, version))


class StorageSessionStore(SessionStore):
    """Stores conversations in any storage of perdure: `StorageSessionStore(PostgresCheckpointStorage(dsn))`.

    Session `s` is thread `conversation:s`, and each change one checkpoint of it. So sessions are listed, pruned,
    verified and exported like other threads, also beside them in the storage of the executions.
    """

    def __init__(self, storage: StoreCheckpointStorage) -> None:
        self._threads = StateThreads(storage, WORKFLOW, PREFIX, "session store")
        self._known: OrderedDict[str, tuple[str, Session]] = OrderedDict()
        """The sessions that were used last, each with the id of its checkpoint."""

    @property
    def storage(self) -> StoreCheckpointStorage:
        return self._threads.storage

    @property
    def keeps_plain_text(self) -> bool:
        """Whether another program can read its messages: in memory none can."""
        return not isinstance(self.storage, storages.InMemoryCheckpointStorage) and not is_encrypted(self.storage)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the storage. A later call opens it again."""
        await self.storage.close()

    async def append(self, session_id: str, entry: SessionEntry) -> str:
        if bool(entry.messages) == bool(entry.repeats):
            raise ValueError(f"An entry has either messages or repeated entries, got {entry!r}.")
        return await self._change(session_id, lambda session: session.with_entry(entry))

    async def advance(self, session_id: str, head: SessionHead) -> None:
        await self._change(session_id, lambda session: (None, session.with_head(head)))

    async def read(self, session_id: str, version: str) -> dict[str, SessionEntry]:
        return (await self._load(session_id)).read(version)

    async def heads(self, session_id: str) -> list[SessionHead]:
        return (await self._load(session_id)).heads()

    async def sessions(self) -> list[str]:
        return sorted(await self._threads.names())

    async def delete(self, session_id: str) -> None:
        check_identifier("session_id", session_id)
        await self._threads.delete(session_id)

    async def _change(self, session_id: str, change: Callable[[Session], tuple[T, Mapping[str, Any] | None]]) -> T:
        """The first that `change` returns, once the second, the next state, is stored; None: no change."""
        check_identifier("session_id", session_id)
        session: Session
        result: T
        state: Mapping[str, Any] | None = None

        def next_state(head: WorkflowCheckpoint | None) -> Mapping[str, Any] | None:
            nonlocal session, result, state
            session = self._session_at(session_id, head)
            result, state = change(session)
            return state

        info = await self._threads.change(session_id, next_state)
        if state is not None:
            session.follow(state)
        self._remember(session_id, info.checkpoint_id, session)
        return result

    async def _load(self, session_id: str) -> Session:
        check_identifier("session_id", session_id)
        info = await self._threads.head_info(session_id)
        checkpoint_id, session = self._known.get(session_id, ("", None))
        if info is not None and session is not None and checkpoint_id == info.checkpoint_id:
            return session
        return self._session_at(session_id, None if info is None else await self._threads.read(session_id))

    def _session_at(self, session_id: str, head: WorkflowCheckpoint | None) -> Session:
        if head is None:
            return Session(session_id, None, is_encrypted=is_encrypted(self.storage))
        checkpoint_id, session = self._known.get(session_id, ("", None))
        if session is None or checkpoint_id != head.checkpoint_id:
            session = Session(session_id, head.state, is_encrypted=is_encrypted(self.storage))
            self._remember(session_id, head.checkpoint_id, session)
        return session

    def _remember(self, session_id: str, checkpoint_id: str, session: Session) -> None:
        self._known[session_id] = checkpoint_id, session
        self._known.move_to_end(session_id)
        while len(self._known) > KNOWN_SESSIONS:
            self._known.popitem(last=False)


def is_encrypted(storage: StoreCheckpointStorage) -> bool:
    store: Any = storage.store
    while store is not None and not hasattr(store, "rekey"):  # only an encrypted store has it
        store = getattr(store, "inner", None)
    return store is not None


class InMemorySessionStore(StorageSessionStore):
    """Stores conversations in the memory of the process: for tests and short-lived work."""

    def __init__(self) -> None:
        super().__init__(storages.InMemoryCheckpointStorage(retention=LatestOnly))


class JsonSessionStore(StorageSessionStore):
    """Stores conversations in a folder, one file of JSON lines for each session, for any number of processes of one
    machine.

    With `encryption=AesGcm(key)`, only a process with the key can read them.
    """

    def __init__(self, root_directory: str | os.PathLike[str], *, encryption: storages.AesGcm | None = None) -> None:
        _refuse_earlier_form("JsonSessionStore", Path(root_directory))
        super().__init__(storages.FileCheckpointStorage(root_directory, retention=LatestOnly, encryption=encryption))


class SqliteSessionStore(StorageSessionStore):
    """Stores conversations in one SQLite file, for any number of processes of one machine; with `encryption`, encrypted
    like those of a `JsonSessionStore`."""

    def __init__(self, path: str | os.PathLike[str], *, encryption: storages.AesGcm | None = None) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError("A SqliteSessionStore is a file. For one in memory use InMemorySessionStore().")
        _refuse_earlier_form("SqliteSessionStore", Path(path))
        super().__init__(storages.SqliteCheckpointStorage(path, retention=LatestOnly, encryption=encryption))


def _refuse_earlier_form(store: str, path: Path) -> None:
    """Raises StorageFailed for a folder or a SQLite file with conversations in a form that is not read any more."""
    part, place = "", "folder"
    earlier = sorted(file.name for file in path.glob("*.jsonl") if re.search(r"~[0-9a-f]{16}\.jsonl$", file.name))
    if earlier:
        part = f"its file {earlier[0]!r}"
    elif path.is_file():
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as db:  # reported when the store is used
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'session_lines'").fetchone():
                part, place = "its table 'session_lines'", "file"
    if part:
        reason = (
            f"{part} has conversations in the form of an earlier version, which this version does not read. Let its "
            f"executions end with that version, and give this one another {place}"
        )
        raise StorageFailed(store, f"use {str(path)!r}", reason)
