"""Helpers of the clauses: commit to a thread, and read all of a store to compare."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from perdure.names import SHORT, digest_of
from perdure.records import (
    CheckpointInfo,
    Commit,
    JournalEntry,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    ThreadHeader,
)
from perdure.store import Store
from perdure.testing.conformance.clause import NotKept, expect, expect_equal

START = datetime(2026, 1, 1, tzinfo=UTC)
FAR = START + timedelta(days=36500)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def chunk(text: str) -> tuple[str, bytes]:
    """A chunk as it is written: its digest and its bytes."""
    data = json.dumps(text).encode()
    return digest_of(data), data


def ref(text: str, number: int) -> str:
    """The reference to a chunk that commit `number` brought."""
    return f"{chunk(text)[0]}.{number}"


def make_events(first_seq: int, count: int = 1, **parts: Any) -> LoggedEvents:
    return LoggedEvents(first_seq, count, f'[["event",{first_seq},{count}]]'.encode(), **parts)


def make_request(thread_id: str, request_id: str, seconds: float, **parts: Any) -> PendingRequest:
    return PendingRequest(thread_id, request_id, "reviewer", at(seconds), **parts)


WHOLE: dict[str, Any] = {
    "brings": ["new"],
    "events": 1,
    "consumed": ["item"],
    "requests": [make_request("t", "question", 9)],
    "due_at": at(60),
    "status": "WAITING",
    "prunes": [1],
    "prunes_events_before": 2,
}
"""Something for each part of a commit."""


class ThreadOwner:
    """Owns a thread and commits to it."""

    def __init__(self, store: Store, opened: OpenedThread, workflow_name: str) -> None:
        self.store = store
        self.opened = opened
        self.lease = opened.lease
        self.number = opened.number
        self.last_seq = opened.last_seq
        self.head = opened.info
        self.has: dict[int, dict[str, bytes]] = {}
        """The chunks of each checkpoint that was saved here, those of its parent included, by reference."""
        self.workflow_name = workflow_name

    async def save(self, checkpoint_id: str | None = None, **parts: Any) -> CheckpointInfo:
        """Commit a checkpoint that continues from the head."""
        commit = self.checkpoint(checkpoint_id, **parts)
        await self.write(commit)
        self.head = commit.info
        return cast("CheckpointInfo", commit.info)

    async def note(self, **parts: Any) -> None:
        """Commit without a checkpoint."""
        await self.write(self.remark(**parts))

    async def write(self, commit: Commit) -> None:
        await self.store.commit(commit)
        self.number = commit.number
        events = commit.events
        if events is not None:
            self.last_seq = events.first_seq + events.count - 1
        if commit.info is not None:
            own = set() if events is None else set(events.own)
            kept = self.has.get(commit.parent or 0, {})
            gone = set(commit.dropped)
            self.has[commit.number] = {
                **{name: data for name, data in kept.items() if _shorten(name) not in gone},
                **{f"{digest}.{commit.number}": data for digest, data in commit.chunks.items() if digest not in own},
            }

    def checkpoint(self, checkpoint_id: str | None = None, *, drops: Iterable[str] = (), **parts: Any) -> Commit:
        """The next commit, not yet written. `drops`: texts of chunks of the parent that this one drops."""
        head = self.head
        parent = parts.setdefault("parent", None if head is None else head.number)
        gone = {chunk(text)[1] for text in drops}
        dropped = [_shorten(name) for name, data in self.has.get(parent or 0, {}).items() if data in gone]
        commit = self.remark(**{"dropped": dropped, **parts})
        info = CheckpointInfo(
            f"{self.lease.thread_id}-{commit.number}" if checkpoint_id is None else checkpoint_id,
            self.lease.thread_id,
            self.workflow_name,
            commit.number,
            commit.number,
            None if head is None else head.checkpoint_id,
            commit.timestamp,
            commit.run_id,
            commit.status,
        )
        root = json.dumps({"root of": self.lease.thread_id[:50], "number": commit.number}).encode()
        return msgspec.structs.replace(commit, info=info, root=commit.root or root)

    def remark(self, *, brings: Iterable[str] = (), events: int | LoggedEvents = 0, **parts: Any) -> Commit:
        """`brings`: texts of its new chunks."""
        number = self.number + 1
        if events:
            parts["events"] = make_events(self.last_seq + 1, events) if isinstance(events, int) else events
        stamp = {"status": "IDLE", "run_id": self.lease.owner, "timestamp": at(number).isoformat()}
        return Commit(**{"lease": self.lease, "number": number, "chunks": dict(map(chunk, brings)), **stamp, **parts})

    async def record(self, delivery_id: int, body: bytes = b'{"done":1}') -> None:
        await self.store.append_journal(self.lease, JournalEntry(self.number, delivery_id, body))

    async def release(self) -> None:
        await self.store.release(self.lease)

    async def expect_readable(self, store: Store | None = None) -> None:
        """Every checkpoint that is left, in its store or another, can be found, and so can all chunks that it has."""
        store, thread_id = store or self.store, self.lease.thread_id
        held = await chunks(store, thread_id, max(self.has, default=0))
        for info in await store.infos(thread_id=thread_id):
            checkpoint = await store.find_checkpoint(info.checkpoint_id)
            expect_equal(f"checkpoint {info.checkpoint_id!r}", checkpoint and checkpoint.info, info)
            got = {name: held.get(name) for name in self.has[info.number]}
            expect_equal(f"chunks of checkpoint {info.checkpoint_id!r}", got, self.has[info.number])


def _shorten(name: str) -> str:
    digest, _, number = name.rpartition(".")
    return f"{digest[:SHORT]}.{number}"


async def own(
    store: Store, thread_id: str = "t", *, owner: str = "run-1", takeover: bool = False, workflow_name: str = "w"
) -> ThreadOwner:
    return ThreadOwner(store, await store.open(thread_id, owner, takeover=takeover), workflow_name)


async def save_thread(store: Store, thread_id: str, count: int = 1, *, workflow_name: str = "w", **parts: Any) -> None:
    """A thread with this many checkpoints and without an owner."""
    owner = await own(store, thread_id, workflow_name=workflow_name)
    for _ in range(count):
        await owner.save(**parts)
    await owner.release()


async def save_line(store: Store, count: int = 4, *, thread_id: str = "t", **parts: Any) -> ThreadOwner:
    """A thread with an owner. Each checkpoint brings a chunk, `c` and its number, and drops the one before the last."""
    owner = await own(store, thread_id)
    for number in range(1, count + 1):
        await owner.save(brings=[f"c{number}"], drops=[f"c{number - 2}"], **parts)
    return owner


async def save_full_thread(store: Store, thread_id: str = "t") -> ThreadOwner:
    """A thread with something of everything, without an owner: commits 1, 2 and 4 have checkpoints."""
    owner = await own(store, thread_id)
    await store.post(thread_id, "consumed", "message", b"1")
    await owner.save(brings=["first", "shared"], events=2, consumed=["consumed"])
    await owner.save(brings=["second"], drops=["first"], events=make_events(3, refers=True))
    await owner.note(brings=["failure"], events=make_events(4, own=(chunk("failure")[0],)), status="FAILED")
    await owner.save(drops=["second"], requests=[make_request(thread_id, "q", 1)], due_at=at(9))
    await owner.record(5)
    await store.post(thread_id, "item", "message", b'"posted"')
    await owner.release()
    return owner


# ---------------------------------------------------------------- reading


def _lister(method: str, name: str) -> Callable[..., Coroutine[Any, Any, list[Any]]]:
    """What reads this field of all records that a method of a store lists, in their order."""

    async def read(store: Store, *arguments: Any, **filters: Any) -> list[Any]:
        return [getattr(record, name) for record in await getattr(store, method)(*arguments, **filters)]

    return read


checkpoint_ids = _lister("infos", "checkpoint_id")
thread_ids = _lister("threads", "thread_id")
request_ids = _lister("pending_requests", "request_id")
due_ids = _lister("due", "thread_id")
commit_numbers = _lister("infos", "number")


async def head_id(store: Store, thread_id: str = "t") -> str | None:
    head = await store.head(thread_id)
    return None if head is None else head.info.checkpoint_id


async def pending(store: Store, **filters: Any) -> list[tuple[str, str]]:
    return [(request.thread_id, request.request_id) for request in await store.pending_requests(**filters)]


async def first_seqs(store: Store, after: int | None = 0, *, thread_id: str = "t") -> list[int]:
    """The first event of each commit that holds an event after this one."""
    return [batch.first_seq for batch in await store.events_after(thread_id, after)]


async def pinned_ids(store: Store) -> list[str]:
    return [info.checkpoint_id for info in await store.infos() if info.is_pinned]


async def chunks(store: Store, thread_id: str, last: int = 60) -> dict[str, bytes]:
    """All that the commits up to the last one hold, by reference."""
    chunks_by_number = await store.read_chunks(thread_id, range(1, last + 1))
    return {f"{digest}.{number}": data for number, held in chunks_by_number.items() for digest, data in held.items()}


async def header_of(store: Store, thread_id: str = "t") -> ThreadHeader:
    header = await store.thread_header(thread_id)
    if header is None:
        raise NotKept(f"the header of thread {thread_id!r}, which exists, is None")
    return header


async def all_commits(store: Store, thread_id: str = "t", limit: int = 2) -> list[Commit]:
    commits: list[Commit] = []
    while page := await store.commits(thread_id, after=commits[-1].number if commits else 0, limit=limit):
        commits += page
        expect(len(commits) < 100, "paging through the commits did not come to an end")
    return commits


async def read_everything(store: Store, *more_ids: str) -> dict[str, Any]:
    """All that can be read without claiming a thread. `more_ids`: of threads that have no commit."""
    infos = list(await store.infos())
    threads = list(await store.threads())
    known = [*(thread.thread_id for thread in threads), *more_ids]
    return {
        "infos": infos,
        "threads": threads,
        "requests": list(await store.pending_requests()),
        "due": list(await store.due(FAR)),
        "checkpoints": {info.checkpoint_id: await store.find_checkpoint(info.checkpoint_id) for info in infos},
        "heads": {name: await store.head(name) for name in known},
        "events": {name: list(await store.events_after(name, None)) for name in known},
        "chunks": {name: await chunks(store, name) for name in known},
    }


@asynccontextmanager
async def expect_unchanged(store: Store, *more_ids: str) -> AsyncIterator[None]:
    """What can be read after the block is what could be read before it."""
    before = await read_everything(store, *more_ids)
    yield
    expect_equal("what can be read after that", await read_everything(store, *more_ids), before)


async def read_as_owner(store: Store, thread_id: str = "t") -> dict[str, Any]:
    """The data that only an owner can read. Takes the thread from its owner."""
    opened = await store.open(thread_id, "looking", takeover=True)
    await store.release(opened.lease)
    return parts_of(opened)


def parts_of(opened: OpenedThread) -> dict[str, Any]:
    return {
        **{name: getattr(opened, name) for name in ("number", "info", "root", "last_seq", "status", "damage")},
        "journal": [(entry.delivery_id, entry.body) for entry in opened.journal],
        "inbox": [(item.item_id, item.kind, item.body) for item in opened.inbox],
    }


async def expect_owner_finds(source: Store | OpenedThread, thread_id: str = "t", **expected: Any) -> None:
    """What was opened, or is opened now, has these parts. An owner of the thread loses it."""
    parts = parts_of(source) if isinstance(source, OpenedThread) else await read_as_owner(source, thread_id)
    expect_equal("what an owner finds", {name: parts[name] for name in expected}, expected)


async def expect_state(store: Store, when: str = "", *, thread_id: str = "t", **expected: Any) -> None:
    """What is read of the store, or of this thread, by the names of STATE. Order counts, except that of chunks."""
    for name, value in expected.items():
        expect_equal(f"the {name} {when}".rstrip(), await STATE[name](store, thread_id), value)


async def chunk_names(store: Store, thread_id: str) -> set[str]:
    return set(await chunks(store, thread_id))


async def _read_ids(store: Store, thread_id: str, part: str) -> list[Any]:
    return [entry[0] for entry in (await read_as_owner(store, thread_id))[part]]


STATE: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "checkpoints": lambda store, _: checkpoint_ids(store),
    "threads": lambda store, _: thread_ids(store),
    "requests": lambda store, _: request_ids(store),
    "parents": lambda store, _: _lister("infos", "previous_checkpoint_id")(store),
    "due": lambda store, _: due_ids(store, FAR),
    "pins": lambda store, _: pinned_ids(store),
    "head": head_id,
    "events": lambda store, thread_id: first_seqs(store, thread_id=thread_id),
    "chunks": chunk_names,
    "journal": lambda store, thread_id: _read_ids(store, thread_id, "journal"),
    "inbox": lambda store, thread_id: _read_ids(store, thread_id, "inbox"),
}
"""The ids of each; for events the first seq of each commit. Only an owner can read journal and inbox: see
`read_as_owner`."""
