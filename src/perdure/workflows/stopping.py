"""Stopping the runs of a workflow from outside: for good (`cancel`), or to continue in another process (`leave`).

Both functions are methods of `Workflow`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.any_storage import open_thread
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.engine.run.options import check_storage
from perdure.engine.thread.live_threads import Ownership, find_local_run
from perdure.errors import InvalidRun, ThreadNotFound
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.names import check_identifier, new_item_id
from perdure.records import ThreadInfo

if TYPE_CHECKING:
    from perdure.workflows.workflow import Workflow

AT_REST = (WorkflowRunState.IDLE.value, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value)
RUNNING = (WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value)


async def cancel(workflow: Workflow, thread_id: str, *, checkpoint_storage: Any = None) -> bool:
    """End the run of the thread, in whichever process; False if no run owns it, or no such thread exists.

    A run of this process has ended when this returns, and its result is CANCELLED. A run of another process loses the
    thread: the thread's status is CANCELLED, and the store rejects further commits of that run. Either way
    `run(thread_id=...)` continues.
    """
    check_identifier("thread_id", thread_id)
    if checkpoint_storage is not None:
        check_storage(checkpoint_storage)
    storage = workflow.checkpoint_storage if checkpoint_storage is None else checkpoint_storage
    thread = workflow._live.find(thread_id)
    owner: Ownership | None = None if thread is None else thread.owner
    if owner is not None and not owner.is_dead and not owner.is_waiting:
        await _interrupt(owner)
        if owner.has_entered:
            return True
    if not isinstance(storage, StoreCheckpointStorage):  # other storages have no owners
        return False
    try:
        info = await storage.find_thread(thread_id)
    except ThreadNotFound:
        return False
    run = find_local_run(info.run_id)  # of another workflow object
    if run is not None and not run.is_dead:
        await _interrupt(run)
        return True
    if info.run_id is None:
        return False
    taken, cancelled = await await_uncancelled(_take_from_owner(workflow, storage, info))
    if cancelled is not None:
        raise cancelled
    return taken


async def _take_from_owner(workflow: Workflow, storage: StoreCheckpointStorage, info: ThreadInfo) -> bool:
    """Fence the owner out; False if its run ended before."""
    opened = await open_thread(
        storage,
        info.thread_id,
        workflow.name,
        workflow.declared_types,
        owner=f"cancel-{new_item_id()}",
        takeover=True,
        max_lag=1,
    )
    try:
        status = opened.status if isinstance(opened, StoredThread) else info.status
        has_ended = opened.number != info.number and status not in RUNNING
        if not has_ended and status not in AT_REST:  # at rest: the run has stored nothing
            state = WorkflowRunState.CANCELLED
            await opened.commit(None, [WorkflowEvent("status", state=state)], info.run_id or "", state.value)
    finally:
        with storage_errors(storage, "release a thread"):
            await opened.release()
    return not has_ended


async def leave(workflow: Workflow, seconds: float) -> int:
    """Stop every run of this workflow in this process, so that another process can continue; returns how many.

    Each run stops after its current superstep, and at once while it waits for a time. A superstep that takes longer
    than `seconds` is interrupted: its records stay. Nothing is lost and no end is recorded: the threads stay
    IN_PROGRESS without an owner, and `run(thread_id=...)` continues in any process. The runs raise RunInterrupted. A
    run that completes meanwhile ends normally. Later runs are not affected.
    """
    if not seconds >= 0:
        raise InvalidRun(f"leave() needs the seconds that a superstep may still take, got {seconds!r}.")
    live = workflow._live
    leaving = [run for _, run in live.runs() if not run.is_interrupted]
    for thread, run in live.runs():
        if run in leaving:
            run.leave()
        if thread.waker is not None and run is thread.owner:
            run.call_soon(thread.wake)
    waits = {asyncio.ensure_future(run.wait()): run for run in leaving}
    try:
        pending = (await asyncio.wait(waits, timeout=seconds))[1] if waits else set()
        while pending:
            owners = {thread.owner for thread, _ in live.runs()}
            for wait in pending:
                if waits[wait] in owners:  # a queued run has its turn after the owner's end
                    waits[wait].leave_now()
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return sum(run.was_left for run in leaving)


async def _interrupt(owner: Ownership) -> None:
    """Like `on_busy="interrupt"`; returns when the run has released the thread."""
    owner.interrupt()
    await owner.wait()
