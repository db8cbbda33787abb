"""Checks that the commits of a thread fit together, in one pass that keeps none of them.

A commit refers only to chunks of itself and of earlier commits. So the check keeps the references of all chunks, each
with the height of its hash tree: a root is complete if its direct references are.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter

import msgspec

from perdure.checkpoints.delta.assembly import find_references, pointers_of, verify_chunk
from perdure.checkpoints.delta.chunk_types import looks_like_chunks
from perdure.codec import Tree
from perdure.codecs.walk import from_bytes
from perdure.errors import UnreadableValue
from perdure.records import CheckpointInfo, Commit, Damage, LoggedEvents, ThreadHeader

_BROKEN = -1

ROW_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""The errors of a row whose content was changed."""

Pointer = tuple[str, int]
"""A reference, and the height of its hash tree (0: a value)."""


class ThreadIntegrity:
    """The check of one thread. Pass it all commits in their order, then call `end`."""

    def __init__(self, header: ThreadHeader) -> None:
        self._header = header
        self._chunks = ChunkIndex()
        self._numbers: set[int] = set()
        self._last = 0
        self._last_state: tuple[str, ...] = ()
        """Status, time and, if it has a checkpoint, workflow of the last commit."""
        self._next_seq = header.first_seq
        self.checkpoints: dict[int, str] = {}
        """Checkpoint ids by commit number."""
        self._ids: set[str] = set()

    def _damage(self, reason: str, checkpoint_id: str | None = None) -> Damage:
        return Damage(reason, self._header.thread_id, checkpoint_id)

    def check_header(self) -> Iterator[Damage]:
        """Problems of the journal, the inbox and the requests."""
        header = self._header
        for entry in header.journal:
            journal = f"the journal of delivery {entry.delivery_id}"
            if entry.number != header.number:
                yield self._damage(f"{journal} extends commit {entry.number}, not the last")
            yield from map(self._damage, _undecodable(entry.body, journal))
        for item in header.inbox:
            yield from map(self._damage, _undecodable(item.body, f"item {item.item_id!r} of the inbox"))
        for request in header.requests:
            if request.thread_id != header.thread_id:
                yield self._damage(f"request {request.request_id!r} belongs to thread {request.thread_id!r}")

    def add(self, commit: Commit) -> Iterator[Damage]:
        """Add the commit; yields its problems. Exhaust the iterator: it adds the commit on the way."""
        number, info = commit.number, commit.info
        if number <= self._last:
            yield self._damage(f"commit {number} follows commit {self._last}")
        if number > self._header.number:
            yield self._damage(f"commit {number} exists, but the thread is at commit {self._header.number}")
        self._last = max(self._last, number)
        self._last_state = (commit.status, commit.timestamp, *([] if info is None else [info.workflow_name]))
        name = None if info is None else info.checkpoint_id
        yield from (self._damage(reason, name) for reason in self._chunks.add(commit))
        if info is not None:
            yield from (self._damage(reason, name) for reason in self._check_checkpoint(commit, info))
        if commit.parent is not None and commit.parent not in self._numbers:
            yield self._damage(f"commit {number} continues from commit {commit.parent}, which does not exist", name)
        self._numbers.add(number)
        if commit.events is not None and commit.events.first_seq >= self._header.first_seq:
            yield from (self._damage(reason, name) for reason in self._check_events(commit.events, number))

    def _check_checkpoint(self, commit: Commit, info: CheckpointInfo) -> Iterator[str]:
        number, name, previous = commit.number, info.checkpoint_id, info.previous_checkpoint_id
        if (info.number, info.thread_id) != (number, self._header.thread_id):
            yield f"commit {number} holds a checkpoint of commit {info.number} of {info.thread_id!r}"
        if name in self._ids:
            yield f"commit {number} and an earlier one have the same checkpoint id"
        self._ids.add(name)
        self.checkpoints[number] = name
        before = self.checkpoints.get(commit.parent or 0)
        if before not in (None, previous):
            yield f"its commit continues from {before!r}, but it names {previous!r}"
        if commit.root is None:
            yield f"commit {number} has no content"
        else:
            yield from self._chunks.check(commit.root, "its root")

    def _check_events(self, events: LoggedEvents, number: int) -> Iterator[str]:
        if events.first_seq != self._next_seq or events.count < 1:
            last = events.first_seq + events.count - 1
            yield f"commit {number} holds events {events.first_seq} to {last}, expected {self._next_seq} first"
        self._next_seq = events.first_seq + events.count
        yield from self._chunks.check(events.body, f"the events of commit {number}")
        try:
            trees = from_bytes(events.body, "events")
        except UnreadableValue:
            return  # reported already
        if not isinstance(trees, list) or len(trees) != events.count:
            yield f"commit {number} does not hold {events.count} events"

    def end(self) -> Iterator[Damage]:
        """Problems of all commits together."""
        header = self._header
        newest = max(self.checkpoints, default=None)
        if newest != header.head:
            yield self._damage(
                f"its head is commit {header.head}, but its newest checkpoint is that of commit {newest}",
                self.checkpoints.get(newest or 0),
            )
        state = (header.status, header.updated_at, header.workflow_name)
        if self._last == header.number and self._last_state != state[: len(self._last_state)]:
            yield self._damage(f"its last commit has {self._last_state}, but the thread {state}")
        if self._next_seq != header.last_seq + 1:
            yield self._damage(f"its events end with {self._next_seq - 1}, expected {header.last_seq}")
        for number in header.pins:
            if number not in self.checkpoints:
                yield self._damage(f"commit {number} is pinned, but holds no checkpoint")


def _undecodable(body: bytes, what: str) -> Iterator[str]:
    try:
        from_bytes(body, what)
    except UnreadableValue as error:
        yield str(error)


class ChunkIndex(msgspec.Struct):
    """The chunks of all commits so far, without their content."""

    _heights: dict[str, int] = {}
    """By reference: the height of its hash tree. A broken chunk is not even a value."""
    _broken: dict[str, str] = {}
    """By reference: the problem of the chunk or of a chunk that it refers to."""

    def add(self, commit: Commit) -> Iterator[str]:
        """Add the chunks of the next commit; yields the problems of damaged ones. A chunk that refers to a damaged
        or deleted one may be unused, so it is not a problem by itself."""
        pointers: dict[str, list[Pointer]] = {}
        nodes: set[str] = set()
        for digest, data in commit.chunks.items():
            ref = f"{digest}.{commit.number}"
            try:
                verify_chunk(ref, digest, data)
                tree = from_bytes(data, f"chunk {ref}")
            except UnreadableValue as error:
                self._heights[ref], self._broken[ref] = _BROKEN, str(error)
                yield str(error)
                continue
            listed = tree.get("$of") if isinstance(tree, dict) else None
            if isinstance(listed, list):
                nodes.add(ref)
                pointers[ref] = [(child if isinstance(child, str) else "", 0) for child in listed]
            else:
                pointers[ref] = [*_pointers(tree)] if looks_like_chunks(data) else []
        # No chunk can refer to itself: a reference has the digest of what it refers to.
        inside = {ref: [child for child, _ in below if child in pointers] for ref, below in pointers.items()}
        for ref in TopologicalSorter(inside).static_order():
            if ref in nodes:
                self._heights[ref] = 1 + min([self._height(ref, child) for child, _ in pointers[ref]], default=0)
                continue
            problems = (self.find_problem(*pointer) for pointer in pointers[ref])
            problem = next((each for each in problems if each is not None), None)
            self._heights[ref] = 0 if problem is None else _BROKEN
            if problem is not None:
                self._broken[ref] = problem

    def _height(self, node: str, ref: str) -> int:
        height = self._heights.get(ref, _BROKEN)
        if height == _BROKEN or ref in self._broken:
            self._broken[node] = self._broken.get(ref) or str(self.find_problem(ref, 0))
        return height

    def check(self, data: bytes, what: str) -> Iterator[str]:
        """The problems of a piece that refers to chunks, each once."""
        try:
            tree = from_bytes(data, what)
            unique = dict.fromkeys(_pointers(tree)) if looks_like_chunks(data) else {}
        except (UnreadableValue, RecursionError) as error:
            yield str(error)
            return
        problems = (self.find_problem(*pointer) for pointer in unique)
        yield from dict.fromkeys(problem for problem in problems if problem is not None)

    def find_problem(self, ref: str, height: int) -> str | None:
        """Why the hash tree of a reference is not complete, if so."""
        stored = self._heights.get(ref)
        if stored is None:
            number = ref.partition(".")[2]
            return (
                f"chunk {ref} is missing: commit {number} does not hold it" if number else f"{ref!r} is not a reference"
            )
        if stored < height or stored == _BROKEN:
            return self._broken.get(ref, f"chunk {ref} is not the top of a hash tree of height {height}")
        return None


def _pointers(tree: Tree) -> Iterator[Pointer]:
    """All references in a tree, whatever it holds; also invalid ones, for the message."""
    for ref, height in pointers_of(find_references([tree])):
        yield str(ref), height if type(height) is int else 0
