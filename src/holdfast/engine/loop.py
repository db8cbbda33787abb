"""The loop: runs supersteps and commits each of them. The only part of the engine that touches a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.checkpoints.checkpoint import WorkflowCheckpoint
from holdfast.checkpoints.threads import ThreadKeeper
from holdfast.engine.compiled import Compiled
from holdfast.engine.concurrency import run_side_by_side
from holdfast.engine.effects import Effects, encode_effects
from holdfast.engine.lane import Lane
from holdfast.engine.memory import ExecutorMemories
from holdfast.engine.run_arguments import without_secrets
from holdfast.engine.superstep import apply, in_delivery_order, plan
from holdfast.engine.thread import Position, Thread, counters_of, executor_memories, messages_by_source
from holdfast.errors import WorkflowConvergenceException
from holdfast.events import WorkflowEvent, WorkflowRunState
from holdfast.log import get_logger
from holdfast.records import CheckpointInfo, WorkflowMessage

logger = get_logger("engine")

SUPERSTEPS_PER_TURN = 16
"""How many supersteps may follow each other before other tasks get a turn, when nobody watches."""


class Loop:
    """Moves one thread forward for one run."""

    def __init__(
        self,
        compiled: Compiled,
        thread: Thread,
        keeper: ThreadKeeper | None,
        run_id: str,
        emit: Callable[[WorkflowEvent], None],
        *,
        is_streaming: bool = False,
        durability: str = "sync",
        inbox: list[Callable[[Position], Position]] | None = None,
    ) -> None:
        self._compiled = compiled
        self._thread = thread
        self._keeper = keeper
        self._codec = keeper.codec if keeper is not None else None
        self._memory = ExecutorMemories(thread, compiled.hooked, self._codec)
        self._run_id = run_id
        self._emit = emit
        self._is_streaming = is_streaming
        self._only_at_exit = durability == "exit"
        self._journals = keeper is not None and keeper.has_journal and not self._only_at_exit
        self._backlog: list[WorkflowEvent] = []
        """Events that wait for the next commit to join the thread's log."""
        self._final_is_logged = False
        self._is_unsaved = False
        """Whether the position is ahead of the head, as between the commits of durability="exit"."""
        self._unfinished = 0
        self._inbox = inbox if inbox is not None else []
        """Inputs that arrived while something else was done; emptied when they are committed."""
        self.takes_input = True
        self._turns = 0
        self.failed_executor_id: str | None = None

    # ------------------------------------------------------------ events

    def tell(self, event: WorkflowEvent) -> None:
        """To the consumer now, to the log with the next commit."""
        self._emit(event)
        self.log(event)

    def log(self, event: WorkflowEvent) -> None:
        if self._keeper is not None:
            self._backlog.append(event)

    # ------------------------------------------------------------ supersteps

    async def drive(self) -> None:
        """Run supersteps until nothing is due. Raises what a handler raised; the thread then stands at its head."""
        thread = self._thread
        limit = self._compiled.graph.max_iterations
        self.takes_input = True
        try:
            while thread.position.mailbox or self._inbox:
                if self._inbox:
                    await self._take_in()
                if thread.position.since_input >= limit:
                    raise WorkflowConvergenceException(thread.thread_id, limit)
                await self._superstep()
                await self._give_way()
        finally:
            self.takes_input = False

    async def _give_way(self) -> None:
        """Let others run: a consumer sees each superstep before the next one starts, and quick handlers that never
        wait do not keep the event loop to themselves."""
        self._turns += 1
        if self._is_streaming or self._turns % SUPERSTEPS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _take_in(self) -> None:
        """What was sent while a superstep ran is committed before the next one starts."""
        after = self._thread.position
        taken = list(self._inbox)
        for take_in in taken:
            after = take_in(after)
        await self.enter(after)
        del self._inbox[: len(taken)]

    async def _superstep(self) -> None:
        thread, position = self._thread, self._thread.position
        iteration = position.iteration + 1
        started = WorkflowEvent("superstep_started", iteration=iteration)
        self._emit(started)
        lanes = plan(position, self._open_lane)
        logged_before = len(self._backlog)
        try:
            self._unfinished = len(position.mailbox)
            was_cancelled = await run_side_by_side(lanes, self._run_lane)
            graph = self._compiled.graph
            after, warnings = await apply(position, lanes, self._compiled.routes, graph.reducers, self._codec)
            for warning in warnings:
                self._emit(warning)
                logger.warning("thread %s: %s", thread.thread_id, warning.data)
            if self._compiled.hooked:
                await self._memory.remember(after)
            info, last_seq = await self._commit_superstep(after, started, lanes, warnings)
        except BaseException as error:
            failed = (lane.executor_id for lane in lanes if lane.failure is error)
            self.failed_executor_id = next(failed, None)
            del self._backlog[logged_before:]
            if isinstance(error, asyncio.CancelledError):
                await self._record_finished(lanes)
            await self._discard(lanes, iteration)
            raise
        thread.journal = {}
        self._emit(
            WorkflowEvent(
                "superstep_completed",
                iteration=iteration,
                checkpoint=info,
                last_seq=last_seq,
                executors=tuple(lane.executor_id for lane in lanes),
                has_pending_messages=bool(after.mailbox),
                has_pending_requests=bool(after.requests),
            )
        )
        if was_cancelled:
            raise asyncio.CancelledError

    def _open_lane(self, executor_id: str) -> Lane:
        return Lane(
            self._compiled.graph,
            self._thread,
            executor_id,
            self._emit,
            self._run_id,
            is_streaming=self._is_streaming,
            is_logged=self._keeper is not None,
        )

    async def _run_lane(self, lane: Lane) -> None:
        for message in lane.messages:
            recorded = self._thread.journal.get(message.delivery_id)
            if recorded is not None:
                await self._replay(lane, recorded)
                self._unfinished -= 1
                continue
            effects = await lane.deliver(message)
            self._unfinished -= 1
            if self._unfinished:
                await self._record(lane, message, effects)

    async def _replay(self, lane: Lane, recorded: Effects) -> None:
        lane.replay(recorded)
        if recorded.saved is not None:
            seen = self._thread.position.successor()
            if recorded.private is not None:
                seen.private = {**seen.private, lane.executor_id: recorded.private}
            await self._memory.put_back(lane.executor, recorded.saved, seen)

    async def _record(self, lane: Lane, message: WorkflowMessage, effects: Effects) -> None:
        """Siblings are still at work: should one of them fail or the process die, this delivery is not run again.

        The last delivery to end needs no record of its own: the commit is it.
        """
        if self._only_at_exit and self._keeper is not None:
            return
        lane.settle(effects, self._codec)
        if lane.executor.saves_state:
            await self._memory.take_into(effects, lane.executor)
        if self._journals and self._keeper is not None:
            outcome = encode_effects(effects, lane.executor_id, self._keeper.codec)
            await self._keeper.record(message.delivery_id, outcome)
        self._thread.journal[message.delivery_id] = effects

    async def _record_finished(self, lanes: Iterable[Lane]) -> None:
        """A cancel between the end of the last delivery and the commit must not make it run twice."""
        for lane in lanes:
            for message, effects in zip(lane.messages, lane.results, strict=False):
                if message.delivery_id not in self._thread.journal:
                    await self._record(lane, message, effects)

    async def _discard(self, lanes: Iterable[Lane], iteration: int) -> None:
        """Leave no trace of a superstep that failed: executors go back to what the head says."""
        for lane in lanes:
            if lane.executor.saves_state:
                await self._memory.restore(lane.executor_id)
        self._emit(WorkflowEvent("superstep_discarded", iteration=iteration))

    async def restore(self, position: Position, saved: dict[str, Any]) -> None:
        """Stand at another position, executors included. `saved` holds their dicts as values."""
        await self._memory.restore_all(position, saved)

    # ------------------------------------------------------------ commits

    async def enter(self, after: Position) -> None:
        """Commit a position that came from outside: an input, answers, a rewind. Always saved at once."""
        if self._compiled.hooked:
            await self._memory.remember(after)
        await self.commit(after)

    async def _commit_superstep(
        self, after: Position, started: WorkflowEvent, lanes: list[Lane], warnings: list[WorkflowEvent]
    ) -> tuple[CheckpointInfo | None, int | None]:
        if self._keeper is None:
            self._thread.position = after
            self._thread.is_ahead = True
            return None, None
        self._backlog.append(started)
        for _, effects in in_delivery_order(lanes):
            self._backlog.extend(effects.events)
        self._backlog.extend(warnings)
        if self._only_at_exit:
            self._thread.position = after
            self._is_unsaved = True
            return None, None
        return await self.commit(after, completed=[lane.executor_id for lane in lanes])

    async def commit(
        self, after: Position, completed: list[str] | None = None
    ) -> tuple[CheckpointInfo | None, int | None]:
        """Make `after` the thread's position, and its head where there is a storage. Gives the checkpoint and the
        cursor of its last event."""
        keeper, thread = self._keeper, self._thread
        if keeper is None:
            thread.position = after
            thread.is_ahead = True
            return None, None
        checkpoint = self._checkpoint_of(after, keeper.number + 1)
        info = checkpoint.info
        events = list(self._backlog)
        if completed is not None:
            events.append(_completed(after, info, completed))
        is_final = completed is not None and not after.mailbox
        if is_final:
            events.append(WorkflowEvent("status", state=resting_state(after)))
        # Deliveries recorded in the journal are still due after an entry; a superstep settles all of them.
        keeps_journal = completed is None and bool(thread.journal)
        await keeper.commit(checkpoint, events, self._run_id, checkpoint.status, keeps_journal=keeps_journal)
        self._backlog.clear()
        self._final_is_logged = is_final
        self._is_unsaved = False
        thread.position = after
        thread.number = keeper.number
        thread.head_id = checkpoint.checkpoint_id
        thread.is_ahead = False
        self._emit(WorkflowEvent("checkpoint_saved", checkpoint=info))
        return info, keeper.last_seq - 1 if is_final else keeper.last_seq

    async def finish(self, state: WorkflowRunState, events: Iterable[WorkflowEvent] = ()) -> None:
        """The last commit of a run: what is still unsaved, and how it ended."""
        keeper, thread = self._keeper, self._thread
        if keeper is None:
            return
        if self._is_unsaved:
            await self.commit(thread.position, completed=[])
        if self._final_is_logged and state is resting_state(thread.position):
            return
        logged = [*self._backlog, *events, WorkflowEvent("status", state=state)]
        was_in_step = thread.number == keeper.number
        await keeper.commit(None, logged, self._run_id, state.value)
        self._backlog.clear()
        if was_in_step:
            thread.number = keeper.number

    def _checkpoint_of(self, after: Position, number: int) -> WorkflowCheckpoint:
        compiled, thread = self._compiled, self._thread
        return WorkflowCheckpoint(
            workflow_name=compiled.graph.name,
            graph_signature_hash=compiled.signature_hash,
            previous_checkpoint_id=thread.head_id,
            messages=messages_by_source(after.mailbox),
            state=after.state,
            pending_request_info_events=after.requests,
            iteration_count=after.iteration,
            thread_id=thread.thread_id,
            run_id=self._run_id,
            outputs=after.outputs,
            executors=executor_memories(after),
            buffers=after.buffers,
            answered=after.answered,
            run_kwargs=without_secrets(after.run_kwargs) if after.run_kwargs else {},
            counters=counters_of(after),
            graph_signature=compiled.signature,
            number=number,
            status=(resting_state(after) if not after.mailbox else running_state(after)).value,
        )


def resting_state(position: Position) -> WorkflowRunState:
    return WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if position.requests else WorkflowRunState.IDLE


def running_state(position: Position) -> WorkflowRunState:
    return WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if position.requests else WorkflowRunState.IN_PROGRESS


def _completed(after: Position, info: CheckpointInfo, executor_ids: list[str]) -> WorkflowEvent:
    return WorkflowEvent(
        "superstep_completed",
        iteration=after.iteration,
        checkpoint=info,
        executors=tuple(executor_ids),
        has_pending_messages=bool(after.mailbox),
        has_pending_requests=bool(after.requests),
    )
