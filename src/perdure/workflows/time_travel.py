"""Time travel of a workflow: forks, rewinds, edits and checkpoints by hand, claimed like a run.

`fork` to `describe` are methods of `Workflow`. Each edit is the thread's next commit, a checkpoint made by hand: the
history keeps the state before it, and the next run continues from it. Each method raises ThreadBusy (`on_busy` and
`takeover` are those of `run`), ThreadNotFound, DamagedCheckpoint, UnsavableValue or NoStorage; then it writes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.any_storage import OpenThread, PlainThread, codec_for, load_checkpoint, load_thread_metadata
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.history.time_travel import (
    add_fork,
    commit_again,
    commit_cleared,
    commit_rewind,
    edit_state,
    merge_about,
    refuse_other_thread,
    successor,
    with_about,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import complete
from perdure.engine.delivery.scope import Journal, RunScope, add_records
from perdure.engine.run.loop import Loop
from perdure.engine.run.opening import Opening, check_compatibility, note_unreleased, storage_key
from perdure.engine.run.request import RunOptions, RunRequest, make_request
from perdure.engine.thread.live_threads import LiveThread, LiveThreads, Ownership
from perdure.errors import NoStorage, ThreadExists, ThreadNotFound
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.names import OnBusy, check_identifier, new_run_id, new_thread_id
from perdure.records import CheckpointInfo
from perdure.workflows.threads import choose_storage, choose_thread, read_history

if TYPE_CHECKING:
    from perdure.workflows.workflow import Workflow

logger = get_logger("engine")


async def fork(
    workflow: Workflow,
    checkpoint_id: CheckpointID | CheckpointInfo,
    *,
    thread_id: str | None = None,
    update_state: Mapping[str, Any] | None = None,
    remove_state: Iterable[str] = (),
    force: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Make a new thread that starts with the content of this checkpoint. Nothing runs: `run(thread_id=...)` continues.

    `update_state` replaces values of the state by others of the same type (None is always allowed, and an int for a
    float); `remove_state` removes keys. Raises CheckpointNotFound, IncompatibleWorkflow, ThreadExists, WrongStateType
    or UnsavableValue; then no thread is made.
    """
    options: RunOptions = {"thread_id": thread_id, "checkpoint_id": checkpoint_id, "force": force}
    live, request = workflow._live, _request(workflow, "Forking a thread", checkpoint_storage, options)
    source = await _load_named(live, request)
    new_id = request.thread_id or new_thread_id()
    state = edit_state(source, update_state, remove_state)
    forked = successor(source, thread_id=new_id, number=1, state=state)
    thread = live.find(new_id)
    if thread is not None and (thread.owner is not None or thread.position.next_delivery_id > 1):
        raise ThreadExists(new_id, "this workflow object has a thread of that id")
    return await complete(_save_fork(live, request, forked))


async def rewind(
    workflow: Workflow,
    thread_id: str,
    checkpoint_id: CheckpointID | CheckpointInfo,
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
    force: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Go back to a checkpoint of the thread, as its next commit. Nothing runs: `run(thread_id=...)` continues.

    Later checkpoints stay as a branch, while retention keeps them; the thread's metadata stay. A rewind does not need
    a readable head, so it repairs a thread with a damaged one. Raises ThreadBusy (`on_busy` and `takeover` are those
    of `run`), ThreadNotFound, CheckpointNotFound, IncompatibleWorkflow, or InvalidRun for a checkpoint of another
    thread.
    """
    check_identifier("thread_id", thread_id)
    options: RunOptions = {
        "thread_id": thread_id,
        "checkpoint_id": checkpoint_id,
        "on_busy": on_busy,
        "takeover": takeover,
        "force": force,
    }
    live, request = workflow._live, _request(workflow, "Rewinding a thread", checkpoint_storage, options)
    await _require_thread(live, request)
    target = await _load_named(live, request)
    refuse_other_thread(target.info, thread_id)
    async with _claim(live, request) as owned:
        about = await load_thread_metadata(request.storage, owned.opened.head_id)
        # The live thread stays as it is: its number differs from the store's, so the next run loads the head.
        return await commit_rewind(owned.opened, target, about, lambda: _load_named(live, request))


async def checkpoint(
    workflow: Workflow,
    thread_id: str | None = None,
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Save the thread's head once more, as a new checkpoint: to pin it, for example.

    Raises ThreadBusy while the thread is running (a handle's `checkpoint` works then, too), ThreadNotFound, or
    DamagedCheckpoint.
    """
    options: RunOptions = {
        "thread_id": choose_thread(workflow, thread_id, "checkpoint"),
        "on_busy": on_busy,
        "takeover": takeover,
    }
    return await save_again(workflow._live, _request(workflow, "Making a checkpoint", checkpoint_storage, options))


async def update_state(
    workflow: Workflow,
    thread_id: str,
    update_state: Mapping[str, Any] | None = None,
    *,
    remove_state: Iterable[str] = (),
    on_busy: OnBusy = "reject",
    takeover: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Replace values of the thread's state by others of the same type, and remove keys.

    Due deliveries, pending requests and records stay. The checks are those of `fork`: WrongStateType, InvalidRun.
    """

    def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
        return msgspec.structs.replace(head, state=edit_state(head, update_state, remove_state))

    return await edit(
        workflow, thread_id, change, on_busy=on_busy, takeover=takeover, checkpoint_storage=checkpoint_storage
    )


async def edit(
    workflow: Workflow,
    thread_id: str,
    change: Callable[[WorkflowCheckpoint], WorkflowCheckpoint],
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Replace the head by the result of `change`: state, executors' memories, metadata. For callers that know the
    parts of a checkpoint, such as a server: only the types of values are checked."""
    async with _claim_to_edit(workflow, thread_id, on_busy, takeover, checkpoint_storage) as owned:
        return await commit_again(owned.opened, change)


async def clear(
    workflow: Workflow,
    thread_id: str,
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Empty the thread: state, executors' memories, due deliveries, messages, requests, records and outputs.

    The next message starts from the beginning. The thread's history, event log and metadata stay.
    """
    async with _claim_to_edit(workflow, thread_id, on_busy, takeover, checkpoint_storage) as owned:
        sent = tuple(owned.thread.inbox)
        info, discarded = await commit_cleared(owned.opened)
        for item_id in (*sent, *discarded):  # of this process as well
            owned.thread.inbox.pop(item_id, None)
    return info


async def describe(
    workflow: Workflow,
    thread_id: str,
    about: Mapping[str, Any],
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
    checkpoint_storage: Any = None,
) -> CheckpointInfo:
    """Set metadata of the thread, such as its name: JSON values by key. None removes a key; other keys stay.

    `metadata["about"]` of this and all later checkpoints holds them, also after a rewind or `clear`, and in forks of
    the thread. Raises InvalidRun for a value that is not JSON.
    """

    def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
        return with_about(head, merge_about(head, about))

    return await edit(
        workflow, thread_id, change, on_busy=on_busy, takeover=takeover, checkpoint_storage=checkpoint_storage
    )


async def save_again(live: LiveThreads, request: RunRequest) -> CheckpointInfo:
    """The head of the thread once more, as a new checkpoint."""
    thread_id = request.thread_id or ""
    if not _is_ahead(live, thread_id):
        await _require_thread(live, request)
    async with _claim(live, request) as owned:
        thread, opened = owned.thread, owned.opened
        if thread.is_ahead:
            return await _save_live(live, owned)
        is_current = (thread.number, thread.head_id) == (opened.number, opened.head_id)
        info = await commit_again(opened)
        if is_current:
            thread.number, thread.head_id = opened.number, info.checkpoint_id
    return info


def _request(workflow: Workflow, action: str, checkpoint_storage: Any, options: RunOptions) -> RunRequest:
    return make_request(None, choose_storage(workflow, action, checkpoint_storage), options)


async def _load_named(live: LiveThreads, request: RunRequest) -> WorkflowCheckpoint:
    """The requested checkpoint, migrated. Raises CheckpointNotFound, DamagedCheckpoint or IncompatibleWorkflow."""
    compiled = live.compiled
    migrator = compiled.migrator(force=request.force)
    loaded = await load_checkpoint(request.storage, request.checkpoint_id or "", compiled.declared, migrator)
    check_compatibility(loaded, compiled, force=request.force, migrator=migrator)
    return loaded


async def _save_fork(live: LiveThreads, request: RunRequest, forked: WorkflowCheckpoint) -> CheckpointInfo:
    storage, declared = request.storage, live.compiled.declared
    if isinstance(storage, StoreCheckpointStorage):
        return await add_fork(storage.store, forked, storage.codec_for(declared))
    plain = PlainThread(storage, forked.thread_id, forked.workflow_name, codec_for(storage, declared))
    await plain.find_head()
    if plain.head_id is not None:
        raise ThreadExists(forked.thread_id)
    await plain.commit(forked, (), "", forked.status)
    return forked.info


def _is_ahead(live: LiveThreads, thread_id: str) -> bool:
    """Whether this process moved the thread without a storage since its head was saved."""
    thread = live.find(thread_id)
    return thread is not None and thread.is_ahead


async def _require_thread(live: LiveThreads, request: RunRequest) -> None:
    """Raises ThreadNotFound: `open` would make a missing thread."""
    storage, thread_id = request.storage, request.thread_id or ""
    if isinstance(storage, StoreCheckpointStorage):
        await storage.find_thread(thread_id)
    else:
        await read_history(storage, thread_id, live.compiled.graph.name, limit=1)


@dataclass(frozen=True)
class _Owned:
    """A claimed thread: no other run moves it, in any process."""

    thread: LiveThread
    opened: OpenThread
    opening: Opening
    run_id: str


async def _save_live(live: LiveThreads, owned: _Owned) -> CheckpointInfo:
    """Save a thread that was moved without this storage, as this process has it."""
    thread, opened, events = owned.thread, owned.opened, list[WorkflowEvent]()
    journal = Journal(thread, opened, is_kept=opened.has_journal)
    scope = RunScope(
        live.compiled,
        thread,
        opened,
        owned.run_id,
        events.append,
        lambda: None,
        lambda _: None,
        live.clock,
        journal,
    )
    loop = Loop(scope, "sync")
    await owned.opening.synchronise(thread, loop, opened)
    if thread.position.next_delivery_id == 1:
        raise ThreadNotFound(thread.thread_id)
    await loop.enter(add_records(thread.position, thread.records))
    return next(event.checkpoint for event in events if event.checkpoint is not None)


@asynccontextmanager
async def _claim_to_edit(
    workflow: Workflow, thread_id: str, on_busy: OnBusy, takeover: bool, checkpoint_storage: Any
) -> AsyncIterator[_Owned]:
    """Claim the thread once the storage has all of it. The live thread stays as it is, like after a rewind."""
    check_identifier("thread_id", thread_id)
    options: RunOptions = {"thread_id": thread_id, "on_busy": on_busy, "takeover": takeover}
    live, request = workflow._live, _request(workflow, "Editing a thread", checkpoint_storage, options)
    if _is_ahead(live, thread_id):
        await save_again(live, request)
    await _require_thread(live, request)
    async with _claim(live, request) as owned:
        yield owned


@asynccontextmanager
async def _claim(live: LiveThreads, request: RunRequest) -> AsyncIterator[_Owned]:
    """Claim the thread like a run. Raises ThreadBusy."""
    thread_id, ownership, opening = request.thread_id or "", Ownership(new_run_id()), Opening(live, request)
    thread = await live.claim(thread_id, ownership, "interrupt" if request.takeover else request.on_busy)
    opened: OpenThread | None = None
    try:
        opened = await opening.open(thread, ownership)
        if opened is None:
            raise NoStorage("Moving a thread")
        yield _Owned(thread, opened, opening, ownership.run_id)
    finally:
        try:
            if opened is not None:
                await complete(opened.release())
        except Exception as error:  # noqa: BLE001  # the commit counts; the next run of this process takes it over
            note_unreleased((storage_key(request.storage), thread_id, ownership.run_id))
            logger.warning("thread %s: the store failed to release its lease: %s", thread_id, type(error).__name__)
        finally:
            live.release(thread, ownership, forget=True)
            live.drop_new(thread)
            ownership.take_interruption()
