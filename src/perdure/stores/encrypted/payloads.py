"""Encrypting and decrypting the records of one thread.

Each payload is encrypted by itself, and bound to its thread, its kind and its name: the number of a commit, the stored
name of a chunk, the id of a delivery or of an inbox item. The kind of an inbox item precedes its body. Ids, numbers and
times are not encrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from perdure.errors import (
    DamagedCheckpoint,
    MissingKey,
    PlaintextRefused,
    UnreadableValue,
    UnsupportedId,
    WorkflowCheckpointException,
)
from perdure.records import (
    Commit,
    InboxItem,
    JournalEntry,
    LoggedEvents,
    OpenedThread,
    StoredCheckpoint,
    ThreadHeader,
)
from perdure.store import Rewrite
from perdure.stores.encrypted.names import Names, Scramble
from perdure.stores.packing import Chunks

_LABELS = {
    "root": "the checkpoint of commit {}",
    "chunk": "chunk {}",
    "events": "the event log of commit {}",
    "journal": "the journal of delivery {}",
    "inbox": "item {} of the inbox",
}
OF_HEAD = "of its head"
_Change: TypeAlias = Callable[[str, str | int, bytes], bytes]
"""Encrypts or decrypts a payload, from its kind, its name and its bytes."""
Header = TypeVar("Header", ThreadHeader, OpenedThread)


class Encryption(Protocol):
    """An encryption such as `perdure.AesGcm`."""

    @property
    def current_key_id(self) -> str:
        """The key for new payloads."""

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        """The data as JSON, encrypted with the current key and bound to this place in this thread."""

    def decrypt(self, thread_id: str, place: str, payload: bytes) -> bytes:
        """The plain data. Raises KeyError with the id of an unknown key, and ValueError for a payload that was changed
        or belongs to another place."""

    def key_id_of(self, payload: bytes) -> str | None:
        """The key of an encrypted payload; None if the payload is not encrypted."""

    def scrambler(self, key: bytes, thread_id: str) -> Callable[[], Scramble]:
        """A factory of functions that encrypt blocks of 16 bytes."""


class ThreadPayloads:
    """Seals and unseals the records of one thread."""

    def __init__(self, encryption: Encryption, thread_id: str, names: Names | None = None) -> None:
        self._encryption = encryption
        self._thread_id = thread_id
        self._names = names
        """None for an empty store, or where chunks do not matter."""

    def seal(self, kind: str, name: str | int, data: bytes) -> bytes:
        return self._encryption.encrypt(self._thread_id, f"{kind}\0{name}", data)

    def unseal(self, kind: str, name: str | int, payload: bytes, checkpoint_id: str = OF_HEAD) -> bytes:
        """Raises MissingKey, PlaintextRefused, or DamagedCheckpoint for this checkpoint."""
        try:
            return self._encryption.decrypt(self._thread_id, f"{kind}\0{name}", payload)
        except KeyError as error:
            raise MissingKey(self._label(kind, name), self._encryption.key_id_of(payload)) from error
        except ValueError as error:
            if self._encryption.key_id_of(payload) is None:
                raise PlaintextRefused(self._label(kind, name)) from None
            reason = f"{_LABELS[kind].format(name)} cannot be decrypted: {error}"
            raise DamagedCheckpoint(checkpoint_id, reason, self._thread_id) from error

    def _label(self, kind: str, name: str | int) -> str:
        label = _LABELS[kind].format(name)
        return f"{label[0].upper()}{label[1:]} in thread {self._thread_id!r}"

    def seal_item(self, item: InboxItem) -> InboxItem:
        body = self.seal("inbox", item.item_id, item.kind.encode() + b"\0" + item.body)
        return InboxItem(item.item_id, item.kind, body)

    def unseal_item(self, item: InboxItem) -> InboxItem:
        kind, data = item.kind.encode() + b"\0", self.unseal("inbox", item.item_id, item.body)
        if not data.startswith(kind):
            raise DamagedCheckpoint(OF_HEAD, f"item {item.item_id!r} of the inbox had another kind", self._thread_id)
        return InboxItem(item.item_id, item.kind, data[len(kind) :])

    def seal_entry(self, entry: JournalEntry) -> JournalEntry:
        return JournalEntry(entry.number, entry.delivery_id, self.seal("journal", entry.delivery_id, entry.body))

    def unseal_entry(self, entry: JournalEntry) -> JournalEntry:
        return JournalEntry(entry.number, entry.delivery_id, self.unseal("journal", entry.delivery_id, entry.body))

    def seal_commit(self, commit: Commit) -> Commit:
        names = {} if self._names is None else self._names.encrypt(chunk_names(commit))

        def seal(kind: str, name: str | int, data: bytes) -> bytes:
            return self.seal(kind, names[name] if isinstance(name, str) else name, data)

        return _change_commit(commit, names, seal)

    def unseal_commits(self, commits: Sequence[Commit]) -> list[Commit]:
        names = self._plain_names(name for commit in commits for name in chunk_names(commit))
        return [_change_commit(commit, names, self._unseal_of(commit)) for commit in commits]

    def unseal_events(self, logged: Sequence[LoggedEvents]) -> list[LoggedEvents]:
        names = self._plain_names(name for events in logged for name in events.own)
        return [_change_events(events, events.number, names, self._unseal_of(events)) for events in logged]

    def _unseal_of(self, record: Commit | LoggedEvents) -> _Change:
        """`unseal` with the name of the record's checkpoint in its errors."""
        checkpoint_id = f"of commit {record.number}" if record.info is None else record.info.checkpoint_id
        return partial(self.unseal, checkpoint_id=checkpoint_id)

    def unseal_checkpoint(self, stored: StoredCheckpoint) -> StoredCheckpoint:
        info = stored.info
        return StoredCheckpoint(info, self.unseal("root", info.number, stored.root, info.checkpoint_id))

    def unseal_chunks(self, stored: Mapping[int, Mapping[str, bytes]]) -> dict[int, Mapping[str, bytes]]:
        """Decrypts all names at once, and a chunk when it is read."""
        return self._chunks(stored, self._unseal_chunk)

    def unseal_recalled(self, stored: Mapping[int, Mapping[str, bytes]]) -> dict[int, Mapping[str, bytes]]:
        """The same for chunks of a cache. They may be wrong in any way, which is not damage of the store."""
        try:
            return self._chunks(stored, self._unseal_recalled_chunk)
        except UnsupportedId:
            return {}

    def _chunks(
        self, stored: Mapping[int, Mapping[str, bytes]], unseal: Callable[[Mapping[str, bytes], int, str], bytes]
    ) -> dict[int, Mapping[str, bytes]]:
        names = self._plain_names(name for chunks in stored.values() for name in chunks)
        return {
            number: Chunks({names[name]: name for name in chunks}, partial(unseal, chunks, number))
            for number, chunks in stored.items()
        }

    def _unseal_chunk(self, chunks: Mapping[str, bytes], number: int, name: str) -> bytes:
        return self.unseal("chunk", name, chunks[name], f"of commit {number}")

    def _unseal_recalled_chunk(self, chunks: Mapping[str, bytes], number: int, name: str) -> bytes:
        try:
            return self._unseal_chunk(chunks, number, name)
        except WorkflowCheckpointException as error:
            raise UnreadableValue(f"chunk {name}", str(error)) from error

    def seal_header(self, header: ThreadHeader) -> ThreadHeader:
        journal = [self.seal_entry(entry) for entry in header.journal]
        return msgspec.structs.replace(header, journal=journal, inbox=[self.seal_item(item) for item in header.inbox])

    def unseal_header(self, header: Header) -> Header:
        """Decrypts the journal and the inbox."""
        journal = [self.unseal_entry(entry) for entry in header.journal]
        return msgspec.structs.replace(header, journal=journal, inbox=[self.unseal_item(item) for item in header.inbox])

    def unseal_opened(self, opened: OpenedThread) -> OpenedThread:
        """Reports payloads that cannot be decrypted as damage, so that the thread can still be rewound. Raises
        MissingKey."""
        root, info = opened.root, opened.info
        try:
            if root is not None:
                number, name = (opened.number, OF_HEAD) if info is None else (info.number, info.checkpoint_id)
                root = self.unseal("root", number, root, name)
            opened = self.unseal_header(opened)
        except (DamagedCheckpoint, PlaintextRefused) as error:
            reason = error.reason if isinstance(error, DamagedCheckpoint) else f"{error.place} is not encrypted"
            root, opened = None, msgspec.structs.replace(opened, journal=(), inbox=(), damage=opened.damage or reason)
        return msgspec.structs.replace(opened, root=root, is_encrypted=False)

    def encrypted_change(self, change: Rewrite) -> Rewrite:
        """The change of encrypted payloads that applies `change` to the plain ones."""

        def change_payload(kind: str, name: str, payload: bytes) -> bytes:
            data, start = self.unseal(kind, name, payload), b""
            if kind == "inbox":
                item_kind, zero, data = data.partition(b"\0")
                start = item_kind + zero
            after = change(kind, self._plain_names([name])[name] if kind == "chunk" else name, data)
            return payload if after == data else self.seal(kind, name, start + after)

        return change_payload

    def _plain_names(self, names: Iterable[str]) -> dict[str, str]:
        return {} if self._names is None else self._names.decrypt(names)


def chunk_names(commit: Commit) -> Iterator[str]:
    """All names of chunks in a commit, complete or shortened."""
    yield from commit.chunks
    for ref in (*commit.dropped, *commit.carried):
        yield ref.partition(".")[0]
    if commit.events is not None:
        yield from commit.events.own


def _change_commit(commit: Commit, names: Mapping[str, str], change: _Change) -> Commit:
    """The commit with other names of its chunks, and with all its payloads changed."""
    number, root, events = commit.number, commit.root, commit.events
    return msgspec.structs.replace(
        commit,
        root=None if root is None else change("root", number, root),
        events=None if events is None else _change_events(events, number, names, change),
        chunks={names[name]: change("chunk", name, data) for name, data in commit.chunks.items()},
        dropped=[_rename(ref, names) for ref in commit.dropped],
        carried=[_rename(ref, names) for ref in commit.carried],
    )


def _change_events(events: LoggedEvents, number: int, names: Mapping[str, str], change: _Change) -> LoggedEvents:
    own = [names[digest] for digest in events.own]
    return msgspec.structs.replace(events, body=change("events", number, events.body), own=own)


def _rename(ref: str, names: Mapping[str, str]) -> str:
    digest, dot, number = ref.partition(".")
    return f"{names[digest]}{dot}{number}"
