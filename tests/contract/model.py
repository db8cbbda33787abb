"""The contract once more, as plainly as it can be said: lists and dicts, no cleverness, nothing shared with a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from holdfast.records import CheckpointInfo, Commit, LoggedEvents, PendingRequest


@dataclass
class Kept:
    """A commit that is kept."""

    commit: Commit
    info: CheckpointInfo | None
    chunks: dict[str, bytes]
    has: frozenset[str]
    """References of its checkpoint, all of them: those of its parent included."""


@dataclass
class Thread:
    owner: str | None = None
    fence: int = 0
    number: int = 0
    moved: int = 0
    status: str = ""
    updated_at: str = ""
    workflow_name: str = ""
    last_seq: int = 0
    due_at: datetime | None = None
    commits: list[Kept] = field(default_factory=list)
    journal: list[tuple[int, bytes]] = field(default_factory=list)
    inbox: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    requests: dict[str, PendingRequest] = field(default_factory=dict)

    @property
    def checkpoints(self) -> list[Kept]:
        return [one for one in self.commits if one.info is not None]

    @property
    def head(self) -> Kept | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever put into it: then a store may or may not say that it exists."""
        return self.number == 0 and not self.inbox and not self.consumed and not self.journal


class Model:
    """What a store holds. Only acts that the store accepts are told to it."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.order: list[Kept] = []
        """All commits, as they came."""
        self._moves = 0

    # ------------------------------------------------------------ writing

    def commit(self, commit: Commit) -> None:
        thread = self.threads[commit.lease.thread_id]
        parent = next((one for one in thread.commits if one.commit.number == commit.parent), None)
        own = set(commit.events.own) if commit.events is not None else set()
        brought = {f"{digest}.{commit.number}" for digest in commit.chunks if digest not in own}
        inherited = set() if parent is None else set(parent.has) - set(commit.dropped)
        if commit.info is not None:
            self._replace(commit.info.checkpoint_id, thread)
            thread.journal = [one for one in thread.journal if one[0] in commit.unsettled]
            thread.workflow_name, thread.due_at = commit.info.workflow_name, commit.due_at
        kept = Kept(commit, commit.info, dict(commit.chunks), frozenset(inherited | brought))
        thread.commits.append(kept)
        self.order.append(kept)
        if commit.requests is not None:
            thread.requests = {one.request_id: thread.requests.get(one.request_id, one) for one in commit.requests}
        for item_id in commit.consumed:
            if thread.inbox.pop(item_id, None) is not None:
                thread.consumed.add(item_id)
        thread.number, thread.status, thread.updated_at = commit.number, commit.status, commit.timestamp
        thread.last_seq += 0 if commit.events is None else commit.events.count
        self._move(thread)

    def _move(self, thread: Thread) -> None:
        self._moves += 1
        thread.moved = self._moves

    def _replace(self, checkpoint_id: str, by: Thread) -> None:
        for thread in self.threads.values():
            for one in thread.checkpoints:
                if one.info is not None and one.info.checkpoint_id == checkpoint_id:
                    self._forget(thread, [one], is_moving=thread is by)

    def _forget(self, thread: Thread, gone: list[Kept], *, is_moving: bool = False) -> None:
        """`is_moving`: the commit that takes its place says what becomes of the rest."""
        if thread.head in gone and not is_moving:
            thread.journal, thread.requests, thread.due_at = [], {}, None
        for one in gone:
            one.info = None

    def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        thread = self.threads.setdefault(thread_id, Thread())
        if item_id not in thread.consumed:
            thread.inbox.setdefault(item_id, (kind, body))

    def prune(self, thread_id: str, checkpoint_ids: Iterable[str]) -> int:
        thread = self.threads.get(thread_id, Thread())
        gone = [one for one in thread.checkpoints if one.info is not None and one.info.checkpoint_id in checkpoint_ids]
        self._forget(thread, gone)
        if gone:
            needed = {ref for one in thread.commits if one.info is not None or _refers(one) for ref in one.has}
            for one in thread.commits:
                own = set() if one.commit.events is None else set(one.commit.events.own)
                one.chunks = {
                    key: data
                    for key, data in one.chunks.items()
                    if key in own or f"{key}.{one.commit.number}" in needed
                }
        return len(gone)

    def delete(self, thread_id: str) -> None:
        thread = self.threads.pop(thread_id)
        self.order = [one for one in self.order if one not in thread.commits]

    def copy(self, thread_id: str, to: str, ids: dict[int, str]) -> None:
        source = self.threads[thread_id]
        made = replace(source, owner=None, fence=0, journal=[], inbox={}, consumed=set(), commits=[])
        made.requests = {key: _of(one, to) for key, one in source.requests.items()}
        for one in source.commits:
            info = one.info and _named(one.info, to, ids[one.info.number])
            made.commits.append(Kept(one.commit, info, dict(one.chunks), one.has))
        self.order += made.commits
        self.threads[to] = made
        self._move(made)

    # ------------------------------------------------------------ reading

    def everything(self) -> dict[str, Any]:
        moved = sorted(
            (key for key, one in self.threads.items() if one.number), key=lambda key: self.threads[key].moved
        )
        infos = [one.info for one in self.order if one.info is not None]
        return {
            "infos": [plain_info(one) for one in infos],
            "roots": [one.commit.root for one in self.order if one.info is not None],
            "threads": [self._standing(key) for key in moved],
            "requests": self._requests(),
            "due": self._due(),
            "heads": {key: _id(self.threads[key].head) for key in moved},
            "events": {key: self._events(self.threads[key]) for key in moved},
            "chunks": {
                key: {
                    f"{d}.{one.commit.number}": data
                    for one in self.threads[key].commits
                    for d, data in one.chunks.items()
                }
                for key in moved
            },
        }

    def _standing(self, key: str) -> tuple[Any, ...]:
        one = self.threads[key]
        return (key, one.workflow_name, one.number, one.status, one.updated_at, _id(one.head), one.due_at, one.owner)

    def _requests(self) -> list[tuple[Any, ...]]:
        found = [(one.asked_at, key, one.request_id) for key, t in self.threads.items() for one in t.requests.values()]
        return sorted(found)

    def _due(self) -> list[str]:
        found = [(one.due_at, key) for key, one in self.threads.items() if one.due_at is not None and one.owner is None]
        return [key for _, key in sorted(found)]

    def _events(self, thread: Thread) -> list[tuple[Any, ...]]:
        return [
            plain_events(one.commit.events, one.commit.run_id, one.commit.timestamp)
            for one in thread.commits
            if one.commit.events is not None
        ]


def plain_events(events: LoggedEvents, run_id: str, timestamp: str) -> tuple[Any, ...]:
    return (events.first_seq, events.count, events.body, events.refers, tuple(events.own), run_id, timestamp)


def _refers(one: Kept) -> bool:
    return one.commit.events is not None and one.commit.events.refers


def _id(one: Kept | None) -> str | None:
    return None if one is None or one.info is None else one.info.checkpoint_id


def plain_info(info: CheckpointInfo) -> tuple[Any, ...]:
    """All but the checkpoint before, which may have gone."""
    return (
        info.checkpoint_id,
        info.thread_id,
        info.workflow_name,
        info.number,
        info.timestamp,
        info.run_id,
        info.status,
    )


def _of(request: PendingRequest, thread_id: str) -> PendingRequest:
    return PendingRequest(thread_id, request.request_id, request.executor_id, request.asked_at)


def _named(info: CheckpointInfo, thread_id: str, checkpoint_id: str) -> CheckpointInfo:
    rest = (info.workflow_name, info.number, info.iteration_count, None, info.timestamp, info.run_id, info.status)
    return CheckpointInfo(checkpoint_id, thread_id, *rest)
