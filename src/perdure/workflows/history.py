"""History: the part of a workflow that looks at a thread's past, compares, forks, goes back, keeps and removes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.follow.follow import follow
from perdure.checkpoints.history.time_travel import cleared, edited_state, merged_about, with_about
from perdure.checkpoints.storage import StoreCheckpointStorage, load_checkpoint
from perdure.clock import Clock
from perdure.engine.run.options import OnBusy, RunOptions, check_storage, make_request
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThreads
from perdure.errors import CheckpointNotFound, InvalidRun, NoStorage, ThreadNotFound
from perdure.events import WorkflowEvent
from perdure.names import check_identifier, checkpoint_id_of
from perdure.records import CheckpointInfo, ThreadInfo
from perdure.workflows.time_travel import read_history

if TYPE_CHECKING:
    from perdure.checkpoints.history.branches import Branches
    from perdure.checkpoints.history.diff import CheckpointDiff
    from perdure.checkpoints.history.pruning import PruneReport, Status
    from perdure.checkpoints.transfer.threads import ExportReport
    from perdure.workflows.time_travel import TimeTravel


class HistoryMethods:
    """Of every workflow. Each method uses the workflow's own storage, or the `checkpoint_storage` it is given; without
    one it raises NoStorage."""

    name: str
    _storage: Any
    _compiled: Compiled
    _live: LiveThreads
    _clock: Clock

    # ------------------------------------------------------------ looking

    async def history(
        self,
        thread_id: str | None = None,
        *,
        limit: int | None = None,
        before: CheckpointID | CheckpointInfo | None = None,
        checkpoint_storage: Any = None,
    ) -> list[CheckpointInfo]:
        """A thread's checkpoints, newest first, as metadata only. `before` (a checkpoint) pages.

        Raises ThreadNotFound, or CheckpointNotFound for a `before` that there is not.
        """
        storage = self._storage_for("Reading a thread's history", checkpoint_storage)
        chosen = self._thread_id(thread_id, "history")
        return await read_history(storage, chosen, self.name, limit=limit, before=before)

    async def head(self, thread_id: str | None = None, *, checkpoint_storage: Any = None) -> WorkflowCheckpoint | None:
        """Where a thread stands, with the workflow's own types; None if there is no such thread. Raises
        DamagedCheckpoint."""
        storage = self._storage_for("Reading where a thread stands", checkpoint_storage)
        chosen = self._thread_id(thread_id, "head")
        while True:
            try:
                found = await read_history(storage, chosen, self.name, limit=1)
                return await load_checkpoint(storage, found[0].checkpoint_id, self._compiled.declared)
            except ThreadNotFound:
                return None
            except CheckpointNotFound:
                continue  # pruned since it was listed: another is the head now

    def follow(
        self,
        thread_id: str | None = None,
        *,
        after: int | None = None,
        live: bool = True,
        provisional: bool = False,
        until_idle: bool = False,
        checkpoint_storage: Any = None,
    ) -> AsyncIterator[WorkflowEvent]:
        """The events of a thread, whichever process runs it: those of its log, each once and in order, and between them
        what is only told while it happens. As `storage.follow` does, with the workflow's own types. Raises NoEventLog
        for a storage that has none."""
        storage = self._storage_for("Following a thread", checkpoint_storage)
        chosen = self._thread_id(thread_id, "follow")
        return follow(
            storage,
            chosen,
            self._compiled.declared,
            after,
            live=live,
            provisional=provisional,
            until_idle=until_idle,
        )

    async def branches(self, thread_id: str | None = None, *, checkpoint_storage: Any = None) -> Branches:
        """A thread's history as a tree, from metadata only. Raises ThreadNotFound."""
        from perdure.checkpoints.history.branches import branches_of

        chosen = self._thread_id(thread_id, "branches")
        infos = await self.history(chosen, checkpoint_storage=checkpoint_storage)
        return branches_of(chosen, infos[::-1])

    async def diff(
        self,
        a: CheckpointID | CheckpointInfo,
        b: CheckpointID | CheckpointInfo,
        *,
        checkpoint_storage: Any = None,
    ) -> CheckpointDiff:
        """What differs from checkpoint `a` to checkpoint `b`, of any thread and branch. Raises CheckpointNotFound."""
        storage = self._storage_for("Comparing checkpoints", checkpoint_storage)
        if isinstance(storage, StoreCheckpointStorage):
            return await storage.diff(a, b)
        declared = self._compiled.declared
        before = await load_checkpoint(storage, checkpoint_id_of(a), declared)
        return before.diff(await load_checkpoint(storage, checkpoint_id_of(b), declared))

    # ------------------------------------------------------------ going elsewhere

    async def fork(
        self,
        checkpoint_id: CheckpointID | CheckpointInfo,
        *,
        thread_id: str | None = None,
        update_state: Mapping[str, Any] | None = None,
        remove_state: Iterable[str] = (),
        force: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Make a new thread that begins with what this checkpoint holds. Nothing is run: `run(thread_id=...)` goes on.

        `update_state` gives keys of the state other values, of the type that they have (None always fits, and an int
        where a float is); `remove_state` leaves keys out. Raises CheckpointNotFound, IncompatibleWorkflow,
        ThreadExists, WrongStateType or UnsavableValue; then there is no such thread.
        """
        options: RunOptions = {"thread_id": thread_id, "checkpoint_id": checkpoint_id, "force": force}
        travel = self._travel("Forking a thread", checkpoint_storage, options)
        return await travel.fork(update_state, remove_state)

    async def rewind(
        self,
        thread_id: str,
        checkpoint_id: CheckpointID | CheckpointInfo,
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        force: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Go back to a checkpoint of the thread, as its next commit. Nothing is run: `run(thread_id=...)` goes on.

        What came after stays as a branch, while retention keeps it, and what is said of the thread stays as it is. The
        head need not be readable: this is the way back from a damaged one. Raises ThreadBusy (`on_busy` and `takeover`
        are those of `run`), ThreadNotFound, CheckpointNotFound, IncompatibleWorkflow, or InvalidRun for a checkpoint of
        another thread.
        """
        check_identifier("thread_id", thread_id)
        options: RunOptions = {
            "thread_id": thread_id,
            "checkpoint_id": checkpoint_id,
            "on_busy": on_busy,
            "takeover": takeover,
            "force": force,
        }
        return await self._travel("Rewinding a thread", checkpoint_storage, options).rewind()

    async def checkpoint(
        self,
        thread_id: str | None = None,
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Save where the thread stands once more, as a checkpoint of its own: to pin it, for one.

        Raises ThreadBusy while it is being run (the `checkpoint` of a handle works then, too), ThreadNotFound, or
        DamagedCheckpoint.
        """
        options: RunOptions = {
            "thread_id": self._thread_id(thread_id, "checkpoint"),
            "on_busy": on_busy,
            "takeover": takeover,
        }
        return await self._travel("Making a checkpoint", checkpoint_storage, options).checkpoint()

    def _travel(self, what: str, checkpoint_storage: Any, options: RunOptions) -> TimeTravel:
        from perdure.workflows.time_travel import TimeTravel

        request = make_request(None, self._storage_for(what, checkpoint_storage), options)
        return TimeTravel(self._compiled, self._live, self._clock, request)

    # ------------------------------------------------------------ keeping, removing, moving

    async def pin(self, checkpoint_id: CheckpointID | CheckpointInfo, *, checkpoint_storage: Any = None) -> None:
        """Keep the checkpoint, whatever retention and `prune` say. Idempotent. Raises CheckpointNotFound."""
        await self._store_storage("Pinning a checkpoint", checkpoint_storage).pin(checkpoint_id)

    async def unpin(self, checkpoint_id: CheckpointID | CheckpointInfo, *, checkpoint_storage: Any = None) -> None:
        """Let it go like any other. Idempotent. Raises CheckpointNotFound."""
        await self._store_storage("Unpinning a checkpoint", checkpoint_storage).unpin(checkpoint_id)

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | datetime | None = None,
        thread_id: str | None = None,
        status: Status | Iterable[Status] | None = None,
        whole_threads: bool = False,
        dry_run: bool = False,
        checkpoint_storage: Any = None,
    ) -> PruneReport:
        """Remove history of this workflow's threads: the `prune` of its storage, which says what each option means."""
        return await self._store_storage("Pruning", checkpoint_storage).prune(
            keep_last=keep_last,
            older_than=older_than,
            workflow_name=self.name,
            thread_id=thread_id,
            status=status,
            whole_threads=whole_threads,
            dry_run=dry_run,
        )

    async def export_thread(
        self,
        thread_id: str,
        path: str | PathLike[str],
        *,
        overwrite: bool = False,
        checkpoint_storage: Any = None,
    ) -> ExportReport:
        """Write a thread with its history to a file. Raises FileExistsError, ThreadNotFound, DamagedCheckpoint, ..."""
        storage = self._store_storage("Exporting a thread", checkpoint_storage)
        return await storage.export_thread(thread_id, path, overwrite=overwrite)

    async def import_thread(
        self, path: str | PathLike[str], *, thread_id: str | None = None, checkpoint_storage: Any = None
    ) -> ThreadInfo:
        """Keep the thread of such a file, all of it or nothing. Raises NoThreadFile, NewerFormat or ThreadExists."""
        storage = self._store_storage("Importing a thread", checkpoint_storage)
        return await storage.import_thread(path, thread_id=thread_id)

    # ------------------------------------------------------------ what a call is about

    def _storage_for(self, what: str, given: Any) -> Any:
        if given is not None:
            check_storage(given)
            return given
        if self._storage is None:
            raise NoStorage(what)
        return self._storage

    def _store_storage(self, what: str, given: Any) -> StoreCheckpointStorage:
        storage = self._storage_for(what, given)
        if not isinstance(storage, StoreCheckpointStorage):
            raise InvalidRun(
                f"{what} needs one of perdure's storages: {type(storage).__name__} has only the six methods of "
                "CheckpointStorage. Nothing was changed."
            )
        return storage

    def _thread_id(self, given: str | None, method: str) -> str:
        check_identifier("thread_id", given)
        chosen = given or self._live.default_thread_id
        if chosen is None:
            raise InvalidRun(f"This workflow object has not run yet: name a thread, {method}(thread_id).")
        return chosen


# ---------------------------------------------------------------- editing methods


class EditingMethods(HistoryMethods):
    """Of every workflow. Each edit is the thread's next commit, a checkpoint made by hand: the history keeps what was
    before, and the next run goes on from what is now. Each raises ThreadBusy (`on_busy` and `takeover` are those of
    `run`), ThreadNotFound, DamagedCheckpoint, UnsavableValue or NoStorage; then nothing was written."""

    async def update_state(
        self,
        thread_id: str,
        update_state: Mapping[str, Any] | None = None,
        *,
        remove_state: Iterable[str] = (),
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Give keys of the thread's state other values, of the type that they have, and leave keys out.

        What is due, pending and recorded stays as it is. The checks are those of `fork`: WrongStateType, InvalidRun.
        """

        def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
            return msgspec.structs.replace(head, state=edited_state(head, update_state, remove_state))

        travel = self._editing(thread_id, on_busy, takeover, checkpoint_storage)
        return await travel.edit(change)

    async def edit(
        self,
        thread_id: str,
        change: Callable[[WorkflowCheckpoint], WorkflowCheckpoint],
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Make the head what `change` gives for it: state, executors' memories, metadata. For those who know what a
        checkpoint means, such as a server: nothing but the values' types is checked."""
        return await self._editing(thread_id, on_busy, takeover, checkpoint_storage).edit(change)

    async def clear(
        self,
        thread_id: str,
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Empty the thread: state, executors' memories, and all that is due, sent, pending, recorded or yielded.

        The next message begins anew. Its history, its event log and what is said of it stay.
        """
        return await self._editing(thread_id, on_busy, takeover, checkpoint_storage).edit(cleared, settles=True)

    async def describe(
        self,
        thread_id: str,
        about: Mapping[str, Any],
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Say something of the thread: its name, for one. JSON values by key; None takes a key away, others stay.

        It is in `metadata["about"]` of this and all later checkpoints, also after a rewind or `clear`, and in those of
        its forks. Raises InvalidRun for what is not JSON.
        """

        def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
            return with_about(head, merged_about(head, about))

        return await self._editing(thread_id, on_busy, takeover, checkpoint_storage).edit(change)

    def _editing(self, thread_id: str, on_busy: OnBusy, takeover: bool, checkpoint_storage: Any) -> TimeTravel:
        check_identifier("thread_id", thread_id)
        options: RunOptions = {"thread_id": thread_id, "on_busy": on_busy, "takeover": takeover}
        return self._travel("Editing a thread", checkpoint_storage, options)
