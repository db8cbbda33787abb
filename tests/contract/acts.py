"""Moving a thread in few words. What reads a store to compare is that of the public suite."""

from __future__ import annotations

import json
from typing import Any

from perdure.records import CheckpointInfo, Commit, JournalEntry, LoggedEvents, OpenedThread
from perdure.store import Store
from perdure.testing.conformance.support.acts import (
    FAR,
    START,
    asked,
    at,
    chunks,
    everything,
    ids,
    inside,
    thread_ids,
    told,
)

__all__ = [
    "FAR",
    "START",
    "Owner",
    "asked",
    "at",
    "chunks",
    "everything",
    "ids",
    "inside",
    "own",
    "saved",
    "thread_ids",
    "told",
]


class Owner:
    """Somebody who holds a thread, and moves it from where it stands."""

    def __init__(self, store: Store, opened: OpenedThread, workflow_name: str) -> None:
        self.store = store
        self.opened = opened
        self.lease = opened.lease
        self.number = opened.number
        self.last_seq = opened.last_seq
        self.head = opened.info
        self.workflow_name = workflow_name

    async def save(
        self, checkpoint_id: str | None = None, *, events: int | LoggedEvents = 0, **parts: Any
    ) -> CheckpointInfo:
        """Commit a checkpoint that continues from the head."""
        commit = self.checkpoint(checkpoint_id, events=events, **parts)
        await self._write(commit)
        assert commit.info is not None
        self.head = commit.info
        return commit.info

    async def note(self, *, events: int | LoggedEvents = 0, **parts: Any) -> None:
        """Commit without a checkpoint."""
        await self._write(self.remark(events=events, **parts))

    async def _write(self, commit: Commit) -> None:
        await self.store.commit(commit)
        self.number = commit.number
        if commit.events is not None:
            self.last_seq += commit.events.count

    def checkpoint(self, checkpoint_id: str | None = None, *, events: int | LoggedEvents = 0, **parts: Any) -> Commit:
        """The next commit, not yet written."""
        commit = self.remark(events=events, **{"parent": None if self.head is None else self.head.number, **parts})
        info = CheckpointInfo(
            f"{self.lease.thread_id}-{commit.number}" if checkpoint_id is None else checkpoint_id,
            self.lease.thread_id,
            self.workflow_name,
            commit.number,
            commit.number,
            None if self.head is None else self.head.checkpoint_id,
            commit.timestamp,
            commit.run_id,
            commit.status,
        )
        whole = {name: getattr(commit, name) for name in Commit.__struct_fields__}
        root = json.dumps({"of": self.lease.thread_id[:50], "root": commit.number}).encode()
        return Commit(**{**whole, "info": info, "root": whole["root"] or root})

    def remark(self, *, events: int | LoggedEvents = 0, **parts: Any) -> Commit:
        number = self.number + 1
        if events:
            parts["events"] = told(self.last_seq + 1, events) if isinstance(events, int) else events
        stamp = {"status": "IDLE", "run_id": self.lease.owner, "timestamp": at(number).isoformat()}
        return Commit(**{"lease": self.lease, "number": number, **stamp, **parts})

    async def record(self, delivery_id: int, body: bytes = b'{"done":1}') -> None:
        await self.store.append_journal(self.lease, JournalEntry(self.number, delivery_id, body))

    async def release(self) -> None:
        await self.store.release(self.lease)


async def own(
    store: Store, thread_id: str = "t", *, owner: str = "run-1", takeover: bool = False, workflow_name: str = "w"
) -> Owner:
    return Owner(store, await store.open(thread_id, owner, takeover=takeover), workflow_name)


async def saved(store: Store, thread_id: str, count: int = 1, *, workflow_name: str = "w", **parts: Any) -> None:
    """A thread with so many checkpoints that nobody owns."""
    owner = await own(store, thread_id, workflow_name=workflow_name)
    for _ in range(count):
        await owner.save(**parts)
    await owner.release()
