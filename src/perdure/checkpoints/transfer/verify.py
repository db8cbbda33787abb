"""Verifies that a store keeps what was written: every digest, every link, every count.

The store checks its own rows and files. This module checks the content: chunks, references, events, and that the lists
beside a thread's head match the head. It decodes no value: trees are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.checkpoint import decode_body, due_at
from perdure.checkpoints.delta.assembly import new_assembly
from perdure.checkpoints.delta.recent import pending_request
from perdure.checkpoints.feed import decode_events
from perdure.checkpoints.transfer.integrity import ROW_ERRORS, ThreadIntegrity
from perdure.checkpoints.transfer.threads import (
    MAX_TRIES,
    is_unchanged,
    list_infos,
    read_commits,
    read_header,
    run_in_thread,
)
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
from perdure.store import Progress, Store


async def verify(store: Store, *, thread_id: str | None = None, progress: Progress | None = None) -> list[Damage]:
    """The damage of the whole store, or of one thread. Raises ThreadNotFound."""
    damages: dict[Damage, None] = {}
    try:
        with storage_errors(store, "check its content"):
            reported = await store.check()
            damages.update(dict.fromkeys(damage for damage in reported if thread_id in (None, damage.thread_id)))
            threads = await store.threads(thread_id=thread_id)
    except (DamagedStore, StorageFailed) as error:
        if _is_outage(error):
            raise
        return [*damages, Damage(f"its threads cannot be listed: {error}")]
    if thread_id is not None and not threads and not damages:
        raise ThreadNotFound(thread_id)
    for done, thread in enumerate(threads, 1):
        damages.update(dict.fromkeys(await _check_thread(store, thread.thread_id)))
        if progress is not None:
            progress(done, len(threads), thread.thread_id)
    return [*damages]


async def _check_thread(store: Store, thread_id: str) -> list[Damage]:
    """A thread may move during the check: only damage that every try finds counts."""
    common: list[Damage] | None = None
    for _ in range(MAX_TRIES):
        check = _ThreadCheck(store, thread_id)
        try:
            await check.run()
            is_final = not check.damages or not await check.has_moved()
        except (PerdureError, *ROW_ERRORS) as error:
            if _is_outage(error):
                raise
            check.add_error(error)
            is_final = True
        if is_final:
            return check.damages
        common = check.damages if common is None else [damage for damage in common if damage in check.damages]
    return common or []


def _is_outage(error: Exception) -> bool:
    """Whether the store is unavailable, which says nothing about its content."""
    return isinstance(error, StorageFailed) and not isinstance(error.__cause__, ROW_ERRORS)


class _ThreadCheck(msgspec.Struct):
    _store: Store
    _thread_id: str
    damages: list[Damage] = []
    _listed: ThreadInfo | None = None
    _header: ThreadHeader | None = None
    _infos: Sequence[CheckpointInfo] = ()
    _head: Commit | None = None

    def add_error(self, error: Exception) -> None:
        if isinstance(error, DamagedCheckpoint):
            checkpoint_id = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
            self._add(error.reason, checkpoint_id)
        else:
            reason = str(error) if isinstance(error, PerdureError) else repr(error)
            self._add(f"it cannot be read: {reason}")

    def _add(self, reason: str, checkpoint_id: str | None = None) -> None:
        self._keep([Damage(reason, self._thread_id, checkpoint_id)])

    def _keep(self, damages: Iterable[Damage]) -> None:
        self.damages += [damage for damage in dict.fromkeys(damages) if damage not in self.damages]

    async def has_moved(self) -> bool:
        before = self._header
        if before is None:
            return False
        try:
            now = await read_header(self._store, self._thread_id)
            if now is None or msgspec.structs.replace(now, fence=before.fence) != before:
                return True
            if list(await self._store.threads(thread_id=self._thread_id)) != [self._listed]:
                return True  # it moved after it was listed
            return not await is_unchanged(self._store, before, self._infos)
        except DamagedCheckpoint:
            return False

    async def run(self) -> None:
        store, thread_id = self._store, self._thread_id
        with storage_errors(store, "list threads"):
            threads = await store.threads(thread_id=thread_id)
        if not threads:
            return  # deleted since it was listed
        self._listed = threads[0]
        self._infos = await list_infos(store, thread_id)
        try:
            self._header = await read_header(store, thread_id)
        except DamagedCheckpoint as error:
            self.add_error(error)
        header = self._header or _as_listed(threads[0], self._infos)
        integrity = ThreadIntegrity(header)
        async for page in read_commits(store, header, self.add_error):
            await run_in_thread(self._add_commits, page, header, integrity)
            for commit in page:
                await self._check_events(commit)
        self._check_lists(threads[0], header, integrity)
        if self._header is not None:
            self._keep([*integrity.check_header(), *integrity.end()])
            await self._check_pending(threads[0], self._header)

    def _add_commits(self, page: Iterable[Commit], header: ThreadHeader, integrity: ThreadIntegrity) -> None:
        for commit in page:
            self._keep(integrity.add(commit))
            if commit.number == header.head:
                self._head = commit

    async def _check_events(self, commit: Commit) -> None:
        if commit.events is None:
            return
        name = None if commit.info is None else commit.info.checkpoint_id
        logged = msgspec.structs.replace(commit.events, timestamp=commit.timestamp)
        try:
            what = f"the events of commit {commit.number}"
            trees, _ = await new_assembly(self._store, self._thread_id).tree(logged.body, what)
            for _ in decode_events(trees, logged, self._thread_id, TREES):
                pass
        except (UnreadableValue, ValueError, TypeError) as error:
            self._add(str(error), name)

    def _check_lists(self, thread: ThreadInfo, header: ThreadHeader, integrity: ThreadIntegrity) -> None:
        listed = {info.number: info for info in self._infos if info.number <= header.number}
        for number, info in listed.items():
            if integrity.checkpoints.get(number) != info.checkpoint_id:
                self._add(f"commit {number} does not hold it, but it is listed", info.checkpoint_id)
        for number, checkpoint_id in integrity.checkpoints.items():
            if number not in listed:
                self._add(f"commit {number} holds it, but it is not listed", checkpoint_id)
        pinned = {info.number for info in listed.values() if info.is_pinned}
        if pinned != set(header.pins):
            self._add(f"the pinned commits are {sorted(header.pins)}, but {sorted(pinned)} are listed as pinned")
        head = listed.get(header.head or 0)
        state = (thread.number, thread.status, thread.workflow_name, thread.checkpoint_id, thread.due_at)
        expected = (header.number, header.status, header.workflow_name, head and head.checkpoint_id)
        if state != (*expected, header.due_at):
            self._add(f"it is listed as {state}, but is at {(*expected, header.due_at)}", thread.checkpoint_id)

    async def _check_pending(self, thread: ThreadInfo, header: ThreadHeader) -> None:
        """Requests and times beside the head must match it; or be none, if it became the head by a deletion."""
        with storage_errors(self._store, "list requests"):
            listed = await self._store.pending_requests(thread_id=self._thread_id)
        asked = _by_id(header.requests)
        if _by_id(listed) != asked:
            self._add(f"requests {sorted(_by_id(listed))} are listed, but the thread has {sorted(asked)}")
        if self._head is None or self._head.info is None or self._head.root is None:
            return
        info, root = self._head.info, self._head.root
        try:
            tree, _ = await new_assembly(self._store, self._thread_id).tree(root, f"checkpoint {info.checkpoint_id!r}")
            checkpoint = decode_body(tree, info, TREES)
        except WorkflowCheckpointException as error:
            self._add(str(getattr(error, "reason", error)), info.checkpoint_id)
            return
        if header.number > info.number and not asked and header.due_at is None:
            return
        events = checkpoint.pending_request_info_events.values()
        expected = _by_id([pending_request(self._thread_id, event, _ANY_TIME) for event in events])
        if asked != expected:
            reason = f"its requests are {sorted(expected)}, but those of its thread are {sorted(asked)}"
            self._add(
                reason if sorted(asked) != sorted(expected) else f"{reason}, with other terms", info.checkpoint_id
            )
        if header.due_at != due_at(checkpoint):
            self._add(f"it is due at {due_at(checkpoint)}, but its thread at {header.due_at}", info.checkpoint_id)


def _by_id(requests: Iterable[PendingRequest]) -> dict[str, tuple[object, ...]]:
    return {each.request_id: (each.executor_id, each.deadline, each.assignee) for each in requests}


def _as_listed(thread: ThreadInfo, infos: Sequence[CheckpointInfo]) -> ThreadHeader:
    """The header of a thread whose own header cannot be read."""
    return ThreadHeader(
        thread.thread_id,
        thread.workflow_name,
        thread.number,
        0,
        thread.status,
        thread.updated_at,
        0,
        head=next((info.number for info in infos if info.checkpoint_id == thread.checkpoint_id), None),
        due_at=thread.due_at,
        pins=[info.number for info in infos if info.is_pinned],
    )


class _Trees:
    """Implements `Codec`: every value stays its tree."""

    def encode(self, value: object, path: str) -> Tree:
        return value

    def decode(self, tree: Tree, path: str) -> Tree:
        return {} if path == "buffers" else tree  # msgspec would check their decoded form

    def for_types(self, declared: DeclaredTypes) -> _Trees:
        return self


TREES = _Trees()
_ANY_TIME = datetime.min.replace(tzinfo=UTC)
