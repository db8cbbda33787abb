"""The loop: runs supersteps, commits each, and records deliveries that end before their siblings."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from perdure.clock import await_uncancelled
from perdure.engine.delivery.executor_state import ExecutorMemories
from perdure.engine.delivery.lane import Lane
from perdure.engine.delivery.scope import RunScope, add_records, encode_effects
from perdure.engine.run.commit import Committer
from perdure.engine.run.lanes import Nesting, lanes_in_conflict, run_child_lane, run_side_by_side
from perdure.engine.run.request import take_inbox
from perdure.engine.run.superstep import apply, plan
from perdure.engine.thread.inputs import pass_deadlines
from perdure.engine.thread.level import Level
from perdure.engine.thread.position import Child, Effects, Position, next_deadline, next_wake_up
from perdure.errors import (
    CheckpointHookFailed,
    DuplicateRequest,
    StateConflict,
    SubWorkflowFailed,
    UnsavableValue,
    WorkflowConvergenceException,
)
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.records import WorkflowMessage

logger = get_logger("engine")

_FULL_ID = attrgetter("full_id")
_STARTED, _COMPLETED = WorkflowEvent("superstep_started"), WorkflowEvent("superstep_completed")

SUPERSTEPS_PER_TURN = 16
"""How many supersteps of a run without streaming may follow each other before other tasks get a turn."""

RECORDS_PER_CHECKPOINT = 100
"""How many steps a handler or function may record before a checkpoint takes them in."""


class Loop:
    """Moves one thread forward for one run."""

    def __init__(self, scope: RunScope, durability: str) -> None:
        self.scope = scope
        self._compiled = scope.compiled
        self._thread = scope.thread
        scope.after_record = self._save_progress
        self.committer = Committer(scope, durability)
        self._unfinished = 0
        """Deliveries of the present superstep that have not ended."""
        self._supersteps = 0
        self.takes_input = True
        """Whether a message put into the thread's inbox will still be delivered by this run."""
        self.failed_executor_id: str | None = None

    # Most runs need none of these.

    @cached_property
    def memory(self) -> ExecutorMemories:
        return ExecutorMemories(self._thread, self._compiled, self.scope.stored_thread)

    @cached_property
    def _nesting(self) -> Nesting:
        return Nesting(self.scope)

    async def drive(self) -> None:
        """Run supersteps until nothing is due, or the run is asked to leave. Raises the error of a handler; the thread
        is then at its head."""
        thread = self._thread
        limit = min(self._compiled.graph.max_iterations, self.scope.max_iterations or sys.maxsize)
        scope = self.scope
        scope.task = asyncio.current_task()
        scope.cancels_before = scope.task.cancelling() if scope.task is not None else 0
        self.takes_input = True
        try:
            while thread.position.mailbox or thread.inbox or thread.position.suspended or thread.position.children:
                if not thread.position.mailbox and not thread.inbox and not await self._has_work():
                    break
                if thread.owner.is_leaving:
                    raise asyncio.CancelledError
                if thread.inbox:
                    await self._take_in()
                if thread.position.since_input >= limit:
                    raise WorkflowConvergenceException(thread.thread_id, limit)
                await (self._superstep() if scope.watch is None else scope.watch.superstep(self._superstep(), thread))
                self._supersteps += 1
                if scope.is_cancelled():  # even if a handler caught the cancellation and finished its work
                    raise asyncio.CancelledError
                # A consumer gets its turn in the next superstep, or before the run waits.
                is_due = thread.position.mailbox or thread.inbox
                is_turn = not is_due if scope.is_streaming else self._supersteps % SUPERSTEPS_PER_TURN == 0
                if is_turn and (is_due or thread.position.is_busy):
                    await asyncio.sleep(0)  # handlers that never wait do not block the event loop
        finally:
            self.takes_input = False

    async def _has_work(self) -> bool:
        """Whether a superstep has work now. Waits for sleepers, unless a request to the outside is pending: the thread
        then pauses, and the next run continues them. Commits the results of passed deadlines."""
        thread = self._thread
        while True:
            position, now = thread.position, self.scope.clock.now()
            if position.mailbox or thread.inbox:
                return True
            if not position.suspended and not position.children:
                return False
            limit = self._nesting.next_deadline
            if position.is_due(now) or (limit is not None and limit <= now):
                return True
            if position.requests:
                return False
            after, expired = pass_deadlines(position, now)
            if after is not position:  # deadlines of requests that executors answer, not the outside
                for event in expired:
                    self.committer.emit(event)
                await self.enter(after)
                continue
            if limit is None and next_wake_up(position) is None:
                return False
            times = [time for time in (limit, next_deadline(position)) if time is not None]
            await self._sleep_until(min(times))

    async def _sleep_until(self, time: datetime) -> None:
        """Sleep until `time`, or until an item arrives in the inbox."""
        thread, clock = self._thread, self.scope.clock
        if thread.owner.is_leaving:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        waker = thread.waker = loop.create_future()
        alarm = loop.create_task(clock.sleep((time - clock.now()).total_seconds()))
        try:
            await asyncio.wait([waker, alarm], return_when=asyncio.FIRST_COMPLETED)
        finally:
            thread.waker = None
            alarm.cancel()

    async def _take_in(self) -> None:
        """Commit inbox items that arrived during a superstep, before the next one starts."""
        thread, graph = self._thread, self._compiled.graph
        before = thread.position
        after, warnings = take_inbox(graph, before, thread.inbox)
        for warning in warnings:
            self.committer.emit(warning)
        if self._supersteps:  # in the middle of a run: the count continues, and the outputs of both stay
            after.iteration, after.outputs = before.iteration, before.outputs
        await self.enter(before.successor() if after is before else after, consumed=tuple(thread.inbox))

    async def _superstep(self) -> None:
        thread, position = self._thread, self._thread.position
        iteration = position.iteration + 1
        started = replace(_STARTED, iteration=iteration)
        self.scope.emit(started)
        if self.scope.is_streaming:
            await self._yield_to_consumer(iteration)
        level = Level(self._compiled, position, thread.executors)
        backlog = self.committer.backlog
        logged_before = len(backlog)
        lanes: Sequence[Lane] = ()
        try:
            lanes = plan(level, self.scope, self._open_child)
            run_lane = self._run_any_lane if level.levels else self._run_lane
            if len(lanes) == 1:
                self._unfinished = len(lanes[0].messages)
                await run_lane(lanes[0])  # in place: a task costs more than the rest of the superstep
                was_cancelled = False
            else:
                self._unfinished = sum([len(lane.messages) for lane in lanes])
                was_cancelled = await run_side_by_side(lanes, run_lane)
            after, notices, effects = await apply(level, self.scope.codec, self.scope.clock.now)
            if notices:
                self._emit_all(notices)
            if level.levels:
                self._nesting.superstep_ended(level)
            if self._compiled.has_hooks:
                await self.memory.remember(after)
            completed = replace(
                _COMPLETED,
                iteration=after.iteration,
                executors=tuple(map(_FULL_ID, lanes)),
                has_pending_messages=after.is_busy,
                has_pending_requests=bool(after.requests),
            )
            if self.scope.is_logged:
                backlog.append(started)
                for done in effects:
                    backlog += done.events
                backlog += notices
                backlog.append(completed)
            is_kept = self.committer.keep(after)
            info, last_seq = (None, None) if is_kept else await self.committer.commit(after, completed=completed)
        except GeneratorExit:  # the event loop is being closed: nothing can be awaited any more
            self._thread.is_dirty = True
            raise
        except BaseException as error:
            del backlog[logged_before:]
            outer = self._note_failure(level, lanes, error)
            await await_uncancelled(self._discard(level, lanes, iteration, error))
            if outer is not None:
                raise outer from error
            raise
        level.lanes = ()  # breaks a cycle, which only the garbage collector could free
        thread.journal = {}
        if thread.records or thread.children:
            self._forget_ended()
        self.scope.emit(completed if last_seq is None else replace(completed, checkpoint=info, last_seq=last_seq))
        if was_cancelled:
            raise asyncio.CancelledError

    async def _yield_to_consumer(self, iteration: int) -> None:
        """A consumer receives the events so far, with that of the new superstep, before its handlers run."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.scope.emit(WorkflowEvent("superstep_discarded", iteration=iteration))
            raise

    def _forget_ended(self) -> None:
        self._thread.records = {}  # records of suspended deliveries are in the checkpoint
        self.scope.journal.since_commit = 0
        if self._thread.children:
            self._nesting.forget_ended()

    def _note_failure(self, level: Level, lanes: Sequence[Lane], error: BaseException) -> SubWorkflowFailed | None:
        """The error to raise in place of a failure inside a sub-workflow."""
        failed = next((lane for lane in lanes if lane.failure is error), None)
        self.failed_executor_id = None if failed is None else failed.full_id
        self._thread.is_dirty = True
        return self._nesting.failure(level, failed, error)

    def _emit_all(self, events: Sequence[WorkflowEvent]) -> None:
        for event in events:
            self.scope.emit(event)
            if event.type == "warning":
                logger.warning("thread %s: %s", self._thread.thread_id, event.data)

    def _open_child(self, level: Level, child: Child) -> Level | None:
        return self._nesting.open_child(level, child)

    async def _save_progress(self) -> None:
        """Save a checkpoint after every RECORDS_PER_CHECKPOINT records, so that the journal stays short."""
        journal = self.scope.journal
        if journal.since_commit < RECORDS_PER_CHECKPOINT or not journal.is_kept:
            return
        async with journal.lock:
            await journal.wait_for_others()
            if journal.since_commit >= RECORDS_PER_CHECKPOINT:
                journal.since_commit = 0
                before = self._thread.position
                self._thread.position = add_records(before, self._thread.records)
                try:
                    await self.committer.commit_progress(self._thread.position, tuple(self._thread.journal))
                except Exception:
                    self._thread.position = before
                    raise

    def _run_any_lane(self, lane: Lane) -> Coroutine[Any, Any, None]:
        if lane.level.parent is None:
            return self._run_lane(lane)
        return run_child_lane(lane, self._run_lane, self.scope.clock)

    async def _run_lane(self, lane: Lane) -> None:
        for message in lane.messages:
            recorded = self._thread.journal.get(message.delivery_id)
            if recorded is not None:
                await self._replay(lane, message, recorded)
                self._unfinished -= 1
                continue
            spans = self.scope.spans
            effects = await (lane.deliver(message) if spans is None else spans.delivery(lane, message))
            self._unfinished -= 1
            if effects.is_undone and lane.executor.saves_state:  # failed or suspended: as after the earlier deliveries
                saved = next((done.saved for done in reversed(lane.results) if done.saved is not None), None)
                lane.executor = await self.memory.put_back_in(lane.level, lane.executor_id, saved)
            if effects.suspended is None and self._unfinished and self._must_record_now(lane):
                await self._record(lane, message, effects)

    def _must_record_now(self, lane: Lane) -> bool:
        """Whether the delivery must be recorded before a sibling fails: a store needs the record before the process may
        die, and a later delivery to the same executor may change its memory."""
        if self.scope.journal.is_kept or len(lane.messages) > 1:
            return True
        return lane.executor_id in lane.level.compiled.hooked

    async def _replay(self, lane: Lane, message: WorkflowMessage, recorded: Effects) -> None:
        lane.replay(message, recorded)
        if self.scope.spans is not None:
            self.scope.spans.record_bypass("executor", lane.full_id)
        if recorded.saved is not None:
            seen = lane.position.successor()
            if recorded.private is not None:
                seen.private = {**seen.private, lane.executor_id: recorded.private}
            await self.memory.put_back(lane.executor, recorded.saved, seen)

    async def _record(self, lane: Lane, message: WorkflowMessage, effects: Effects) -> None:
        """Record a delivery while siblings still run. If one fails or the process dies, it does not run again.

        The last delivery to end needs no record: the commit contains it.
        """
        if not self.committer.records and len(lane.messages) == 1:
            return
        lane.settle(effects, self.scope.codec)
        if lane.executor.saves_state:
            await self.memory.take_into(effects, lane.executor, lane.position)
        if not self.committer.records:
            return
        stored_thread, journal = self.scope.stored_thread, self.scope.journal
        if stored_thread is not None and journal.is_kept:
            async with journal.beside_others():
                tree = encode_effects(effects, lane.full_id, stored_thread.codec)
                await stored_thread.record(message.delivery_id, tree)
        self._thread.journal[message.delivery_id] = effects

    async def _record_finished(self, lanes: Iterable[Lane]) -> None:
        """Record the deliveries that succeeded beside a failed or cancelled one, even if a hook was still saving.
        Not called if all of them succeeded and their merge or commit failed: they must then run again."""
        for lane in lanes:
            for message, effects in zip(lane.messages, lane.results, strict=False):
                if effects.suspended is None and message.delivery_id not in self._thread.journal:
                    with contextlib.suppress(UnsavableValue, CheckpointHookFailed):
                        await self._record(lane, message, effects)

    async def _unrecord(self, lanes: Iterable[Lane]) -> None:
        """Delete recorded outcomes that cannot be merged: a replay would block the thread forever."""
        for lane in lanes:
            for message in lane.messages:
                recorded = self._thread.journal.pop(message.delivery_id, None)
                if recorded is not None and self.scope.stored_thread is not None:
                    await self.scope.stored_thread.record(message.delivery_id, None)

    async def _discard(self, level: Level, lanes: Sequence[Lane], iteration: int, error: BaseException) -> None:
        """Undo a failed superstep, except for the journal: restore the executors from the head."""

        async def settle_journal() -> None:
            if self._unfinished or isinstance(error, asyncio.CancelledError):
                await self._record_finished(lanes)
            elif isinstance(error, StateConflict | DuplicateRequest):
                await self._unrecord(lanes_in_conflict(level, lanes, error))

        for undo in (settle_journal, self.memory.restore_here):
            try:
                await undo()
            except Exception as second:  # noqa: BLE001  # the first error is the cause; the next run restores again
                error.add_note(f"While it was undone: {second!r}")
        self.scope.emit(WorkflowEvent("superstep_discarded", iteration=iteration))

    async def restore(self, position: Position, saved: dict[str, Any]) -> None:
        """Move to another position, executors included. `saved` has their dicts as values."""
        if self._compiled.has_hooks or saved or position.children:
            await self.memory.restore_all(position, saved)
        else:
            thread = self._thread
            thread.position, thread.children, thread.journal, thread.records = position, {}, {}, {}
            thread.is_dirty = False

    async def set_aside(self, count: int) -> None:
        """Make a checkpoint of what the unfinished deliveries recorded, and forget them."""
        thread = self._thread
        if thread.records and self.scope.stored_thread is not None:
            await self.enter(add_records(thread.position, thread.records))
        text = f"{count} unfinished deliveries of an earlier run were left out for a new message."
        if thread.head_id is None:
            text += " The thread has no storage, so they are gone."
        else:
            text += f" They stay in the thread's history: run(checkpoint_id={thread.head_id!r}) goes back to them."
        self.committer.emit(WorkflowEvent("warning", text))
        thread.journal, thread.records = {}, {}

    async def enter(self, after: Position, consumed: Sequence[str] = ()) -> None:
        """Commit a position with an input, answers or a rewind. Always saved synchronously."""
        if self._compiled.has_hooks:
            await self.memory.remember(after)
        task = asyncio.current_task()
        cancels_before = 0 if task is None else task.cancelling()
        await self.committer.commit(after, consumed)
        if task is not None and task.cancelling() > cancels_before:  # the commit completed nevertheless
            raise asyncio.CancelledError
