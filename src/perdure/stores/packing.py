"""How stores write things: a commit's payload as one JSON text, ids and times as columns, and seals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypedDict
from zlib import crc32

import msgspec

from perdure.errors import DamagedCheckpoint
from perdure.records import Commit, Damage, InboxItem, JournalEntry, LoggedEvents, ThreadHeader
from perdure.store import Rewrite

# ---------------------------------------------------------------- selections


class ThreadMatch(TypedDict, total=False):
    """The threads of a list: those that meet all conditions that are not None. `Store.threads` describes them."""

    workflow_name: str | None
    thread_id: str | None
    prefix: str | None


LAST_CODE = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)
"""Codes that are not characters: no stored text contains one."""


def first_after(prefix: str) -> str | None:
    """The first text after all that begin with this one; None if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place]) + 1
        if code <= LAST_CODE:
            return prefix[:place] + chr(SURROGATES.stop if code in SURROGATES else code)
    return None


# ---------------------------------------------------------------- columns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
RUN = "run-"


def from_time(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def to_time(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def from_timestamp(text: str) -> int | str:
    """As a number if exactly this text can be made from it."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return text
        number = (time - _EPOCH) // _MICROSECOND
        # As `datetime.isoformat` writes it: then the text need not be made to compare it.
        is_usual = len(text) == 32 and text[26:] == "+00:00" and text[4] + text[7] + text[10] + text[19] == "--T."
        return number if (is_usual and number % 1_000_000) or to_time(number).isoformat() == text else text
    except (ValueError, OverflowError):
        return text


def to_timestamp(column: int | str | None) -> str:
    if not isinstance(column, int):
        return column or ""
    seconds, microseconds = divmod(column, 1_000_000)
    return f"{_second(seconds)}.{str(microseconds).zfill(6)}+00:00" if microseconds else f"{_second(seconds)}+00:00"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    """Cached: a list has many commits of one second."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def from_id(text: str | None, prefix: str = "") -> bytes | str | None:
    if text is None or not text.startswith(prefix):
        return text
    digits = text[len(prefix) :]
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        return text
    return data if data and data.hex() == digits else text


def to_id(column: bytes | str | None, prefix: str = "") -> str | None:
    return prefix + column.hex() if isinstance(column, bytes) else column


# ---------------------------------------------------------------- bodies

NOTHING = msgspec.Raw(b"null")


class Body(msgspec.Struct, omit_defaults=True, gc=False):
    root: msgspec.Raw = NOTHING
    chunks: dict[str, msgspec.Raw] = {}
    dropped: Sequence[str] = ()
    carried: Sequence[str] = ()
    """References that the checkpoint has from commits which are no longer among its ancestors."""
    events: msgspec.Raw = NOTHING
    refers: bool = False
    own: Sequence[str] = ()


class _Chunks(msgspec.Struct, gc=False):
    """A body, decoded only for its chunks."""

    chunks: dict[str, msgspec.Raw] = {}


class Chunks(Mapping[str, bytes]):
    """By digest. A chunk is made of what is stored when it is looked up."""

    __slots__ = ("_make", "_stored")

    def __init__(self, stored: Mapping[str, Any], make: Callable[[Any], bytes]) -> None:
        self._stored = stored
        self._make = make

    def __getitem__(self, digest: str) -> bytes:
        return self._make(self._stored[digest])

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


unpack_body = msgspec.json.Decoder(Body).decode
"""Raises msgspec.DecodeError, or ValidationError, which is one."""
_chunks_decoder = msgspec.json.Decoder(_Chunks)


def count_bytes(commit: Commit) -> int:
    """Of its payloads."""
    of_events = 0 if commit.events is None else len(commit.events.body)
    return len(commit.root or b"") + of_events + sum(map(len, commit.chunks.values()))


def to_body(commit: Commit) -> Body:
    root, events = NOTHING if commit.root is None else msgspec.Raw(commit.root), commit.events
    chunks = dict(zip(commit.chunks, map(msgspec.Raw, commit.chunks.values()), strict=True))
    if events is None:
        return Body(root, chunks, commit.dropped, commit.carried)
    return Body(root, chunks, commit.dropped, commit.carried, msgspec.Raw(events.body), events.refers, events.own)


def pack_body(commit: Commit) -> bytes:
    return msgspec.json.encode(to_body(commit))


def unpack_chunks(data: bytes) -> Chunks:
    """Raises msgspec.DecodeError."""
    return Chunks(_chunks_decoder.decode(data).chunks, bytes)  # a lookup copies the chunk out of the body


def with_body(commit: Commit, body: Body) -> Commit:
    events = None if body.events is NOTHING else commit.events
    if events is not None:
        events = LoggedEvents(events.first_seq, events.count, bytes(body.events), body.refers, body.own)
    return msgspec.structs.replace(
        commit,
        root=None if body.root is NOTHING else bytes(body.root),
        events=events,
        chunks={digest: bytes(chunk) for digest, chunk in body.chunks.items()},
        dropped=body.dropped,
        carried=body.carried,
    )


# ---------------------------------------------------------------- seals

SEAL_BYTES = 16


def seal(thread_id: str, number: int, body: bytes) -> bytes:
    """Binds a payload to its thread and number: a changed or misplaced row does not have its seal."""
    return sha256(b"%b\0%d\0%b" % (thread_id.encode(), number, body)).digest()[:SEAL_BYTES]


def item_seal(thread_id: str, item_id: str, kind: str, body: bytes) -> bytes:
    return seal(f"{thread_id}\0{item_id}\0{kind}", 0, body)


def unseal_entry(thread_id: str, delivery_id: int, body: object, sealed: object, *, number: int = 0) -> JournalEntry:
    """Raises DamagedCheckpoint if the entry was changed."""
    if not isinstance(body, bytes) or seal(thread_id, delivery_id, body) != sealed:
        raise DamagedCheckpoint("of its head", f"the journal of delivery {delivery_id} was changed", thread_id)
    return JournalEntry(number, delivery_id, body)


def unseal_item(thread_id: str, item_id: str, kind: str, body: object, sealed: object) -> InboxItem:
    """Raises DamagedCheckpoint if the item was changed."""
    if not isinstance(body, bytes) or item_seal(thread_id, item_id, kind, body) != sealed:
        raise changed_item(thread_id, item_id)
    return InboxItem(item_id, kind, body)


_SEALED: dict[str, tuple[Callable[..., object], Callable[..., bytes]]] = {
    "journal": (unseal_entry, seal),
    "inbox": (unseal_item, item_seal),
}
"""How the rows of these tables are proved, and sealed."""


def changed_item(thread_id: str, item_id: str) -> DamagedCheckpoint:
    return DamagedCheckpoint("of its head", f"item {item_id!r} in its inbox was changed", thread_id)


def consumed_seal(thread_id: str, item_id: str) -> bytes:
    """Of a consumed inbox item, which is kept so that it is not posted a second time."""
    return b"c" + seal(f"{thread_id}\0{item_id}", 0, b"")


def find_damage(thread_id: str, check: Callable[..., object], *args: Any) -> list[Damage]:
    try:
        check(*args)
    except DamagedCheckpoint as error:
        checkpoint_id = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
        return [Damage(error.reason, thread_id, checkpoint_id)]
    return []


def column_sum(columns: tuple[object, ...]) -> bytes:
    """Stands behind a seal, and shows whether the columns of a commit were changed."""
    return crc32(repr(columns).encode()).to_bytes(4)


class Changes:
    """Puts payloads through a change, and counts those that come back different."""

    def __init__(self, change: Rewrite) -> None:
        self._change = change
        self.count = 0
        self.damage: list[DamagedCheckpoint] = []
        """Of sealed payloads, which stay as they are: a new seal would prove them."""

    def change(self, kind: str, name: str, data: bytes) -> bytes:
        after = self._change(kind, name, data)
        self.count += after != data
        return after

    def change_raw(self, kind: str, name: str, data: msgspec.Raw) -> msgspec.Raw:
        return data if data is NOTHING else msgspec.Raw(self.change(kind, name, bytes(data)))

    def body(self, number: int, body: Body) -> Body:
        """The body with all its payloads changed; the same object if none came back different."""
        before, root = self.count, self.change_raw("root", str(number), body.root)
        chunks = {digest: self.change_raw("chunk", digest, chunk) for digest, chunk in body.chunks.items()}
        events = self.change_raw("events", str(number), body.events)
        same = self.count == before
        return body if same else msgspec.structs.replace(body, root=root, chunks=chunks, events=events)

    def reseal(self, table: str, thread_id: str, *row: Any) -> tuple[bytes, bytes] | None:
        """The new body and seal of a row of the journal or the inbox, which ends with both; None if it stays."""
        unseal, make_seal = _SEALED[table]
        *place, body, _ = row
        try:
            unseal(thread_id, *row)
        except DamagedCheckpoint as error:
            self.damage.append(error)
            return None
        after = self.change(table, str(place[0]), body)
        return None if after == body else (after, make_seal(thread_id, *place, after))

    def commit(self, commit: Commit) -> Commit:
        """The same for a commit that is not packed."""
        before = to_body(commit)
        after = self.body(commit.number, before)
        return commit if after is before else with_body(commit, after)

    def header(self, header: ThreadHeader) -> ThreadHeader:
        journal = [self.entry(entry) for entry in header.journal]
        return msgspec.structs.replace(header, journal=journal, inbox=[self.item(item) for item in header.inbox])

    def entry(self, entry: JournalEntry) -> JournalEntry:
        return msgspec.structs.replace(entry, body=self.change("journal", str(entry.delivery_id), entry.body))

    def item(self, item: InboxItem) -> InboxItem:
        return msgspec.structs.replace(item, body=self.change("inbox", item.item_id, item.body))
