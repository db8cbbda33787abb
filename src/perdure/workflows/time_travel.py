"""Time travel of a workflow: forks, rewinds, edits and checkpoints by hand, claimed like a run.

`fork` to `describe` are methods of `Workflow`. Each edit is the thread's next commit, a checkpoint made by hand: the
history keeps the state before it, and the next run continues from it. Each method raises ThreadBusy (`on_busy` and
`takeover` are those of `run`), ThreadNotFound, DamagedCheckpoint, UnsavableValue or NoStorage; then it writes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.cancelling import await_uncancelled
from perdure.checkpoints.any_storage import load_checkpoint, load_thread_metadata
from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.history.time_travel import (
    add_fork,
    clear_checkpoint,
    edit_state,
    make_fork,
    make_repeat,
    make_rewind,
    merge_about,
    other_thread_error,
    with_about,
)
from perdure.checkpoints.open_thread import OpenThread, PlainThread, codec_for, copy_checkpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.clock import Clock
from perdure.engine.delivery.scope import RunScope
from perdure.engine.run.opening import Opening, check_compatibility, note_unreleased, storage_key
from perdure.engine.run.options import OnBusy, RunOptions, RunRequest, make_request
from perdure.engine.steps.journal import Journal
from perdure.engine.superstep.commit import Committer, resting_state
from perdure.engine.superstep.loop import Loop
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.inputs import add_records
from perdure.engine.thread.live_threads import LiveThread, LiveThreads, Ownership
from perdure.engine.thread.position import position_of
from perdure.errors import NoStorage, ThreadConflict, ThreadExists, ThreadNotFound
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.names import check_identifier, new_run_id, new_thread_id
from perdure.records import CheckpointInfo
from perdure.workflows.threads import choose_storage, choose_thread, read_history

if TYPE_CHECKING:
    from perdure.workflows.workflow import Workflow

logger = get_logger("engine")
T = TypeVar("T")

Change = Callable[[WorkflowCheckpoint], WorkflowCheckpoint]
"""Gets a copy of a thread's head, with the workflow's own types, and returns one with other content."""


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
    travel = _travel(workflow, "Forking a thread", checkpoint_storage, options)
    return await travel.fork(update_state, remove_state)


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
    return await _travel(workflow, "Rewinding a thread", checkpoint_storage, options).rewind()


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
    return await _travel(workflow, "Making a checkpoint", checkpoint_storage, options).checkpoint()


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

    return await _travel_to_edit(workflow, thread_id, on_busy, takeover, checkpoint_storage).edit(change)


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
    return await _travel_to_edit(workflow, thread_id, on_busy, takeover, checkpoint_storage).edit(change)


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
    travel = _travel_to_edit(workflow, thread_id, on_busy, takeover, checkpoint_storage)
    return await travel.edit(clear_checkpoint, settles=True)


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

    return await _travel_to_edit(workflow, thread_id, on_busy, takeover, checkpoint_storage).edit(change)


def _travel(workflow: Workflow, action: str, checkpoint_storage: Any, options: RunOptions) -> TimeTravel:
    request = make_request(None, choose_storage(workflow, action, checkpoint_storage), options)
    return TimeTravel(workflow._compiled, workflow._live, workflow._clock, request)


def _travel_to_edit(
    workflow: Workflow, thread_id: str, on_busy: OnBusy, takeover: bool, checkpoint_storage: Any
) -> TimeTravel:
    check_identifier("thread_id", thread_id)
    options: RunOptions = {"thread_id": thread_id, "on_busy": on_busy, "takeover": takeover}
    return _travel(workflow, "Editing a thread", checkpoint_storage, options)


@dataclass(frozen=True)
class Owned:
    """A claimed thread: no other run moves it, in any process."""

    thread: LiveThread
    opened: OpenThread
    opening: Opening
    run_id: str


class TimeTravel:
    """One call on one thread of a workflow. Nothing runs, and a rejected call writes nothing."""

    def __init__(self, compiled: Compiled, live: LiveThreads, clock: Clock, request: RunRequest) -> None:
        self._compiled = compiled
        self._live = live
        self._clock = clock
        self._request = request

    async def fork(self, update_state: Mapping[str, Any] | None, remove_state: Iterable[str]) -> CheckpointInfo:
        source = await self._load_named()
        thread_id = self._request.thread_id or new_thread_id()
        state = edit_state(source, update_state, remove_state)
        live = self._live.find(thread_id)
        if live is not None and (live.owner is not None or live.position.next_delivery_id > 1):
            raise ThreadExists(thread_id, "this workflow object has a thread of that id")
        return await _complete(self._save_fork(make_fork(source, thread_id, state)))

    async def _save_fork(self, fork: WorkflowCheckpoint) -> CheckpointInfo:
        storage, declared = self._request.storage, self._compiled.declared
        if isinstance(storage, StoreCheckpointStorage):
            return await add_fork(storage.store, fork, codec_for(storage, declared.union(storage.declared)))
        plain = PlainThread(storage, fork.thread_id, fork.workflow_name, codec_for(storage, declared))
        await plain.find_head()
        if plain.head_id is not None:
            raise ThreadExists(fork.thread_id)
        await plain.commit(fork, (), "", fork.status)
        return fork.info

    async def rewind(self) -> CheckpointInfo:
        thread_id = self._request.thread_id or ""
        await self._require_thread(thread_id)
        target = await self._load_named()
        if target.thread_id != thread_id:
            raise other_thread_error(target.info, thread_id)
        async with self._claim(thread_id) as owned:
            about = await load_thread_metadata(self._request.storage, owned.opened.head_id)
            rewound = make_rewind(target, owned.opened.number + 1, about)
            try:
                await _complete(owned.opened.commit(rewound, (), "", rewound.status))
            except ThreadConflict:
                await self._load_named()  # raises CheckpointNotFound if it was pruned since
                raise
        # The live thread stays as it is: its number differs from the store's, so the next run loads the head.
        return rewound.info

    async def checkpoint(self) -> CheckpointInfo:
        thread_id = self._request.thread_id or ""
        live = self._live.find(thread_id)
        if live is None or not live.is_ahead:
            await self._require_thread(thread_id)
        async with self._claim(thread_id) as owned:
            if owned.thread.is_ahead:
                return await self._save_live(owned)
            thread, opened = owned.thread, owned.opened
            is_current = (thread.number, thread.head_id) == (opened.number, opened.head_id)
            head = await opened.load_head()
            if head is None:
                raise ThreadNotFound(thread_id)
            status = opened.status if isinstance(opened, StoredThread) else head.status
            again = make_repeat(head, opened.number + 1, status)
            # The records since the head stay unsettled: the next run replays them.
            await _complete(opened.commit(again, (), "", status, unsettled=tuple(opened.load_journal())))
            if is_current:
                thread.number, thread.head_id = opened.number, again.checkpoint_id
        return again.info

    async def edit(self, change: Change, *, settles: bool = False) -> CheckpointInfo:
        """Commit the result of `change` as the next head. `settles` discards records and messages since the head."""
        thread_id = self._request.thread_id or ""
        live = self._live.find(thread_id)
        if live is not None and live.is_ahead:
            await self.checkpoint()  # it was moved without this storage: save it before the edit
        await self._require_thread(thread_id)
        async with self._claim(thread_id) as owned:
            opened, sent = owned.opened, tuple(owned.thread.inbox)
            stored = await opened.load_head()
            if stored is None:
                raise ThreadNotFound(thread_id)
            # Copies, before and after: the commit shares no value with the live thread or the caller.
            head = copy_checkpoint(stored, opened.codec)
            after = copy_checkpoint(change(head), opened.codec)
            status = opened.status if isinstance(opened, StoredThread) else head.status
            if settles:
                status = resting_state(position_of(after)).value
            consumed = tuple(opened.load_inbox(head.renamed_types)) if settles else ()
            unsettled = () if settles else tuple(opened.load_journal())
            edited = make_repeat(after, opened.number + 1, status)
            await _complete(opened.commit(edited, (), "", status, unsettled=unsettled, consumed=consumed))
            for item_id in (*sent, *consumed) if settles else ():
                owned.thread.inbox.pop(item_id, None)
        # The live thread stays as it is, like after a rewind: the next run loads the head.
        return edited.info

    async def _save_live(self, owned: Owned) -> CheckpointInfo:
        """Save a thread that was moved without this storage, as this process has it."""
        thread, opened, events = owned.thread, owned.opened, list[WorkflowEvent]()
        journal = Journal(thread, opened, is_kept=opened.has_journal)
        scope = RunScope(
            self._compiled,
            thread,
            opened,
            owned.run_id,
            events.append,
            lambda: None,
            lambda _: None,
            self._clock,
            journal,
            is_streaming=False,
        )
        loop = Loop(scope, Committer(scope, "sync"))
        await owned.opening.synchronise(thread, loop, opened)
        if thread.position.next_delivery_id == 1:
            raise ThreadNotFound(thread.thread_id)
        await loop.enter(add_records(thread.position, thread.records))
        return next(event.checkpoint for event in events if event.checkpoint is not None)

    async def _load_named(self) -> WorkflowCheckpoint:
        """The requested checkpoint, migrated. Raises CheckpointNotFound, DamagedCheckpoint or IncompatibleWorkflow."""
        request = self._request
        migrator = self._compiled.migrator(force=request.force)
        loaded = await load_checkpoint(request.storage, request.checkpoint_id or "", self._compiled.declared, migrator)
        check_compatibility(loaded, self._compiled, force=request.force, migrator=migrator)
        return loaded

    async def _require_thread(self, thread_id: str) -> None:
        """Raises ThreadNotFound: `open` would make a missing thread."""
        storage = self._request.storage
        if isinstance(storage, StoreCheckpointStorage):
            await storage.find_thread(thread_id)
        else:
            await read_history(storage, thread_id, self._compiled.graph.name, limit=1)

    @asynccontextmanager
    async def _claim(self, thread_id: str) -> AsyncIterator[Owned]:
        """Claim the thread like a run. Raises ThreadBusy."""
        request, live = self._request, self._live
        ownership = Ownership(new_run_id())
        opening = Opening(self._compiled, live, self._clock, request)
        on_busy = "interrupt" if request.takeover else request.on_busy
        thread = await live.claim(thread_id, ownership, on_busy)
        opened: OpenThread | None = None
        try:
            opened = await opening.open(thread, ownership)
            if opened is None:
                raise NoStorage("Moving a thread")
            yield Owned(thread, opened, opening, ownership.run_id)
        finally:
            try:
                if opened is not None:
                    await _complete(opened.release())
            except Exception as error:  # noqa: BLE001  # the commit counts; the next run of this process takes it over
                note_unreleased((storage_key(request.storage), thread_id, ownership.run_id))
                logger.warning("thread %s: the store failed to release its lease: %s", thread_id, type(error).__name__)
            finally:
                live.release(thread, ownership, forget=True)
                live.drop_new(thread)
                ownership.take_interruption()


async def _complete(work: Coroutine[Any, Any, T]) -> T:
    """Completes the work even if its caller is cancelled: else the store and the live thread could disagree."""
    result, cancelled = await await_uncancelled(work)
    if cancelled is not None:
        raise cancelled
    return result
