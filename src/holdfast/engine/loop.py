"""The loop: runs supersteps and commits each of them. The only part of the engine that touches a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.checkpoints.checkpoint import WorkflowCheckpoint
from holdfast.checkpoints.threads import ThreadKeeper
from holdfast.engine import hooks
from holdfast.engine.compiled import Compiled
from holdfast.engine.effects import Effects, Frost, encode_effects
from holdfast.engine.lane import Lane
from holdfast.engine.run_arguments import without_secrets
from holdfast.engine.superstep import apply, plan
from holdfast.engine.thread import Position, Thread, counters_of, executor_memories, messages_by_source
from holdfast.errors import WorkflowConvergenceException
from holdfast.events import WorkflowEvent, WorkflowRunState
from holdfast.log import get_logger
from holdfast.records import CheckpointInfo, WorkflowMessage

logger = get_logger("engine")


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
    ) -> None:
        self._compiled = compiled
        self._thread = thread
        self._keeper = keeper
        self._codec = keeper.codec if keeper is not None else None
        self._frost = Frost(self._codec)
        self._run_id = run_id
        self._emit = emit
        self._is_streaming = is_streaming
        self._only_at_exit = durability == "exit"
        self._journals = keeper is not None and keeper.has_journal and not self._only_at_exit
        self._backlog: list[WorkflowEvent] = []
        """Events that wait for the next commit to join the thread's log."""
        self._is_unsaved = False
        """Whether the position is ahead of the head, as between the commits of durability="exit"."""
        self._unfinished = 0
        self.inbox: list[Callable[[Position], Position]] = []
        """Inputs that arrived while a superstep runs."""
        self.takes_input = False

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
            while thread.position.mailbox or self.inbox:
                if self.inbox:
                    await self._take_in()
                if thread.position.since_input >= limit:
                    raise WorkflowConvergenceException(thread.thread_id, limit)
                await self._superstep()
        finally:
            self.takes_input = False

    async def _take_in(self) -> None:
        """What was sent while a superstep ran is committed before the next one starts."""
        after = self._thread.position
        for take_in in self.inbox:
            after = take_in(after)
        self.inbox = []
        await self.enter(after)

    async def _superstep(self) -> None:
        thread, position = self._thread, self._thread.position
        iteration = position.iteration + 1
        started = WorkflowEvent("superstep_started", iteration=iteration)
        self._emit(started)
        lanes = plan(position, self._open_lane)
        try:
            await self._run(lanes, len(position.mailbox))
            graph = self._compiled.graph
            after, warnings = await apply(position, lanes, self._compiled.routes, graph.reducers, self._codec)
            for warning in warnings:
                self._emit(warning)
                logger.warning("thread %s: %s", thread.thread_id, warning.data)
            if self._compiled.hooked:
                await self._remember_executors(after)
            info, last_seq = await self._commit_superstep(after, started, lanes, warnings)
        except BaseException:
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

    async def _run(self, lanes: list[Lane], deliveries: int) -> None:
        self._unfinished = deliveries
        if len(lanes) == 1:
            await self._run_lane(lanes[0])
            return
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._run_lane(lane), name=lane.executor_id) for lane in lanes]
        try:
            await asyncio.sleep(0)  # lanes that never wait are done after this: no need to watch them
            while not any(_failed(task) for task in tasks):
                pending = [task for task in tasks if not task.done()]
                if not pending:
                    break
                await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await _cancel_and_wait(tasks)
        _raise_first(tasks)

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
        if recorded.saved is not None:
            state = self._frost.thaw(recorded.saved, f"journal of {lane.executor_id!r}")
            await hooks.restore(lane.executor, state, self._thread.position, self._thread.thread_id)
        lane.replay(recorded)

    async def _record(self, lane: Lane, message: WorkflowMessage, effects: Effects) -> None:
        """Siblings are still at work: should one of them fail or the process die, this delivery is not run again.

        The last delivery to end needs no record of its own: the commit is it.
        """
        if self._only_at_exit and self._keeper is not None:
            return
        if lane.executor.saves_state:
            saved = await hooks.save(lane.executor, self._thread.position.successor(), self._thread.thread_id)
            effects.saved = self._frost.freeze(saved, f"executors[{lane.executor_id!r}].saved")
        if self._journals and self._keeper is not None:
            outcome = encode_effects(effects, lane.executor_id, self._keeper.codec)
            await self._keeper.record(message.delivery_id, outcome)
        self._thread.journal[message.delivery_id] = effects

    async def _discard(self, lanes: Iterable[Lane], iteration: int) -> None:
        """Leave no trace of a superstep that failed: executors go back to what the head says."""
        for lane in lanes:
            if lane.executor.saves_state:
                await self.restore_executor(lane.executor_id)
        self._emit(WorkflowEvent("superstep_discarded", iteration=iteration))

    # ------------------------------------------------------------ executors

    async def _remember_executors(self, after: Position) -> None:
        """Ask every executor with hooks what it keeps, whether it ran or not: they may share objects."""
        executors = self._thread.executors
        saved = dict(after.saved)
        for executor_id in self._compiled.hooked:
            if executor_id in executors:
                kept = await hooks.save(executors[executor_id], after, self._thread.thread_id)
                saved[executor_id] = self._frost.freeze(kept, f"executors[{executor_id!r}].saved")
        after.saved = saved

    async def restore_executor(self, executor_id: str) -> None:
        """Put an executor where the position says; one that the position does not know is made anew."""
        thread = self._thread
        frozen = thread.position.saved.get(executor_id)
        if frozen is None:
            thread.executors.pop(executor_id, None)
            return
        state = self._frost.thaw(frozen, f"executors[{executor_id!r}].saved")
        await hooks.restore(thread.executors[executor_id], state, thread.position, thread.thread_id)

    async def restore(self, position: Position, saved: dict[str, Any]) -> None:
        """Stand at another position, executors included. `saved` holds their dicts as values."""
        thread = self._thread
        position.saved = {key: self._frost.freeze(value, f"executors[{key!r}].saved") for key, value in saved.items()}
        before, thread.position = thread.position, position
        try:
            for executor_id in self._compiled.hooked:
                if executor_id in thread.executors or executor_id in saved:
                    await self.restore_executor(executor_id)
        except BaseException:
            thread.position = before
            raise
        thread.journal = {}

    # ------------------------------------------------------------ commits

    async def enter(self, after: Position) -> None:
        """Commit a position that came from outside: an input, answers, a rewind. Always saved at once."""
        if self._compiled.hooked:
            await self._remember_executors(after)
        await self.commit(after)

    async def _commit_superstep(
        self, after: Position, started: WorkflowEvent, lanes: list[Lane], warnings: list[WorkflowEvent]
    ) -> tuple[CheckpointInfo | None, int | None]:
        if self._keeper is None:
            self._thread.position = after
            return None, None
        self._backlog.append(started)
        for lane in lanes:
            for effects in lane.results:
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
            return None, None
        checkpoint = self._checkpoint_of(after, keeper.number + 1)
        info = checkpoint.info
        events = list(self._backlog)
        if completed is not None:
            events.append(_completed(after, info, completed))
        is_final = completed is not None and not after.mailbox
        if is_final:
            events.append(WorkflowEvent("status", state=resting_state(after)))
        await keeper.commit(checkpoint, events, self._run_id, checkpoint.status)
        self._backlog.clear()
        self._final_is_logged = is_final
        self._is_unsaved = False
        thread.position = after
        thread.number = keeper.number
        thread.head_id = checkpoint.checkpoint_id
        self._emit(WorkflowEvent("checkpoint_saved", checkpoint=info))
        return info, keeper.last_seq - 1 if is_final else keeper.last_seq

    _final_is_logged = False

    async def finish(self, state: WorkflowRunState, events: Iterable[WorkflowEvent] = ()) -> None:
        """The last commit of a run: what is still unsaved, and how it ended."""
        keeper = self._keeper
        if keeper is None:
            return
        if self._is_unsaved:
            await self.commit(self._thread.position, completed=[])
        if self._final_is_logged and state is resting_state(self._thread.position):
            return
        logged = [*self._backlog, *events, WorkflowEvent("status", state=state)]
        await keeper.commit(None, logged, self._run_id, state.value)
        self._backlog.clear()
        self._thread.number = keeper.number

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


# ---------------------------------------------------------------- tasks


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _cancel_and_wait(tasks: list[asyncio.Task[None]]) -> None:
    """No lane outlives its superstep: a side effect after the run has ended would belong to nobody."""
    pending = [task for task in tasks if not task.done()]
    if pending:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending)


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """The first real failure in lane order; a cancelled sibling is only its consequence."""
    cancelled = False
    for task in tasks:
        if task.cancelled():
            cancelled = True
        elif (error := task.exception()) is not None:
            raise error
    if cancelled:
        raise asyncio.CancelledError
