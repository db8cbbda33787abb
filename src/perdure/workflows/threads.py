"""Methods of a workflow for its stored threads: read their history, follow, pin, prune, export and import them.

Each function is a method of `Workflow`. It uses the workflow's own storage or its `checkpoint_storage` argument;
without either it raises NoStorage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

from perdure.checkpoints.access import check_limit, storage_errors
from perdure.checkpoints.any_storage import (
    list_thread,
    load_checkpoint,
    open_thread,
    read_events,
    read_lineage,
    require_event_log,
)
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint, every_delivery
from perdure.checkpoints.follow import follow as follow_storage
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.clock import await_uncancelled
from perdure.engine.run.request import check_storage
from perdure.engine.thread.live_threads import Ownership, local_runs
from perdure.errors import CheckpointNotFound, InvalidRun, NoEventLog, NoStorage, ThreadNotFound
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.graph.drawing.picture import DUE, WAITING, outcomes_of
from perdure.names import check_identifier, checkpoint_id_of, new_item_id
from perdure.records import CheckpointInfo, ChildCheckpoint, ThreadInfo, WorkflowMessage

if TYPE_CHECKING:
    from perdure.checkpoints.history.branches import Branches
    from perdure.checkpoints.history.diff import CheckpointDiff
    from perdure.checkpoints.history.pruning import PruneReport, Status
    from perdure.checkpoints.transfer.threads import ExportReport
    from perdure.workflows.workflow import Workflow


async def history(
    workflow: Workflow,
    thread_id: str | None = None,
    *,
    limit: int | None = None,
    before: CheckpointID | CheckpointInfo | None = None,
    checkpoint_storage: Any = None,
) -> list[CheckpointInfo]:
    """A thread's checkpoints, newest first, as metadata only. `before` (a checkpoint) pages.

    Raises ThreadNotFound, or CheckpointNotFound for an unknown `before`.
    """
    storage = choose_storage(workflow, "Reading a thread's history", checkpoint_storage)
    chosen = choose_thread(workflow, thread_id, "history")
    return await read_history(storage, chosen, workflow.name, limit=limit, before=before)


async def head(
    workflow: Workflow, thread_id: str | None = None, *, checkpoint_storage: Any = None
) -> WorkflowCheckpoint | None:
    """The thread's latest checkpoint, with the workflow's own types; None if no such thread exists. Raises
    DamagedCheckpoint."""
    storage = choose_storage(workflow, "Reading a thread's head", checkpoint_storage)
    chosen = choose_thread(workflow, thread_id, "head")
    while True:
        try:
            infos = await read_history(storage, chosen, workflow.name, limit=1)
            return await load_checkpoint(storage, infos[0].checkpoint_id, workflow.declared_types)
        except ThreadNotFound:
            return None
        except CheckpointNotFound:
            continue  # pruned since it was listed: another one is the head now


async def messages(
    workflow: Workflow, thread_id: str | None = None, *, checkpoint_storage: Any = None
) -> list[WorkflowMessage]:
    """Every message that was exchanged in a thread, in the order of delivery, as far as its history is kept.

    Messages inside of sub-workflows name sender and target by their path.
    """
    storage = choose_storage(workflow, "Reading a thread's messages", checkpoint_storage)
    chosen = choose_thread(workflow, thread_id or None, "messages")
    lineage = await read_lineage(storage, chosen, workflow.name)
    if not lineage:
        raise ThreadNotFound(chosen)
    deliveries = {message.delivery_id: message for checkpoint in lineage for message in every_delivery(checkpoint)}
    return [deliveries[delivery_id] for delivery_id in sorted(deliveries)]


async def outcomes(
    workflow: Workflow, thread_id: str | None = None, *, checkpoint_storage: Any = None
) -> dict[str, str]:
    """The outcome of each executor in a thread, by path: `completed`, `failed`, `waiting`, `due`, ...

    A storage without an event log has only due and waiting executors. Raises ThreadNotFound.
    """
    storage = choose_storage(workflow, "Reading the outcomes of a thread", checkpoint_storage)
    chosen = choose_thread(workflow, thread_id or None, "outcomes")
    lineage = await read_lineage(storage, chosen, workflow.name)
    if not lineage:
        raise ThreadNotFound(chosen)
    try:
        events = [event async for event in read_events(storage, chosen, None, workflow.declared_types)]
    except NoEventLog:
        events = []
    return outcomes_of(events) | _unfinished_outcomes(lineage[-1], "")


def _unfinished_outcomes(level: WorkflowCheckpoint | ChildCheckpoint, path: str) -> dict[str, str]:
    """Executors that are due or wait at the head: the log has no event for an answered request."""
    requests = level.pending_request_info_events.values()
    outcomes = {f"{path}{message.target_id}": DUE for message in level.deliveries}
    outcomes |= {f"{path}{delivery.message.target_id}": WAITING for delivery in level.suspended.values()}
    outcomes |= {f"{path}{event.source_executor_id}": WAITING for event in requests}
    for child in level.children.values():
        inner = _unfinished_outcomes(child, f"{path}{child.executor_id}/")
        outcomes[f"{path}{child.executor_id}"] = DUE if DUE in inner.values() else WAITING
        outcomes |= inner
    return outcomes


def follow(
    workflow: Workflow,
    thread_id: str | None = None,
    *,
    after: int | None = None,
    live: bool = True,
    provisional: bool = False,
    until_idle: bool = False,
    checkpoint_storage: Any = None,
) -> AsyncIterator[WorkflowEvent]:
    """The events of a thread, whichever process runs it: those of its log, each once and in order, and live events
    between them. Like `storage.follow`, with the workflow's own types. Raises NoEventLog for a storage that has
    none."""
    storage = choose_storage(workflow, "Following a thread", checkpoint_storage)
    chosen = choose_thread(workflow, thread_id, "follow")
    return follow_storage(
        require_event_log(storage),
        chosen,
        workflow.declared_types,
        after,
        live=live,
        provisional=provisional,
        until_idle=until_idle,
    )


async def branches(workflow: Workflow, thread_id: str | None = None, *, checkpoint_storage: Any = None) -> Branches:
    """A thread's history as a tree, from metadata only. Raises ThreadNotFound."""
    from perdure.checkpoints.history.branches import build_branches

    chosen = choose_thread(workflow, thread_id, "branches")
    infos = await history(workflow, chosen, checkpoint_storage=checkpoint_storage)
    return build_branches(chosen, infos[::-1])


async def diff(
    workflow: Workflow,
    a: CheckpointID | CheckpointInfo,
    b: CheckpointID | CheckpointInfo,
    *,
    checkpoint_storage: Any = None,
) -> CheckpointDiff:
    """The differences from checkpoint `a` to checkpoint `b`, of any thread and branch. Raises CheckpointNotFound."""
    storage = choose_storage(workflow, "Comparing checkpoints", checkpoint_storage)
    if isinstance(storage, StoreCheckpointStorage):
        return await storage.diff(a, b)
    declared = workflow.declared_types
    before = await load_checkpoint(storage, checkpoint_id_of(a), declared)
    return before.diff(await load_checkpoint(storage, checkpoint_id_of(b), declared))


async def pin(
    workflow: Workflow, checkpoint_id: CheckpointID | CheckpointInfo, *, checkpoint_storage: Any = None
) -> None:
    """Protect the checkpoint from retention and `prune`. Idempotent. Raises CheckpointNotFound."""
    await _store_storage(workflow, "Pinning a checkpoint", checkpoint_storage).pin(checkpoint_id)


async def unpin(
    workflow: Workflow, checkpoint_id: CheckpointID | CheckpointInfo, *, checkpoint_storage: Any = None
) -> None:
    """End the protection of `pin`. Idempotent. Raises CheckpointNotFound."""
    await _store_storage(workflow, "Unpinning a checkpoint", checkpoint_storage).unpin(checkpoint_id)


async def prune(
    workflow: Workflow,
    *,
    keep_last: int | None = None,
    older_than: timedelta | datetime | None = None,
    thread_id: str | None = None,
    status: Status | Iterable[Status] | None = None,
    whole_threads: bool = False,
    dry_run: bool = False,
    checkpoint_storage: Any = None,
) -> PruneReport:
    """Delete history of this workflow's threads. The options are those of the storage's `prune`."""
    return await _store_storage(workflow, "Pruning", checkpoint_storage).prune(
        keep_last=keep_last,
        older_than=older_than,
        workflow_name=workflow.name,
        thread_id=thread_id,
        status=status,
        whole_threads=whole_threads,
        dry_run=dry_run,
    )


async def export_thread(
    workflow: Workflow,
    thread_id: str,
    path: str | PathLike[str],
    *,
    overwrite: bool = False,
    checkpoint_storage: Any = None,
) -> ExportReport:
    """Write a thread with its history to a file. Raises FileExistsError, ThreadNotFound, DamagedCheckpoint, ..."""
    storage = _store_storage(workflow, "Exporting a thread", checkpoint_storage)
    return await storage.export_thread(thread_id, path, overwrite=overwrite)


async def import_thread(
    workflow: Workflow, path: str | PathLike[str], *, thread_id: str | None = None, checkpoint_storage: Any = None
) -> ThreadInfo:
    """Add the thread of such a file, all of it or nothing. Raises NoThreadFile, NewerFormat or ThreadExists."""
    storage = _store_storage(workflow, "Importing a thread", checkpoint_storage)
    return await storage.import_thread(path, thread_id=thread_id)


async def read_history(
    storage: Any,
    thread_id: str,
    workflow_name: str,
    *,
    limit: int | None = None,
    before: str | CheckpointInfo | None = None,
) -> list[CheckpointInfo]:
    """Newest first."""
    if isinstance(storage, StoreCheckpointStorage):
        return await storage.history(thread_id, limit=limit, before=before)
    check_limit(limit)
    infos = [checkpoint.info for checkpoint in await list_thread(storage, thread_id, workflow_name)]
    if not infos:
        raise ThreadNotFound(thread_id)
    infos.sort(key=lambda info: info.number, reverse=True)
    if before is not None:
        ids = [info.checkpoint_id for info in infos]
        if (wanted := checkpoint_id_of(before)) not in ids:
            raise CheckpointNotFound(wanted)
        infos = infos[ids.index(wanted) + 1 :]
    return infos[:limit]


def choose_storage(workflow: Workflow, action: str, argument: Any) -> Any:
    """The storage of a call: its argument, else the workflow's own. Raises NoStorage."""
    storage = workflow.checkpoint_storage if argument is None else argument
    if storage is None:
        raise NoStorage(action)
    check_storage(storage)
    return storage


def _store_storage(workflow: Workflow, action: str, argument: Any) -> StoreCheckpointStorage:
    storage = choose_storage(workflow, action, argument)
    if not isinstance(storage, StoreCheckpointStorage):
        raise InvalidRun(
            f"{action} needs one of perdure's storages: {type(storage).__name__} has only the six methods of "
            "CheckpointStorage. Nothing was changed."
        )
    return storage


def choose_thread(workflow: Workflow, thread_id: str | None, method: str) -> str:
    """The thread of a call: its argument, else the workflow object's default thread. Raises InvalidRun."""
    check_identifier("thread_id", thread_id)
    chosen = thread_id or workflow._live.default_thread_id
    if chosen is None:
        raise InvalidRun(f"This workflow object has not run yet: name a thread, {method}(thread_id).")
    return chosen


# ---------------------------------------------------------------- stopping


AT_REST = (WorkflowRunState.IDLE.value, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value)
RUNNING = (WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value)


async def cancel(workflow: Workflow, thread_id: str, *, checkpoint_storage: Any = None) -> bool:
    """End the run of the thread, in whichever process; False if no run owns it, or no such thread exists.

    A run of this process has released the thread when this returns, and its result is CANCELLED. A run of another
    process loses the thread: the thread's status is CANCELLED, and the store rejects further commits of that run.
    Either way `run(thread_id=...)` continues.
    """
    check_identifier("thread_id", thread_id)
    storage = workflow.checkpoint_storage if checkpoint_storage is None else checkpoint_storage
    if storage is not None:
        check_storage(storage)
    thread = workflow._live.find(thread_id)
    owner: Ownership | None = None if thread is None else thread.owner
    if owner is not None and not owner.is_dead and not owner.is_waiting:
        owner.interrupt()
        await owner.wait()
        if owner.has_entered:
            return True
    if not isinstance(storage, StoreCheckpointStorage):  # other storages have no owners
        return False
    try:
        info = await storage.find_thread(thread_id)
    except ThreadNotFound:
        return False
    run = local_runs.get(info.run_id or "")  # of another workflow object
    if run is not None and not run.is_dead:
        run.interrupt()
        await run.wait()
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
