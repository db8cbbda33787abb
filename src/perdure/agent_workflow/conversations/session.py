"""One session: entries that are only appended, and the version that each execution has reached."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from perdure.agents.conversation.message import Message, encode_value
from perdure.checkpoints.encoding.encode import declare_types
from perdure.errors import ConversationNotFound, NewerFormat
from perdure.isolation import isolate
from perdure.names import digest_of

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
        content = msgspec.json.encode(tree, order="deterministic")
        version = digest_of(self._state["key"].encode() + content)
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
