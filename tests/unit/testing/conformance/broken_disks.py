"""Stores that do not notice what was done to their files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from tests.unit.testing.conformance.passing import OnDisk, Passing, breaks

from perdure.errors import DamagedStore, PerdureError
from perdure.records import Commit, Damage, JournalEntry, Lease, OpenedThread, StoredCheckpoint
from perdure.testing.conformance.clauses import damage

Act = tuple[str, list[Any]]
KINDS: dict[str, Any] = {
    "open": tuple[str, str, bool],
    "release": tuple[Lease],
    "commit": tuple[Commit],
    "append_journal": tuple[Lease, JournalEntry],
    "post": tuple[str, str, str, bytes],
}


@breaks(
    damage.a_changed_byte_anywhere_gives_no_other_bytes,
    damage.a_file_that_was_cut_is_noticed_or_changes_nothing,
    damage.a_file_that_is_gone_is_noticed_or_changes_nothing,
)
class BelievesWhatItReads(Passing):
    """Whatever was done to a thread is a line of its file, and is done again when the store is opened. Nothing proves
    that a line is what was written, that it is the last, or that there is no other file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.is_read = False

    async def note(self, thread_id: str, act: str, *arguments: Any) -> None:
        await self.read()
        with (self.folder / f"{quote(thread_id, safe='')}.jsonl").open("ab") as file:
            file.write(msgspec.json.encode([act, *arguments]) + b"\n")

    async def read(self) -> None:
        if self.is_read:
            return
        self.is_read = True
        for file in sorted(self.folder.glob("*.jsonl")):
            for line in file.read_bytes().splitlines():
                try:
                    act, *arguments = msgspec.json.decode(line)
                    await self.again(act, msgspec.convert(arguments, KINDS[act]))
                except (PerdureError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
                    break  # the end of what was written

    async def again(self, act: str, arguments: tuple[Any, ...]) -> None:
        if act == "open":
            await self.inner.open(arguments[0], arguments[1], takeover=arguments[2])
        else:
            await getattr(self.inner, act)(*arguments)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        await self.note(thread_id, "open", thread_id, owner, takeover)
        return await super().open(thread_id, owner, takeover=takeover)

    async def release(self, lease: Lease) -> None:
        await self.note(lease.thread_id, "release", lease)
        await super().release(lease)

    async def commit(self, commit: Commit) -> None:
        await self.note(commit.lease.thread_id, "commit", commit)
        await super().commit(commit)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self.note(lease.thread_id, "append_journal", lease, entry)
        await super().append_journal(lease, entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self.note(thread_id, "post", thread_id, item_id, kind, body)
        await super().post(thread_id, item_id, kind, body)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        await self.read()
        return await super().head(thread_id)

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        await self.read()
        return await super().find_checkpoint(checkpoint_id)

    async def events_after(self, thread_id: str, seq: int | None) -> Any:
        await self.read()
        return await super().events_after(thread_id, seq)


@breaks(damage.a_changed_byte_of_what_was_written_is_noticed)
class KeepsHeadsBeside(OnDisk):
    """The newest root of each thread lies in a file of its own, and nothing proves it."""

    def beside(self, thread_id: str) -> Path:
        return self.folder / f"{quote(thread_id, safe='')}.root"

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        if commit.root is not None:
            await asyncio.to_thread(self.beside(commit.lease.thread_id).write_bytes, commit.root)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        infos = await self.inner.infos(thread_id=thread_id, limit=1)
        return StoredCheckpoint(infos[0], await asyncio.to_thread(self.beside(thread_id).read_bytes)) if infos else None


@breaks(damage.a_damaged_thread_is_found_and_leaves_the_others_usable)
class IsDamagedAsAWhole(OnDisk):
    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        if damage := await self.inner.check():
            raise DamagedStore(str(self.folder), damage[0].reason)
        return await super().head(thread_id)


@breaks(damage.a_damaged_thread_is_found_and_leaves_the_others_usable)
class ChecksNothing(OnDisk):
    async def check(self) -> Sequence[Damage]:
        return []
