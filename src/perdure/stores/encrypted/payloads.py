"""What an encrypted store keeps in the place of what it is given, and back.

Each payload is encrypted by itself, and bound to its thread, its kind and its name there: the number of a commit, the
stored name of a chunk, a delivery, an item of the inbox (and its kind, which stands in front of its body). Ids, numbers
and times stay as they are.
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

_TOLD = {
    "root": "the checkpoint of commit {}",
    "chunk": "chunk {}",
    "events": "the event log of commit {}",
    "journal": "the journal of delivery {}",
    "inbox": "item {} of the inbox",
}
OF_HEAD = "of its head"


class Encryption(Protocol):
    """What encrypts: `perdure.AesGcm`."""

    @property
    def current_key_id(self) -> str:
        """The key that is written with."""

    def encrypt(self, thread_id: str, place: str, data: bytes) -> bytes:
        """The data as JSON that nobody can read without the current key, bound to this place in this thread."""

    def decrypt(self, thread_id: str, place: str, payload: bytes) -> bytes:
        """The data again. Raises KeyError with the id of a key that was not given, and ValueError for what is not as it
        was encrypted, or was for another place."""

    def key_id_of(self, payload: bytes) -> str | None:
        """The key that it was encrypted with; None for what was not encrypted."""

    def scrambler(self, key: bytes, thread_id: str) -> Callable[[], Scramble]:
        """Makes functions that turn blocks of 16 bytes into what nobody can tell without the key."""


class ThreadPayloads:
    """Of one thread."""

    def __init__(self, encryption: Encryption, thread_id: str, names: Names | None = None) -> None:
        self._encryption = encryption
        self._thread_id = thread_id
        self._names = names
        """None where nothing is there yet, or chunks do not matter."""

    # ------------------------------------------------------------ one payload

    def seal(self, kind: str, name: str | int, data: bytes) -> bytes:
        return self._encryption.encrypt(self._thread_id, f"{kind}\0{name}", data)

    def unseal(self, kind: str, name: str | int, payload: bytes, checkpoint_id: str = OF_HEAD) -> bytes:
        """Raises MissingKey, PlaintextRefused, or DamagedCheckpoint for this checkpoint."""
        try:
            return self._encryption.decrypt(self._thread_id, f"{kind}\0{name}", payload)
        except KeyError as error:
            raise MissingKey(self._place(kind, name), self._encryption.key_id_of(payload)) from error
        except ValueError as error:
            if self._encryption.key_id_of(payload) is None:
                raise PlaintextRefused(self._place(kind, name)) from None
            reason = f"{_TOLD[kind].format(name)} cannot be decrypted: {error}"
            raise DamagedCheckpoint(checkpoint_id, reason, self._thread_id) from error

    def _place(self, kind: str, name: str | int) -> str:
        told = _TOLD[kind].format(name)
        return f"{told[0].upper()}{told[1:]} in thread {self._thread_id!r}"

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

    # ------------------------------------------------------------ whole records

    def seal_commit(self, commit: Commit) -> Commit:
        events = commit.events
        names = self._stored(named_in(commit))
        if events is not None:
            body, own = self.seal("events", commit.number, events.body), [names[one] for one in events.own]
            events = msgspec.structs.replace(events, body=body, own=own)
        return msgspec.structs.replace(
            commit,
            root=None if commit.root is None else self.seal("root", commit.number, commit.root),
            events=events,
            chunks={names[one]: self.seal("chunk", names[one], data) for one, data in commit.chunks.items()},
            dropped=[_renamed(one, names) for one in commit.dropped],
            carried=[_renamed(one, names) for one in commit.carried],
        )

    def unseal_commits(self, commits: Sequence[Commit]) -> list[Commit]:
        names = self._plain(name for commit in commits for name in named_in(commit))
        return [self._unsealed(commit, names) for commit in commits]

    def _unsealed(self, commit: Commit, names: Mapping[str, str]) -> Commit:
        name = f"of commit {commit.number}" if commit.info is None else commit.info.checkpoint_id
        return msgspec.structs.replace(
            commit,
            root=None if commit.root is None else self.unseal("root", commit.number, commit.root, name),
            events=None if commit.events is None else self._unsealed_events(commit.events, commit.number, name, names),
            chunks={names[one]: self.unseal("chunk", one, data, name) for one, data in commit.chunks.items()},
            dropped=[_renamed(one, names) for one in commit.dropped],
            carried=[_renamed(one, names) for one in commit.carried],
        )

    def _unsealed_events(
        self, events: LoggedEvents, number: int, checkpoint_id: str, names: Mapping[str, str]
    ) -> LoggedEvents:
        body = self.unseal("events", number, events.body, checkpoint_id)
        return msgspec.structs.replace(events, body=body, own=[names[one] for one in events.own])

    def unseal_events(self, logged: Sequence[LoggedEvents]) -> list[LoggedEvents]:
        names = self._plain(name for events in logged for name in events.own)
        named = [f"of commit {one.number}" if one.info is None else one.info.checkpoint_id for one in logged]
        return [self._unsealed_events(one, one.number, name, names) for one, name in zip(logged, named, strict=True)]

    def unseal_checkpoint(self, stored: StoredCheckpoint) -> StoredCheckpoint:
        info = stored.info
        return StoredCheckpoint(info, self.unseal("root", info.number, stored.root, info.checkpoint_id))

    def unseal_chunks(self, found: Mapping[int, Mapping[str, bytes]]) -> dict[int, Mapping[str, bytes]]:
        """Names are turned back all at once, chunks when they are asked for."""
        return self._chunks(found, _EncryptedChunks)

    def unseal_recalled(self, found: Mapping[int, Mapping[str, bytes]]) -> dict[int, Mapping[str, bytes]]:
        """The same of chunks that may be wrong in any way: none of that is damage in the store."""
        try:
            return self._chunks(found, _Recalled)
        except UnsupportedId:
            return {}

    def _chunks(
        self, found: Mapping[int, Mapping[str, bytes]], kind: type[_EncryptedChunks]
    ) -> dict[int, Mapping[str, bytes]]:
        names = self._plain(name for held in found.values() for name in held)
        return {
            number: kind(self, number, held, {names[stored]: stored for stored in held})
            for number, held in found.items()
        }

    def seal_standing(self, standing: ThreadHeader) -> ThreadHeader:
        return msgspec.structs.replace(
            standing,
            journal=[self.seal_entry(one) for one in standing.journal],
            inbox=[self.seal_item(one) for one in standing.inbox],
        )

    def unseal_standing(self, standing: ThreadHeader) -> ThreadHeader:
        return msgspec.structs.replace(
            standing,
            journal=[self.unseal_entry(one) for one in standing.journal],
            inbox=[self.unseal_item(one) for one in standing.inbox],
        )

    def unseal_opened(self, opened: OpenedThread) -> OpenedThread:
        """What cannot be believed is told as damage, so that the thread can be sent elsewhere. Raises MissingKey."""
        root, info = opened.root, opened.info
        try:
            if root is not None:
                number, name = (opened.number, OF_HEAD) if info is None else (info.number, info.checkpoint_id)
                root = self.unseal("root", number, root, name)
            journal = [self.unseal_entry(one) for one in opened.journal]
            inbox = [self.unseal_item(one) for one in opened.inbox]
        except (DamagedCheckpoint, PlaintextRefused) as error:
            reason = error.reason if isinstance(error, DamagedCheckpoint) else f"{error.place} is not encrypted"
            return msgspec.structs.replace(opened, root=None, journal=(), inbox=(), damage=opened.damage or reason)
        return msgspec.structs.replace(opened, root=root, journal=journal, inbox=inbox)

    def rewriting(self, change: Rewrite) -> Rewrite:
        """What is to be done to the payloads in the store so that the plain ones are changed."""

        def changed(kind: str, name: str, payload: bytes) -> bytes:
            data, start = self.unseal(kind, name, payload), b""
            if kind == "inbox":
                of_item, found, data = data.partition(b"\0")
                start = of_item + found
            after = change(kind, self._plain([name])[name] if kind == "chunk" else name, data)
            return payload if after == data else self.seal(kind, name, start + after)

        return changed

    # ------------------------------------------------------------ names

    def _stored(self, names: Iterable[str]) -> dict[str, str]:
        return {} if self._names is None else self._names.stored(names)

    def _plain(self, names: Iterable[str]) -> dict[str, str]:
        return {} if self._names is None else self._names.plain(names)


def named_in(commit: Commit) -> Iterator[str]:
    """All names of chunks that stand in it, whole or shortened."""
    yield from commit.chunks
    for ref in (*commit.dropped, *commit.carried):
        yield ref.partition(".")[0]
    if commit.events is not None:
        yield from commit.events.own


def _renamed(ref: str, names: Mapping[str, str]) -> str:
    digest, dot, number = ref.partition(".")
    return f"{names[digest]}{dot}{number}"


class _EncryptedChunks(Mapping[str, bytes]):
    """By digest. A chunk is decrypted when it is asked for."""

    __slots__ = ("_held", "_number", "_payloads", "_stored")

    def __init__(
        self, payloads: ThreadPayloads, number: int, held: Mapping[str, bytes], stored: Mapping[str, str]
    ) -> None:
        self._payloads = payloads
        self._number = number
        self._held = held
        self._stored = stored

    def __getitem__(self, digest: str) -> bytes:
        name = self._stored[digest]
        return self._payloads.unseal("chunk", name, self._held[name], f"of commit {self._number}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


class _Recalled(_EncryptedChunks):
    __slots__ = ()

    def __getitem__(self, digest: str) -> bytes:
        try:
            return super().__getitem__(digest)
        except WorkflowCheckpointException as error:
            raise UnreadableValue(f"chunk {digest}", str(error)) from error
