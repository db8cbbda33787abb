"""Is all that a store keeps as it was written? Every digest, every link, every count; what is damaged is named.

The store tells what it can tell itself. What the bytes mean is looked at here: chunks, references, events, and whether
what is listed beside a thread's head is what the head says. No value is built: trees are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import decode_body
from perdure.checkpoints.delta.assembly import read_whole_tree
from perdure.checkpoints.encoding.events import decode_events
from perdure.checkpoints.integrity.commits import MISFITS, ThreadIntegrity
from perdure.checkpoints.level import due_at
from perdure.checkpoints.thread import pending_request
from perdure.checkpoints.transfer.threads import TRIES, aside, infos_of, is_as_before, standing_of
from perdure.codec import DeclaredTypes, Tree
from perdure.errors import (
    DamagedCheckpoint,
    DamagedStore,
    PerdureError,
    StorageFailed,
    ThreadNotFound,
    UnreadableValue,
    WorkflowCheckpointException,
)
from perdure.records import CheckpointInfo, Commit, Damage, PendingRequest, ThreadHeader, ThreadInfo
from perdure.store import Store

AT_ONCE = 16
"""Commits that are read in one go, until one of them is damaged."""


async def verify(
    store: Store, *, thread_id: str | None = None, progress: Callable[[int, int, str], None] | None = None
) -> list[Damage]:
    """What is damaged, in the whole store or in one thread. Raises ThreadNotFound."""
    found: dict[Damage, None] = {}
    try:
        with storage_errors(store, "check what it keeps"):
            told = await store.check()
            found.update(dict.fromkeys(one for one in told if thread_id in (None, one.thread_id)))
            threads = await store.threads(thread_id=thread_id)
    except (DamagedStore, StorageFailed) as error:
        if _is_outage(error):
            raise
        return [*found, Damage(f"its threads cannot be listed: {error}")]
    if thread_id is not None and not threads and not found:
        raise ThreadNotFound(thread_id)
    for done, thread in enumerate(threads, 1):
        found.update(dict.fromkeys(await _damages_of(store, thread.thread_id)))
        if progress is not None:
            progress(done, len(threads), thread.thread_id)
    return [*found]


async def _damages_of(store: Store, thread_id: str) -> list[Damage]:
    """A thread may move while it is looked at: what was not found each time is none."""
    found: list[Damage] | None = None
    for _ in range(TRIES):
        check = _ThreadCheck(store, thread_id)
        try:
            await check.run()
            is_settled = not check.found or not await check.has_moved()
        except (PerdureError, *MISFITS) as error:
            if _is_outage(error):
                raise
            check.tell(error)
            is_settled = True
        if is_settled:
            return check.found
        found = check.found if found is None else [one for one in found if one in check.found]
    return found or []


def _is_outage(error: Exception) -> bool:
    """That the disk cannot be read now says nothing of what is on it."""
    return isinstance(error, StorageFailed) and not isinstance(error.__cause__, MISFITS)


class _ThreadCheck:
    """One look at one thread."""

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store = store
        self._thread_id = thread_id
        self.found: list[Damage] = []
        self._listed: ThreadInfo | None = None
        self._standing: ThreadHeader | None = None
        self._infos: Sequence[CheckpointInfo] = ()
        self._head: Commit | None = None

    def tell(self, error: Exception) -> None:
        if isinstance(error, DamagedCheckpoint):
            named = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
            self._add(error.reason, named)
        else:
            reason = str(error) if isinstance(error, PerdureError) else repr(error)
            self._add(f"what is kept of it cannot be read: {reason}")

    def _add(self, reason: str, checkpoint_id: str | None = None) -> None:
        damage = Damage(reason, self._thread_id, checkpoint_id)
        if damage not in self.found:
            self.found.append(damage)

    async def has_moved(self) -> bool:
        before = self._standing
        if before is None:
            return False
        try:
            now = await standing_of(self._store, self._thread_id)
            if now is None or msgspec.structs.replace(now, fence=before.fence) != before:
                return True
            if list(await self._store.threads(thread_id=self._thread_id)) != [self._listed]:
                return True  # between the list and the rest, and not since
            return not await is_as_before(self._store, before, self._infos)
        except DamagedCheckpoint:
            return False

    async def run(self) -> None:
        store, thread_id = self._store, self._thread_id
        with storage_errors(store, "list threads"):
            threads = await store.threads(thread_id=thread_id)
        if not threads:
            return  # deleted since it was listed
        self._listed = threads[0]
        self._infos = await infos_of(store, thread_id)
        try:
            self._standing = await standing_of(store, thread_id)
        except DamagedCheckpoint as error:
            self.tell(error)
        standing = self._standing or _as_listed(threads[0], self._infos)
        integrity = ThreadIntegrity(standing)
        await self._check_commits(standing, integrity)
        self._check_lists(threads[0], standing, integrity)
        if self._standing is not None:
            for one in (*integrity.check_standing(), *integrity.end()):
                self._add(one.reason, one.checkpoint_id)
            await self._check_waiting(threads[0], self._standing)

    # ------------------------------------------------------------ commits

    async def _check_commits(self, standing: ThreadHeader, integrity: ThreadIntegrity) -> None:
        after, limit = 0, AT_ONCE
        while after < standing.number:
            try:
                with storage_errors(self._store, "read commits"):
                    page = await self._store.commits(self._thread_id, after=after, limit=limit)
            except DamagedCheckpoint as error:
                if limit == 1:
                    self.tell(error)
                    after += 1  # it is the next one, or one after that: then this is told again, once
                limit = 1
                continue
            page = [one for one in page if one.number <= standing.number]
            if not page:
                return
            await aside(self._take_in, page, standing, integrity)
            for commit in page:
                await self._check_events(commit)
            after, limit = page[-1].number, AT_ONCE

    def _take_in(self, page: Iterable[Commit], standing: ThreadHeader, integrity: ThreadIntegrity) -> None:
        for commit in page:
            for one in integrity.add(commit):
                self._add(one.reason, one.checkpoint_id)
            if commit.number == standing.head:
                self._head = commit

    async def _check_events(self, commit: Commit) -> None:
        if commit.events is None:
            return
        name = None if commit.info is None else commit.info.checkpoint_id
        logged = msgspec.structs.replace(commit.events, timestamp=commit.timestamp)
        try:
            what = f"the events of commit {commit.number}"
            trees, _ = await read_whole_tree(self._store, self._thread_id, logged.body, what)
            for _ in decode_events(trees, logged, self._thread_id, TREES):
                pass
        except (UnreadableValue, ValueError, TypeError) as error:
            self._add(str(error), name)

    # ------------------------------------------------------------ what is said of them elsewhere

    def _check_lists(self, thread: ThreadInfo, standing: ThreadHeader, integrity: ThreadIntegrity) -> None:
        listed = {one.number: one for one in self._infos if one.number <= standing.number}
        for number, one in listed.items():
            if integrity.checkpoints.get(number) != one.checkpoint_id:
                self._add(f"commit {number} does not hold it as it is listed", one.checkpoint_id)
        for number, checkpoint_id in integrity.checkpoints.items():
            if number not in listed:
                self._add(f"commit {number} holds it, and it is not listed", checkpoint_id)
        pinned = {one.number for one in listed.values() if one.is_pinned}
        if pinned != set(standing.pins):
            self._add(f"the pinned commits are {sorted(standing.pins)}, and {sorted(pinned)} are listed as such")
        head = listed.get(standing.head or 0)
        said = (thread.number, thread.status, thread.workflow_name, thread.checkpoint_id, thread.due_at)
        expected = (standing.number, standing.status, standing.workflow_name, head and head.checkpoint_id)
        if said != (*expected, standing.due_at):
            self._add(f"it is listed as {said}, and stands at {(*expected, standing.due_at)}", thread.checkpoint_id)

    async def _check_waiting(self, thread: ThreadInfo, standing: ThreadHeader) -> None:
        """Requests and times beside the head are those in it; or none, if it became the head when a later one went."""
        with storage_errors(self._store, "list requests"):
            listed = await self._store.pending_requests(thread_id=self._thread_id)
        asked = _by_id(standing.requests)
        if _by_id(listed) != asked:
            self._add(f"requests {sorted(_by_id(listed))} are listed, and {sorted(asked)} are kept with the thread")
        if self._head is None or self._head.info is None or self._head.root is None:
            return
        info, root = self._head.info, self._head.root
        try:
            tree, _ = await read_whole_tree(self._store, self._thread_id, root, f"checkpoint {info.checkpoint_id!r}")
            checkpoint = decode_body(tree, info, TREES)
        except WorkflowCheckpointException as error:
            self._add(str(getattr(error, "reason", error)), info.checkpoint_id)
            return
        if standing.number > info.number and not asked and standing.due_at is None:
            return
        events = checkpoint.pending_request_info_events.values()
        expected = _by_id([pending_request(self._thread_id, one, _ANY_TIME) for one in events])
        if asked != expected:
            reason = f"it asks {sorted(expected)}, and the requests of its thread are {sorted(asked)}"
            self._add(
                reason if sorted(asked) != sorted(expected) else f"{reason}, with other terms", info.checkpoint_id
            )
        if standing.due_at != due_at(checkpoint):
            self._add(f"it is due at {due_at(checkpoint)}, and its thread at {standing.due_at}", info.checkpoint_id)


def _by_id(requests: Iterable[PendingRequest]) -> dict[str, tuple[object, ...]]:
    return {one.request_id: (one.executor_id, one.deadline, one.assignee) for one in requests}


def _as_listed(thread: ThreadInfo, infos: Sequence[CheckpointInfo]) -> ThreadHeader:
    """For a thread that does not say itself where it stands."""
    return ThreadHeader(
        thread.thread_id,
        thread.workflow_name,
        thread.number,
        0,
        thread.status,
        thread.updated_at,
        0,
        head=next((one.number for one in infos if one.checkpoint_id == thread.checkpoint_id), None),
        due_at=thread.due_at,
        pins=[one.number for one in infos if one.is_pinned],
    )


class _Trees:
    """Implements `Codec`, and leaves every value the tree that it is."""

    def encode(self, value: object, path: str) -> Tree:
        return value

    def decode(self, tree: Tree, path: str) -> Tree:
        return {} if path == "buffers" else tree  # their form is checked, and would be only after a real decoding

    def for_types(self, declared: DeclaredTypes) -> _Trees:
        return self


TREES = _Trees()
_ANY_TIME = datetime.min.replace(tzinfo=UTC)
