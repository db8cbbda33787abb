"""Whether the commits of a thread fit together, told as they pass by: each is looked at once, and none is kept.

What a commit refers to is in it or in those before it. So it is enough to remember which chunks there were, and how
high a hash tree each of them is the top of: a root is whole if all that it refers to directly is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.checkpoints.delta.chunk_types import RESERVED, looks_like_chunks
from perdure.codec import Tree
from perdure.codecs.walk import from_bytes
from perdure.digests import digest_of
from perdure.errors import UnreadableValue
from perdure.records import CheckpointInfo, Commit, LoggedEvents, ThreadHeader

_BROKEN = -1
_POINTERS = RESERVED - {"$plain"}

MISFITS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What whoever reads a row fails with if something else is in it than what was written."""

Pointer = tuple[str, int]
"""A reference, and the height of the hash tree that it is the top of (0: a value)."""


class IntegrityProblem(msgspec.Struct, frozen=True):
    """Something that does not fit."""

    reason: str
    checkpoint_id: str | None = None


class ThreadIntegrity:
    """Of one thread. Give it all commits in their order, then call `end`."""

    def __init__(self, standing: ThreadHeader) -> None:
        self._standing = standing
        self._chunks = KnownChunks()
        self._numbers: set[int] = set()
        self._last = 0
        self._last_said: tuple[str, ...] = ()
        """Of the last commit: status, time, and the workflow of its checkpoint if it has one."""
        self._next_seq = standing.first_seq
        self.checkpoints: dict[int, str] = {}
        """Ids, by number."""
        self._ids: set[str] = set()

    def check_standing(self) -> Iterator[IntegrityProblem]:
        """What it says of things that are in no commit."""
        standing = self._standing
        for entry in standing.journal:
            if entry.number != standing.number:
                yield IntegrityProblem(
                    f"the journal of delivery {entry.delivery_id} extends commit {entry.number}, not the last"
                )
            yield from _undecodable(entry.body, f"the journal of delivery {entry.delivery_id}")
        for item in standing.inbox:
            yield from _undecodable(item.body, f"item {item.item_id!r} of the inbox")
        for one in standing.requests:
            if one.thread_id != standing.thread_id:
                yield IntegrityProblem(f"request {one.request_id!r} is one of thread {one.thread_id!r}")

    def add(self, commit: Commit) -> Iterator[IntegrityProblem]:
        """Whatever is wrong with it. Look at all of it: the commit is taken in on the way."""
        number, info = commit.number, commit.info
        if number <= self._last:
            yield IntegrityProblem(f"commit {number} follows commit {self._last}")
        if number > self._standing.number:
            yield IntegrityProblem(f"there is a commit {number}, and the thread stands at {self._standing.number}")
        self._last = max(self._last, number)
        self._last_said = (commit.status, commit.timestamp, *([] if info is None else [info.workflow_name]))
        name = None if info is None else info.checkpoint_id
        for reason in self._chunks.take_in(commit):
            yield IntegrityProblem(reason, name)
        if info is not None:
            yield from self._check_checkpoint(commit, info)
        if commit.parent is not None and commit.parent not in self._numbers:
            yield IntegrityProblem(f"commit {number} continues from commit {commit.parent}, which is not there", name)
        self._numbers.add(number)
        if commit.events is not None and commit.events.first_seq >= self._standing.first_seq:
            for reason in self._check_events(commit.events, number):
                yield IntegrityProblem(reason, name)

    def _check_checkpoint(self, commit: Commit, info: CheckpointInfo) -> Iterator[IntegrityProblem]:
        number, name = commit.number, info.checkpoint_id
        if (info.number, info.thread_id) != (number, self._standing.thread_id):
            yield IntegrityProblem(
                f"commit {number} holds a checkpoint of commit {info.number} of {info.thread_id!r}", name
            )
        if name in self._ids:
            yield IntegrityProblem(f"commit {number} and one before it have the same checkpoint id", name)
        self._ids.add(name)
        self.checkpoints[number] = name
        before = self.checkpoints.get(commit.parent or 0)
        if before not in (None, info.previous_checkpoint_id):
            said = info.previous_checkpoint_id
            yield IntegrityProblem(f"it continues from {before!r}, and says that it follows {said!r}", name)
        if commit.root is None:
            yield IntegrityProblem(f"commit {number} has no content", name)
        else:
            for reason in self._chunks.check(commit.root, "its root"):
                yield IntegrityProblem(reason, name)

    def _check_events(self, events: LoggedEvents, number: int) -> Iterator[str]:
        if events.first_seq != self._next_seq or events.count < 1:
            last = events.first_seq + events.count - 1
            yield f"commit {number} holds events {events.first_seq} to {last}, expected {self._next_seq} first"
        self._next_seq = events.first_seq + events.count
        yield from self._chunks.check(events.body, f"the events of commit {number}")
        try:
            found = from_bytes(events.body, "events")
        except UnreadableValue:
            return  # told already
        if not isinstance(found, list) or len(found) != events.count:
            yield f"the events of commit {number} are not {events.count}"

    def end(self) -> Iterator[IntegrityProblem]:
        """What is wrong with all of them together."""
        standing = self._standing
        newest = max(self.checkpoints, default=None)
        if newest != standing.head:
            yield IntegrityProblem(
                f"its head is to be commit {standing.head}, and its newest checkpoint is that of commit {newest}",
                self.checkpoints.get(newest or 0),
            )
        said = (standing.status, standing.updated_at, standing.workflow_name)
        if self._last == standing.number and self._last_said != said[: len(self._last_said)]:
            yield IntegrityProblem(f"its last commit says {self._last_said}, and the thread {said}")
        if self._next_seq != standing.last_seq + 1:
            yield IntegrityProblem(f"its events end with {self._next_seq - 1}, expected {standing.last_seq}")
        for number in standing.pins:
            if number not in self.checkpoints:
                yield IntegrityProblem(f"commit {number} is pinned, and holds no checkpoint")


def _undecodable(body: bytes, what: str) -> Iterator[IntegrityProblem]:
    try:
        from_bytes(body, what)
    except UnreadableValue as error:
        yield IntegrityProblem(str(error))


# ---------------------------------------------------------------- chunks


class KnownChunks:
    """Those of all commits so far, without their content."""

    def __init__(self) -> None:
        self._heights: dict[str, int] = {}
        """By reference: up to which height it is the top of a hash tree. A broken one is not even a value."""
        self._broken: dict[str, str] = {}
        """By reference: what is wrong with it or with what it refers to, if it is a value, or if it is a node."""

    def take_in(self, commit: Commit) -> Iterator[str]:
        """The chunks of the next commit. Tells of those that are damaged; one that only refers to such a chunk, or to
        one that is gone, may be something that nobody needs any more."""
        waiting: dict[str, tuple[Pointer, ...] | tuple[str, ...]] = {}
        nodes: set[str] = set()
        for digest, data in commit.chunks.items():
            ref = f"{digest}.{commit.number}"
            try:
                tree = _proved(ref, digest, data)
            except UnreadableValue as error:
                self._heights[ref], self._broken[ref] = _BROKEN, str(error)
                yield str(error)
                continue
            listed = tree.get("$of") if isinstance(tree, dict) else None
            if isinstance(listed, list):
                nodes.add(ref)
                waiting[ref] = tuple(one if isinstance(one, str) else "" for one in listed)
            else:
                waiting[ref] = tuple(pointers(tree)) if looks_like_chunks(data) else ()
        for ref in waiting:
            self._settle(ref, waiting, nodes)

    def _settle(self, ref: str, waiting: dict[str, Any], nodes: set[str]) -> None:
        """Its height, after those of all that it refers to."""
        stack, entered = [ref], set[str]()
        while stack:
            top = stack[-1]
            if top in self._heights:
                stack.pop()
                continue
            inside = waiting[top] if top in nodes else [one for one, _ in waiting[top]]
            first = [one for one in inside if one in waiting and one not in self._heights]
            if first and top not in entered:
                entered.add(top)
                stack.extend(first)
                continue
            if top in nodes:
                self._heights[top] = 1 + min([self._height(top, one) for one in inside], default=0)
            else:
                wrong = next((found for one in waiting[top] if (found := self.problem(*one)) is not None), None)
                self._heights[top] = 0 if wrong is None else _BROKEN
                if wrong is not None:
                    self._broken[top] = wrong

    def _height(self, node: str, ref: str) -> int:
        height = self._heights.get(ref, _BROKEN)
        if height == _BROKEN or ref in self._broken:
            self._broken[node] = self._broken.get(ref) or str(self.problem(ref, 0))
        return height

    def check(self, data: bytes, what: str) -> Iterator[str]:
        """What is wrong with a piece that refers to chunks. Each thing is told once."""
        try:
            tree = from_bytes(data, what)
            found = dict.fromkeys(pointers(tree)) if looks_like_chunks(data) else {}
        except (UnreadableValue, RecursionError) as error:
            yield str(error)
            return
        yield from dict.fromkeys(wrong for one in found if (wrong := self.problem(*one)) is not None)

    def problem(self, ref: str, height: int) -> str | None:
        """Why there is not all that a reference means, if so."""
        known = self._heights.get(ref)
        if known is None:
            number = ref.partition(".")[2]
            return f"chunk {ref} is missing: commit {number} does not hold it" if number else f"{ref!r} is no reference"
        if known < height or known == _BROKEN:
            return self._broken.get(ref, f"chunk {ref} is not the top of a hash tree of height {height}")
        return None


def _proved(ref: str, digest: str, data: bytes) -> Tree:
    if digest_of(data) != digest:
        raise UnreadableValue(f"chunk {ref}", "its content does not match its digest: it was changed or damaged")
    return from_bytes(data, f"chunk {ref}")


def pointers(tree: Tree) -> Iterator[Pointer]:
    """All references in a tree, whatever it holds. One that is none is given as it is, for the message."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if type(one) is list:
            waiting.extend([item for item in one if type(item) in (list, dict)])
        elif type(one) is dict:
            kind = next(iter(one), "")
            if kind in _POINTERS:
                height = one.get("depth", 0)
                yield str(one[kind]), height if type(height) is int else 0
            else:
                waiting.extend([item for item in one.values() if type(item) in (list, dict)])
