"""The contract once more, as plainly as possible: lists and dicts, no cleverness, nothing shared with a store."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from perdure.records import CheckpointInfo, Commit, LoggedEvents, PendingRequest


@dataclass
class Kept:
    """A commit that is kept."""

    commit: Commit
    info: CheckpointInfo | None
    events: LoggedEvents | None
    chunks: dict[str, bytes]
    has: frozenset[str]
    """References of its checkpoint, all of them: those of its parent included."""

    @property
    def number(self) -> int:
        return self.commit.number

    @property
    def own(self) -> set[str]:
        return set() if self.events is None else set(self.events.own)


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
    first_seq: int = 1
    due_at: datetime | None = None
    commits: list[Kept] = field(default_factory=list)
    journal: list[tuple[int, bytes]] = field(default_factory=list)
    inbox: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    requests: dict[str, PendingRequest] = field(default_factory=dict)
    is_tidy: bool = True
    """Whether nothing is left that a store may free whenever it likes."""

    @property
    def checkpoints(self) -> list[Kept]:
        return [kept for kept in self.commits if kept.info is not None]

    @property
    def head(self) -> Kept | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def pins(self) -> list[int]:
        return [kept.number for kept in self.commits if kept.info is not None and kept.info.is_pinned]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever put into it: then a store may or may not list it."""
        return self.number == 0 and not self.inbox and not self.consumed and not self.journal

    @property
    def needed(self) -> dict[str, bytes]:
        """Chunks that something refers to. A store may have more, until it frees them."""
        refs = {
            ref
            for kept in self.commits
            if kept.info is not None or (kept.events and kept.events.refers)
            for ref in kept.has
        }
        return {
            f"{digest}.{kept.number}": data
            for kept in self.commits
            for digest, data in kept.chunks.items()
            if digest in kept.own or f"{digest}.{kept.number}" in refs
        }

    @property
    def chunks(self) -> dict[str, bytes]:
        return {f"{digest}.{kept.number}": data for kept in self.commits for digest, data in kept.chunks.items()}

    def previous(self, number: int | None) -> str | None:
        """The id of the checkpoint there, or of the nearest before it that is still kept."""
        known = {kept.number: kept for kept in self.commits}
        while number is not None and number in known:
            kept = known[number]
            if kept.info is not None:
                return kept.info.checkpoint_id
            number = kept.commit.parent
        return None

    def tidy(self) -> None:
        needed = self.needed
        for kept in self.commits:
            kept.chunks = {key: data for key, data in kept.chunks.items() if f"{key}.{kept.number}" in needed}
        self.is_tidy = True

    def forget_events(self, before: int) -> bool:
        """Whether there were any."""
        gone = [kept for kept in self.commits if kept.number < before and kept.events is not None]
        for kept in gone:
            kept.events, self.is_tidy = None, False
            self.first_seq = max(self.first_seq, seq_after(kept.commit.events))
        return bool(gone)


def seq_after(events: LoggedEvents | None) -> int:
    return 0 if events is None else events.first_seq + events.count


class Model:
    """What a store holds. It gets only the acts that the store accepts."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.order: list[Kept] = []
        """All commits, as they came."""
        self._moves = 0

    # ------------------------------------------------------------ writing

    def commit(self, commit: Commit) -> None:
        thread = self.threads[commit.lease.thread_id]
        parent = next((kept for kept in thread.commits if kept.number == commit.parent), None)
        own = set(commit.events.own) if commit.events is not None else set()
        brought = {f"{digest}.{commit.number}" for digest in commit.chunks if digest not in own}
        inherited = set() if parent is None else set(parent.has) - set(commit.dropped)
        if commit.info is not None:
            self._replace(commit.info.checkpoint_id, thread)
            thread.journal = [entry for entry in thread.journal if entry[0] in commit.unsettled]
            thread.workflow_name, thread.due_at = commit.info.workflow_name, commit.due_at
        kept = Kept(commit, commit.info, commit.events, dict(commit.chunks), frozenset(inherited | brought))
        thread.commits.append(kept)
        self.order.append(kept)
        if commit.requests is not None:
            thread.requests = {
                request.request_id: thread.requests.get(request.request_id, request) for request in commit.requests
            }
        for item_id in commit.consumed:
            if thread.inbox.pop(item_id, None) is not None:
                thread.consumed.add(item_id)
        thread.number, thread.status, thread.updated_at = commit.number, commit.status, commit.timestamp
        thread.last_seq += 0 if commit.events is None else commit.events.count
        gone = [kept for kept in thread.checkpoints if kept.number in commit.prunes and kept is not thread.head]
        self._forget(thread, _unpinned(gone))
        thread.forget_events(commit.prunes_events_before)
        self._move(thread)

    def _move(self, thread: Thread) -> None:
        self._moves += 1
        thread.moved = self._moves

    def _replace(self, checkpoint_id: str, by: Thread) -> None:
        for thread in self.threads.values():
            for kept in thread.checkpoints:
                if kept.info is not None and kept.info.checkpoint_id == checkpoint_id:
                    self._forget(thread, [kept], is_moving=thread is by)

    def _forget(self, thread: Thread, gone: list[Kept], *, is_moving: bool = False) -> None:
        """`is_moving`: the commit that takes its place determines the rest."""
        if thread.head in gone and not is_moving:
            thread.journal, thread.requests, thread.due_at = [], {}, None
        for kept in gone:
            kept.info, thread.is_tidy = None, False

    def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        thread = self.threads.setdefault(thread_id, Thread())
        if item_id not in thread.consumed:
            thread.inbox.setdefault(item_id, (kind, body))

    def pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        for kept in self.order:
            if kept.info is not None and kept.info.checkpoint_id == checkpoint_id:
                kept.info = msgspec.structs.replace(kept.info, is_pinned=is_pinned)

    def prune(self, thread_id: str, checkpoint_ids: Iterable[str], events_before: int) -> int:
        thread = self.threads.get(thread_id, Thread())
        gone = [
            kept for kept in thread.checkpoints if kept.info is not None and kept.info.checkpoint_id in checkpoint_ids
        ]
        gone = _unpinned(gone)
        self._forget(thread, gone)
        if thread.forget_events(events_before) or gone:
            thread.tidy()
        return len(gone)

    def delete(self, thread_id: str) -> None:
        thread = self.threads.pop(thread_id)
        gone = {id(kept) for kept in thread.commits}
        self.order = [kept for kept in self.order if id(kept) not in gone]

    # ------------------------------------------------------------ whole threads

    def copy(self, thread_id: str, to: str, ids: dict[int, str]) -> None:
        source = self.threads[thread_id]
        made = replace(source, owner=None, fence=0, journal=[], inbox={}, consumed=set(), commits=[])
        made.requests = {key: _of(request, to) for key, request in source.requests.items()}
        for kept in source.commits:
            info = kept.info and _named(kept.info, to, ids[kept.number])
            made.commits.append(Kept(kept.commit, info, kept.events, dict(kept.chunks), kept.has))
        self.add(to, made)

    def read_out(self, thread_id: str) -> Thread:
        """As it is now, and nothing that happens later changes it."""
        return replace(deepcopy(self.threads[thread_id]), owner=None, is_tidy=False)

    def add(self, thread_id: str, thread: Thread) -> None:
        self.order += thread.commits
        self.threads[thread_id] = thread
        self._move(thread)


def _unpinned(checkpoints: list[Kept]) -> list[Kept]:
    return [kept for kept in checkpoints if kept.info is not None and not kept.info.is_pinned]


def _of(request: PendingRequest, thread_id: str) -> PendingRequest:
    return PendingRequest(thread_id, request.request_id, request.executor_id, request.asked_at)


def _named(info: CheckpointInfo, thread_id: str, checkpoint_id: str) -> CheckpointInfo:
    rest = (info.workflow_name, info.number, info.iteration_count, None, info.timestamp, info.run_id, info.status)
    return CheckpointInfo(checkpoint_id, thread_id, *rest)
