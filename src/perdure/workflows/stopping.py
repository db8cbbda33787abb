"""Stopping: the part of a workflow that ends its runs from outside, for good or to be gone on with elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.open_thread import storage_errors
from perdure.checkpoints.storage import StoreCheckpointStorage, open_thread
from perdure.checkpoints.thread import StoredThread
from perdure.engine.run.options import check_storage
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThreads, Ownership, find_local_run
from perdure.errors import InvalidRun, ThreadNotFound
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.names import check_identifier, new_item_id
from perdure.records import ThreadInfo

AT_REST = (WorkflowRunState.IDLE.value, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value)
RUNNING = (WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value)


class StoppingMethods:
    """Of every workflow."""

    _storage: Any
    _compiled: Compiled
    _live: LiveThreads

    async def cancel(self, thread_id: str, *, checkpoint_storage: Any = None) -> bool:
        """End the run that moves the thread, in whichever process; False if nobody runs it, or there is no such thread.

        A run of this process has ended when this returns, and its result says CANCELLED. One of another process loses
        the thread: the store says CANCELLED, and nothing more of that run is stored. Either way `run(thread_id=...)`
        goes on.
        """
        check_identifier("thread_id", thread_id)
        if checkpoint_storage is not None:
            check_storage(checkpoint_storage)
        storage = self._storage if checkpoint_storage is None else checkpoint_storage
        thread = self._live.find(thread_id)
        owner: Ownership | None = None if thread is None else thread.owner
        if owner is not None and not owner.is_dead and not owner.is_waiting:
            await _interrupted(owner)
            if owner.has_entered:
                return True
        if not isinstance(storage, StoreCheckpointStorage):  # others know no owners
            return False
        try:
            info = await storage.find_thread(thread_id)
        except ThreadNotFound:
            return False
        elsewhere = find_local_run(info.run_id)  # of another workflow object
        if elsewhere is not None and not elsewhere.is_dead:
            await _interrupted(elsewhere)
            return True
        if info.run_id is None:
            return False
        taken, cancelled = await await_uncancelled(self._take_from(storage, info))
        if cancelled is not None:
            raise cancelled
        return taken

    async def _take_from(self, storage: StoreCheckpointStorage, info: ThreadInfo) -> bool:
        """Fence the owner out; False if it had come to an end before."""
        keeper = await open_thread(
            storage,
            info.thread_id,
            self._compiled.graph.name,
            self._compiled.declared,
            owner=f"cancel-{new_item_id()}",
            takeover=True,
            max_lag=1,
        )
        try:
            status = keeper.status if isinstance(keeper, StoredThread) else info.status
            has_ended = keeper.number != info.number and status not in RUNNING
            if not has_ended and status not in AT_REST:  # at rest: it had begun nothing that is stored
                state = WorkflowRunState.CANCELLED
                await keeper.commit(None, [WorkflowEvent("status", state=state)], info.run_id or "", state.value)
        finally:
            with storage_errors(storage, "give a thread up"):
                await keeper.release()
        return not has_ended

    async def leave(self, seconds: float) -> int:
        """Stop every run of this workflow in this process, to be gone on with by another one; how many were left.

        Each stops after its present superstep, and those that wait for a time at once. One whose superstep takes longer
        than this is stopped inside of it: what that has recorded stays. Nothing is lost and no end is recorded: the
        threads stay IN_PROGRESS, nobody owns them, and `run(thread_id=...)` goes on, anywhere. The runs raise
        RunInterrupted. What comes to its end meanwhile ends as ever, and runs that begin after this call go on.
        """
        if not seconds >= 0:
            raise InvalidRun(f"leave() needs the seconds that a superstep may still take, got {seconds!r}.")
        leaving = [one for _, one in self._live.runs() if not one.is_interrupted]
        for thread, one in self._live.runs():
            if one in leaving:
                one.leave()
            if thread.waker is not None and one is thread.owner:
                one.call_soon(thread.wake)
        waits = {asyncio.ensure_future(one.wait()): one for one in leaving}
        try:
            pending = (await asyncio.wait(waits, timeout=seconds))[1] if waits else set()
            while pending:
                owners = {thread.owner for thread, _ in self._live.runs()}
                for wait in pending:
                    if waits[wait] in owners:  # one in the queue has its turn when that one is gone
                        waits[wait].leave_now()
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return sum(one.was_left for one in leaving)


async def _interrupted(owner: Ownership) -> None:
    """As a run with on_busy="interrupt" ends it; it has given the thread up then."""
    owner.interrupt()
    await owner.wait()
