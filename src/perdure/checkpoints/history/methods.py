"""History: the part of a storage that looks at a thread's past, compares, forks, goes back, and pins.

It needs no workflow, so it serves tools and the command line; `Workflow` has the same methods, and checks in addition
that a checkpoint fits its code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.access import Access
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.follow.wait_for_owner import OwnerWait
from perdure.checkpoints.history.branches import Branches, branches_of
from perdure.checkpoints.history.retention import Retention
from perdure.checkpoints.history.thread_metadata import load_thread_metadata
from perdure.checkpoints.history.time_travel import (
    ON_BUSY,
    add_fork,
    edited_state,
    forked,
    of_another_thread,
    repeated,
    rewound,
)
from perdure.checkpoints.recent import RecentThreads
from perdure.checkpoints.thread import StoredThread
from perdure.codec import Codec, DeclaredTypes
from perdure.errors import CheckpointNotFound, InvalidRun, ThreadBusy, ThreadConflict, ThreadNotFound, did_you_mean
from perdure.names import check_identifier, checkpoint_id_of, new_item_id, new_thread_id
from perdure.records import CheckpointInfo, ThreadInfo

if TYPE_CHECKING:
    from perdure.checkpoints.history.diff import CheckpointDiff


_Act = Callable[[StoredThread], Awaitable[CheckpointInfo | None]]


class HistoryMethods(Access):
    """Of every storage over a store."""

    declared: DeclaredTypes
    retention: Retention
    _tool_codec: Codec
    _recent: RecentThreads

    # ------------------------------------------------------------ looking

    async def find_thread(self, thread_id: str) -> ThreadInfo:
        """Where the thread stands. Raises ThreadNotFound."""
        check_identifier("thread_id", thread_id)
        async with self.access("list threads"):
            found = await self.store.threads(thread_id=thread_id)
        if not found:
            raise ThreadNotFound(thread_id)
        return found[0]

    async def history(
        self, thread_id: str, *, limit: int | None = None, before: CheckpointID | CheckpointInfo | None = None
    ) -> list[CheckpointInfo]:
        """A thread's checkpoints, newest first, without reading a payload. `before` (a checkpoint) pages.

        Raises ThreadNotFound, or CheckpointNotFound for a `before` that there is not.
        """
        check_identifier("thread_id", thread_id)
        check_limit(limit)
        paged = None if before is None else checkpoint_id_of(before)
        async with self.access("list checkpoints"):
            found = await self.store.infos(thread_id=thread_id, limit=limit, before=paged)
        if not found and limit != 0 and before is None:
            raise ThreadNotFound(thread_id)
        return list(reversed(found))

    async def branches(self, thread_id: str) -> Branches:
        """A thread's history as a tree, without reading a payload. Raises ThreadNotFound."""
        return branches_of(thread_id, (await self.history(thread_id))[::-1])

    async def diff(self, a: CheckpointID | CheckpointInfo, b: CheckpointID | CheckpointInfo) -> CheckpointDiff:
        """What differs from checkpoint `a` to checkpoint `b`, of any thread. Raises CheckpointNotFound."""
        return (await self._load(a)).diff(await self._load(b))

    # ------------------------------------------------------------ going elsewhere

    async def fork(
        self,
        checkpoint_id: CheckpointID | CheckpointInfo,
        *,
        thread_id: str | None = None,
        update_state: Mapping[str, Any] | None = None,
        remove_state: Iterable[str] = (),
    ) -> CheckpointInfo:
        """Make a new thread that begins with what this checkpoint holds. Nothing is run.

        `update_state` gives keys of the state other values, of the type that they have (None always fits, and an int
        where a float is); `remove_state` leaves keys out. Raises CheckpointNotFound, ThreadExists, WrongStateType or
        UnsavableValue; then there is no such thread.
        """
        check_identifier("thread_id", thread_id)
        source = await self._load(checkpoint_id)
        fork = forked(source, thread_id or new_thread_id(), edited_state(source, update_state, remove_state))
        return await _whole(add_fork(self.store, fork, self._tool_codec))

    async def rewind(
        self,
        thread_id: str,
        checkpoint_id: CheckpointID | CheckpointInfo,
        *,
        on_busy: Literal["reject", "enqueue", "interrupt"] = "reject",
        takeover: bool = False,
    ) -> CheckpointInfo:
        """Go back to a checkpoint of the thread, as its next commit. Nothing is run; what came after stays as a branch.

        It needs nothing of the head, so it is the way back from a damaged one. A thread that is being run is waited for
        with `on_busy="enqueue"`, and taken with `"interrupt"` or `takeover=True`: its run then fails with
        ThreadConflict. Raises ThreadBusy, ThreadNotFound, CheckpointNotFound, or InvalidRun for a checkpoint of another
        thread.
        """
        wanted = checkpoint_id_of(checkpoint_id)
        await self.find_thread(thread_id)
        async with self.access("find a checkpoint"):
            stored = await self.store.find_checkpoint(wanted)
        if stored is None:
            raise CheckpointNotFound(wanted)
        if stored.info.thread_id != thread_id:
            raise of_another_thread(stored.info, thread_id)

        async def act(thread: StoredThread) -> CheckpointInfo | None:
            target = await self._load(wanted)
            try:
                about = await load_thread_metadata(self, thread.head_id)
                return await thread.commit(rewound(target, thread.number + 1, about), (), "", target.status)
            except ThreadConflict:
                await self._load(wanted)  # it may have been pruned since
                raise

        return await self._moved(thread_id, act, on_busy, takeover=takeover)

    async def checkpoint(
        self, thread_id: str, *, on_busy: Literal["reject", "enqueue", "interrupt"] = "reject", takeover: bool = False
    ) -> CheckpointInfo:
        """Save where the thread stands once more, as a checkpoint of its own: to pin it, for one.

        Raises ThreadBusy while it is being run, ThreadNotFound, or DamagedCheckpoint.
        """
        await self.find_thread(thread_id)  # opening one that is not there would make it

        async def act(thread: StoredThread) -> CheckpointInfo | None:
            head = await thread.load_head()
            if head is None:
                raise ThreadNotFound(thread_id)
            again = repeated(head, thread.number + 1, thread.status)
            # What is recorded since the head is still to be replayed: it is the same place.
            return await thread.commit(again, (), "", again.status, unsettled=tuple(thread.load_journal()))

        return await self._moved(thread_id, act, on_busy, takeover=takeover)

    # ------------------------------------------------------------ pins

    async def pin(self, checkpoint_id: CheckpointID | CheckpointInfo) -> None:
        """Keep the checkpoint, whatever retention and `prune` say. Idempotent. Raises CheckpointNotFound."""
        async with self.access("pin a checkpoint"):
            await self.store.pin(checkpoint_id_of(checkpoint_id))
        self._recent.changes += 1

    async def unpin(self, checkpoint_id: CheckpointID | CheckpointInfo) -> None:
        """Let it go like any other. Idempotent. Raises CheckpointNotFound."""
        async with self.access("unpin a checkpoint"):
            await self.store.unpin(checkpoint_id_of(checkpoint_id))
        self._recent.changes += 1

    # ------------------------------------------------------------ with a thread in hand

    async def _load(self, checkpoint_id: CheckpointID | CheckpointInfo) -> WorkflowCheckpoint:
        load: Callable[[str], Awaitable[WorkflowCheckpoint]] = self.load  # type: ignore[attr-defined]  # of the storage
        return await load(checkpoint_id_of(checkpoint_id))

    async def _moved(self, thread_id: str, act: _Act, on_busy: str, *, takeover: bool) -> CheckpointInfo:
        if on_busy not in ON_BUSY:
            choices = ", ".join(map(repr, ON_BUSY))
            raise InvalidRun(f"on_busy must be one of {choices}, got {on_busy!r}{did_you_mean(str(on_busy), ON_BUSY)}.")
        takes_over = takeover or on_busy == "interrupt"
        async with OwnerWait(self, thread_id) as waiting:
            while True:
                try:
                    return await _whole(self._move(thread_id, act, takeover=takes_over))
                except ThreadBusy:
                    if on_busy != "enqueue":
                        raise
                await waiting.until_free()

    async def _move(self, thread_id: str, act: _Act, *, takeover: bool) -> CheckpointInfo:
        async with self.access("open a thread"):
            opened = await self.store.open(thread_id, f"history-{new_item_id()}", takeover=takeover)
        codec = self._tool_codec
        recent = RecentThreads()  # another codec reads and writes here: nothing of it is remembered for runs
        thread = StoredThread(self.store, opened, self.declared, lambda _: codec, recent, retention=self.retention)
        try:
            info = await act(thread)
        finally:
            await thread.release()
        if info is None:
            raise ThreadNotFound(thread_id)
        return info


async def _whole(work: Any) -> CheckpointInfo:
    """To its end, although its caller is cancelled: else a claim could be left behind."""
    info: CheckpointInfo
    info, cancelled = await await_uncancelled(work)
    if cancelled is not None:
        raise cancelled
    return info


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"limit expects a number of items, or None for all, got {limit!r}.")
