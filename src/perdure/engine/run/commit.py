"""Commits: make positions of a thread durable, together with its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.checkpoints.any_storage import OpenThread
from perdure.checkpoints.checkpoint import WorkflowCheckpoint, new_checkpoint_id, utc_now
from perdure.checkpoints.encode import FORMAT_VERSION
from perdure.clock import await_uncancelled
from perdure.engine.delivery.scope import RunScope
from perdure.engine.thread.level import without_secrets
from perdure.engine.thread.live_threads import NOT_IN_STEP
from perdure.engine.thread.position import (
    Position,
    child_checkpoint,
    executor_memories,
    messages_by_source,
    metadata_of,
)
from perdure.engine.watch import Saving
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.records import CheckpointInfo, Counters

_SAVED = WorkflowEvent("checkpoint_saved")


class Committer:
    """Makes positions of one thread durable, for one run. Without a storage it only moves the live thread."""

    def __init__(self, scope: RunScope, durability: str) -> None:
        self._thread = scope.thread
        self._stored_thread = scope.stored_thread
        self._run_id = scope.run_id
        self._scope = scope
        self._watch = scope.watch
        self._only_at_exit = durability == "exit"
        self._lags = durability == "async"
        """Whether the next superstep may start before the commit of the last is stored."""
        self.backlog: list[WorkflowEvent] = []
        """Events that wait for the next commit to join the thread's log."""
        self._is_unsaved = False
        """Whether the position is ahead of the head, as between the commits of durability="exit"."""
        self._logged_state: WorkflowRunState | None = None
        """The final status, once the log has it."""
        self._saved_seq = 0 if scope.stored_thread is None else scope.stored_thread.last_seq
        """The cursor of the last event that is stored."""

    @property
    def records(self) -> bool:
        """Whether deliveries are recorded one by one: always, unless the caller chose to save only at the end."""
        return self._stored_thread is None or not self._only_at_exit

    def emit(self, event: WorkflowEvent) -> None:
        """Emit to the consumer now, and log with the next commit."""
        self._scope.emit(event)
        self.log(event)

    def log(self, *events: WorkflowEvent) -> None:
        if self._stored_thread is not None:
            self.backlog += events

    async def commit(
        self, after: Position, consumed: Sequence[str] = (), completed: WorkflowEvent | None = None
    ) -> tuple[CheckpointInfo | None, int | None]:
        """Make `after` the thread's position, and its head where there is a storage. Returns the new checkpoint and the
        cursor of its last event, both None where nothing was saved.

        `completed` is the event of the superstep that led to it; None for an input. A commit that has begun completes,
        so the store and the live thread cannot diverge: the loop, or the end of the run, raises a cancellation that
        arrived meanwhile.
        """
        thread, stored_thread = self._thread, self._stored_thread
        if stored_thread is None:
            self._move(after, consumed, is_ahead=True)
            return None, None
        is_busy = after.is_busy if completed is None else bool(completed.has_pending_messages)
        state = running_state(after) if is_busy else resting_state(after)
        checkpoint = self._checkpoint_of(after, stored_thread.number + 1, state)
        events, on_saved = self.backlog, None
        unsettled: Sequence[int] = ()
        is_final = completed is not None and not is_busy and not thread.inbox
        if completed is None:  # deliveries in the journal are still due; a superstep settles all of them
            unsettled = (*thread.journal, *thread.records)
        else:
            if is_final:
                events = [*events, WorkflowEvent("status", state=state)]
            if self._lags:
                on_saved = self._emit_final_saved if is_final else self._emit_saved
        if self._lags:  # until it succeeds: an earlier commit may be what fails, and the live thread is ahead of it
            thread.number = NOT_IN_STEP
        saving = None if self._watch is None else Saving(self._watch, checkpoint, len(events), on_saved)
        commit = stored_thread.commit(
            checkpoint,
            events,
            self._run_id,
            checkpoint.status,
            unsettled=unsettled,
            consumed=consumed,
            on_saved=on_saved if saving is None else saving.on_saved,
        )
        info = await (commit if saving is None else saving.watch(commit))
        self.backlog.clear()
        self._logged_state = state if is_final else None
        self._is_unsaved = False
        self._move(after, consumed, is_ahead=False)
        thread.number, thread.head_id = stored_thread.number, checkpoint.checkpoint_id
        if on_saved is not None:
            return None, self._saved_seq  # the commit may still fail, so its cursor is not valid yet
        last_seq = stored_thread.last_seq - 1 if is_final else stored_thread.last_seq
        self._emit_saved(info, last_seq)
        return info, last_seq

    def keep(self, after: Position) -> bool:
        """Make `after` the thread's position without a commit. False if each superstep is to be committed."""
        if self._stored_thread is not None:
            if not self._only_at_exit:
                return False
            self._is_unsaved = True
        self._move(after, is_ahead=True)
        return True

    def _emit_final_saved(self, info: CheckpointInfo | None, last_seq: int) -> None:
        """The final status follows the superstep in the log, so the cursor excludes it: a follower must see it."""
        self._emit_saved(info, last_seq - 1)

    def _emit_saved(self, info: CheckpointInfo | None, last_seq: int) -> None:
        self._saved_seq = last_seq
        self._scope.emit(replace(_SAVED, checkpoint=info, last_seq=last_seq if self._lags else None))

    async def commit_progress(self, position: Position, unsettled: Sequence[int]) -> None:
        """A checkpoint in the middle of a superstep: the same position, with more of it recorded."""
        stored_thread, thread = self._stored_thread, self._thread
        if stored_thread is None:
            return
        state = running_state(position) if position.is_busy else resting_state(position)
        checkpoint = self._checkpoint_of(position, stored_thread.number + 1, state)
        commit = stored_thread.commit(checkpoint, (), self._run_id, checkpoint.status, unsettled=unsettled)
        if self._watch is not None:
            commit = Saving(self._watch, checkpoint, 0).watch(commit)
        info, cancelled = await await_uncancelled(commit)
        thread.number, thread.head_id = stored_thread.number, checkpoint.checkpoint_id
        self._emit_saved(info, stored_thread.last_seq)
        if cancelled is not None:  # it may belong to a branch of the user's function, which must receive it
            raise cancelled

    def _move(self, after: Position, consumed: Sequence[str] = (), *, is_ahead: bool) -> None:
        if self._watch is not None:
            self._watch.report_requests(self._thread.position, after)
        self._thread.position = after
        self._thread.is_ahead = is_ahead
        for item_id in consumed:
            self._thread.inbox.pop(item_id, None)

    async def finish(self, state: WorkflowRunState, events: Iterable[WorkflowEvent] = ()) -> None:
        """The last commit of a run: unsaved state, and its final status."""
        stored_thread = self._stored_thread
        if stored_thread is None:
            return
        if self._lags or self._is_unsaved:  # a superstep of durability="sync" is stored
            await self._save_the_rest(stored_thread)
        if state is not self._logged_state:
            logged = [*self.backlog, *events, WorkflowEvent("status", state=state)]
            await self._commit_events(stored_thread, logged, state)

    async def leave(self) -> None:
        """Save unsaved state without a final status: the run leaves its thread to the next run."""
        stored_thread = self._stored_thread
        if stored_thread is None:
            return
        await self._save_the_rest(stored_thread)
        if self.backlog:  # the store does not show yet that the run has begun
            await self._commit_events(stored_thread, list(self.backlog), running_state(self._thread.position))

    async def _save_the_rest(self, stored_thread: OpenThread) -> None:
        # If this fails, the next run reads the head: unsaved work is lost.
        thread, number = self._thread, self._thread.number
        thread.number = NOT_IN_STEP
        if self._is_unsaved:
            await self.commit(thread.position)
        else:
            await stored_thread.settle()
            thread.number = number

    async def _commit_events(
        self, stored_thread: OpenThread, logged: list[WorkflowEvent], state: WorkflowRunState
    ) -> None:
        """A commit without a checkpoint."""
        thread = self._thread
        was_in_step = thread.number == stored_thread.number
        if self._lags:
            thread.number = NOT_IN_STEP
        commit = stored_thread.commit(None, logged, self._run_id, state.value)
        if self._watch is not None:
            commit = Saving(self._watch, None, len(logged)).watch(commit)
        await commit
        self.backlog.clear()
        if was_in_step:
            thread.number = stored_thread.number

    def _checkpoint_of(self, after: Position, number: int, state: WorkflowRunState) -> WorkflowCheckpoint:
        compiled, thread = self._scope.compiled, self._thread
        return WorkflowCheckpoint(  # by position: names take 0.9 us of 24 per superstep (benchmarks/engine.py)
            compiled.graph.name,
            compiled.signature_hash,
            new_checkpoint_id(),
            thread.head_id,
            utc_now(),
            messages_by_source(after.mailbox),
            after.state,
            after.requests,
            after.iteration,
            metadata_of(after) if after.usage or after.about else {},
            FORMAT_VERSION,
            thread.thread_id,
            self._run_id,
            after.outputs,
            executor_memories(after) if after.saved or after.private else {},
            after.buffers,
            after.answered,
            after.suspended,
            {key: child_checkpoint(child) for key, child in after.children.items()} if after.children else {},
            without_secrets(after.run_kwargs) if after.run_kwargs else {},
            Counters(after.since_input, after.next_delivery_id, after.epoch),
            compiled.signature,
            compiled.migrations.names,
            after.renamed_types,
            number,
            state._value_,
        )


def resting_state(position: Position) -> WorkflowRunState:
    return WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if position.requests else WorkflowRunState.IDLE


def running_state(position: Position) -> WorkflowRunState:
    return WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if position.requests else WorkflowRunState.IN_PROGRESS
