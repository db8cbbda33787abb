"""Encrypting and decrypting the records of one thread.

Each payload is encrypted by itself, and bound to its thread, its kind and its name: the number of a commit, the stored
name of a chunk, the id of a delivery or of an inbox item. The kind of an inbox item precedes its body. Ids, numbers and
times are not encrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

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

_LABELS = {
    "root": "the checkpoint of commit {}",
    "chunk": "chunk {}",
    "events": "the event log of commit {}",
    "journal": "the journal of delivery {}",
    "inbox": "item {} of the inbox",
}
OF_HEAD = "of its head"


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
        events = commit.events
        names = self._stored_names(chunk_names(commit))
        if events is not None:
            body, own = self.seal("events", commit.number, events.body), [names[digest] for digest in events.own]
            events = msgspec.structs.replace(events, body=body, own=own)
        return msgspec.structs.replace(
            commit,
            root=None if commit.root is None else self.seal("root", commit.number, commit.root),
            events=events,
            chunks={names[name]: self.seal("chunk", names[name], data) for name, data in commit.chunks.items()},
            dropped=[_rename(ref, names) for ref in commit.dropped],
            carried=[_rename(ref, names) for ref in commit.carried],
        )

    def unseal_commits(self, commits: Sequence[Commit]) -> list[Commit]:
        names = self._plain_names(name for commit in commits for name in chunk_names(commit))
        return [self._unseal_commit(commit, names) for commit in commits]

    def _unseal_commit(self, commit: Commit, names: Mapping[str, str]) -> Commit:
        checkpoint_id = f"of commit {commit.number}" if commit.info is None else commit.info.checkpoint_id
        root, events = commit.root, commit.events
        return msgspec.structs.replace(
            commit,
            root=None if root is None else self.unseal("root", commit.number, root, checkpoint_id),
            events=None if events is None else self._unseal_events(events, commit.number, checkpoint_id, names),
            chunks={
                names[name]: self.unseal("chunk", name, data, checkpoint_id) for name, data in commit.chunks.items()
            },
            dropped=[_rename(ref, names) for ref in commit.dropped],
            carried=[_rename(ref, names) for ref in commit.carried],
        )

    def _unseal_events(
        self, events: LoggedEvents, number: int, checkpoint_id: str, names: Mapping[str, str]
    ) -> LoggedEvents:
        body = self.unseal("events", number, events.body, checkpoint_id)
        return msgspec.structs.replace(events, body=body, own=[names[digest] for digest in events.own])

    def unseal_events(self, logged: Sequence[LoggedEvents]) -> list[LoggedEvents]:
        names = self._plain_names(name for events in logged for name in events.own)
        return [
            self._unseal_events(
                events,
                events.number,
                f"of commit {events.number}" if events.info is None else events.info.checkpoint_id,
                names,
            )
            for events in logged
        ]

    def unseal_checkpoint(self, stored: StoredCheckpoint) -> StoredCheckpoint:
        info = stored.info
        return StoredCheckpoint(info, self.unseal("root", info.number, stored.root, info.checkpoint_id))

    def unseal_chunks(self, stored: Mapping[int, Mapping[str, bytes]]) -> dict[int, Mapping[str, bytes]]:
        """Decrypts all names at once, and a chunk when it is read."""
        return self._chunks(stored, _EncryptedChunks)

    def unseal_recalled(self, stored: Mapping[int, Mapping[str, bytes]]) -> dict[int, Mapping[str, bytes]]:
        """The same for chunks of a cache. They may be wrong in any way, which is not damage of the store."""
        try:
            return self._chunks(stored, _RecalledChunks)
        except UnsupportedId:
            return {}

    def _chunks(
        self, stored: Mapping[int, Mapping[str, bytes]], kind: type[_EncryptedChunks]
    ) -> dict[int, Mapping[str, bytes]]:
        names = self._plain_names(name for chunks in stored.values() for name in chunks)
        return {
            number: kind(self, number, chunks, {names[name]: name for name in chunks})
            for number, chunks in stored.items()
        }

    def seal_header(self, header: ThreadHeader) -> ThreadHeader:
        return msgspec.structs.replace(
            header,
            journal=[self.seal_entry(entry) for entry in header.journal],
            inbox=[self.seal_item(item) for item in header.inbox],
        )

    def unseal_header(self, header: ThreadHeader) -> ThreadHeader:
        return msgspec.structs.replace(
            header,
            journal=[self.unseal_entry(entry) for entry in header.journal],
            inbox=[self.unseal_item(item) for item in header.inbox],
        )

    def unseal_opened(self, opened: OpenedThread) -> OpenedThread:
        """Reports payloads that cannot be decrypted as damage, so that the thread can still be rewound. Raises
        MissingKey."""
        root, info = opened.root, opened.info
        try:
            if root is not None:
                number, name = (opened.number, OF_HEAD) if info is None else (info.number, info.checkpoint_id)
                root = self.unseal("root", number, root, name)
            journal = [self.unseal_entry(entry) for entry in opened.journal]
            inbox = [self.unseal_item(item) for item in opened.inbox]
        except (DamagedCheckpoint, PlaintextRefused) as error:
            reason = error.reason if isinstance(error, DamagedCheckpoint) else f"{error.place} is not encrypted"
            root, journal, inbox = None, [], []
            opened = msgspec.structs.replace(opened, damage=opened.damage or reason)
        return msgspec.structs.replace(opened, root=root, journal=journal, inbox=inbox, is_encrypted=False)

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

    def _stored_names(self, names: Iterable[str]) -> dict[str, str]:
        return {} if self._names is None else self._names.encrypt(names)

    def _plain_names(self, names: Iterable[str]) -> dict[str, str]:
        return {} if self._names is None else self._names.decrypt(names)


def chunk_names(commit: Commit) -> Iterator[str]:
    """All names of chunks in a commit, complete or shortened."""
    yield from commit.chunks
    for ref in (*commit.dropped, *commit.carried):
        yield ref.partition(".")[0]
    if commit.events is not None:
        yield from commit.events.own


def _rename(ref: str, names: Mapping[str, str]) -> str:
    digest, dot, number = ref.partition(".")
    return f"{names[digest]}{dot}{number}"


class _EncryptedChunks(Mapping[str, bytes]):
    """Chunks by digest. Decrypts a chunk when it is read."""

    __slots__ = ("_chunks", "_names", "_number", "_payloads")

    def __init__(
        self, payloads: ThreadPayloads, number: int, chunks: Mapping[str, bytes], names: Mapping[str, str]
    ) -> None:
        self._payloads = payloads
        self._number = number
        self._chunks = chunks
        self._names = names

    def __getitem__(self, digest: str) -> bytes:
        name = self._names[digest]
        return self._payloads.unseal("chunk", name, self._chunks[name], f"of commit {self._number}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _RecalledChunks(_EncryptedChunks):
    __slots__ = ()

    def __getitem__(self, digest: str) -> bytes:
        try:
            return super().__getitem__(digest)
        except WorkflowCheckpointException as error:
            raise UnreadableValue(f"chunk {digest}", str(error)) from error
