"""The threads that a workflow object holds in this process, each owned by one run at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import msgspec

from perdure.clock import Clock
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.position import Effects, Position
from perdure.errors import ThreadBusy
from perdure.events import WorkflowRunState
from perdure.graph.executor import Executor
from perdure.graph.graph import Graph
from perdure.names import new_thread_id
from perdure.records import Record


class Instances(dict[str, Executor]):
    """Executor instances of one thread, or of a sub-workflow in it, created on first use.

    With `is_own` they are those of a workflow object's first thread: the user's own instances, if nothing else uses
    them, and new ones share the containers of their constructors.
    """

    def __init__(self, graph: Graph, *, is_own: bool = False) -> None:
        super().__init__()
        self._graph = graph
        self.is_own = is_own
        self._has_originals = is_own and graph not in _IN_USE
        if self._has_originals:
            _IN_USE.add(graph)
            self.update(graph.executors)

    def __missing__(self, executor_id: str) -> Executor:
        node = self._graph.nodes[executor_id]
        executor = self[executor_id] = node.executor if node.is_shared else node.make(shares=self.is_own)
        return executor

    def give_back(self) -> None:
        """Allow another thread to use the user's own instances."""
        if self._has_originals:
            _IN_USE.discard(self._graph)


_IN_USE: WeakSet[Graph] = WeakSet()
"""The graphs whose own executors, as the user made them, serve a thread or a sub-workflow."""


NOT_IN_STEP = -1
"""Number of a live thread that differs from its store: the next run reads the store again."""


class LiveThread(msgspec.Struct, eq=False):
    """One durable line of execution, as this process holds it."""

    thread_id: str
    executors: Instances
    position: Position = msgspec.field(default_factory=Position)
    number: int = 0
    """Its last commit. If the store has another number, another owner has moved the thread."""
    head_id: str | None = None
    """Its last checkpoint: the parent of the next one."""
    is_ahead: bool = False
    """Whether it was moved without a storage since its head was saved."""
    journal: dict[int, Effects] = {}
    """Outcomes of deliveries that ended in an unfinished superstep. They do not run again."""
    records: dict[int, list[Record]] = {}
    """All records of each delivery that recorded something since the head."""
    children: dict[int, Instances] = {}
    """Executors of sub-workflows, by the delivery that started them."""
    waker: asyncio.Future[None] | None = None
    """Resolved when an item arrives in the inbox while the run waits for a sleeper."""
    owner: Any = None
    """The Ownership of the run that moves it now."""
    is_abandoned: bool = False
    """Whether its last owner died without releasing it, here and in its store."""
    is_kept_elsewhere: bool = False
    """Whether a storage has it, so that it need not stay in memory."""
    storage: Any = None
    """The storage that its number and head refer to."""
    status: WorkflowRunState = WorkflowRunState.IDLE
    """The final state of its last run, or the state of the present one."""
    queue: list[Any] = []
    """Runs that wait for their turn, first come first served."""
    inbox: dict[str, Any] = {}
    """Messages to the thread that are not committed yet, by item id, in the order of arrival."""
    is_default: bool = False
    """Whether it is that of runs without a thread_id."""
    is_dirty: bool = False
    """Whether executors may differ from the position: undoing a superstep was not completed."""

    def wake(self) -> None:
        """Wake a run that waits: an item arrived in the inbox."""
        if self.waker is not None and not self.waker.done():
            self.waker.set_result(None)


local_runs: WeakValueDictionary[str, Ownership] = WeakValueDictionary()
"""The runs of this process, by id. The owner that a store names may be one that is just ending."""


BUSY_POLL_SECONDS = 0.02
"""How often a waiting run polls for a thread whose owner cannot notify it."""


class Ownership:
    """A run's ownership of its thread. Other runs can ask it to end, and wait for it."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.is_interrupted = False
        """Asked to end by another run, a handle, or a closed stream, not by its caller's cancellation."""
        self.is_leaving = False
        """Asked to release its thread between two supersteps, without a final status."""
        self.was_left = False
        """Whether it did."""
        self.drives = False
        """Whether it runs supersteps, rather than changing the thread by hand."""
        self.interrupts = False
        """Whether it interrupts the run before it, rather than waiting for it."""
        self.has_entered = False
        """Whether its input is committed, so that it moves the thread."""
        self.is_waiting = False
        """Whether it waits for its store to grant the thread."""
        self._cancels = 0
        self.turn: asyncio.Future[None] | None = None
        """Resolved when the thread is handed to this run, while it waits in the queue."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # only coroutines claim threads
        self._task, self._cancels_before = task, task.cancelling()
        self.released = asyncio.Event()
        """Set once it has released its thread."""
        local_runs[run_id] = self

    @property
    def is_dead(self) -> bool:
        """Whether its event loop was closed: it can no longer release the thread itself."""
        return self._task.get_loop().is_closed()

    @property
    def is_here(self) -> bool:
        """Whether it runs in the event loop of the caller."""
        return self._task.get_loop() is asyncio.get_running_loop()

    @property
    def is_ending(self) -> bool:
        # Not by `task.cancelling()`: a timeout inside a handler raises that too, and the run continues.
        return self.is_interrupted or self._task.done()

    def interrupt(self) -> None:
        """End it now, or after the commit of its input: no input is lost."""
        if not self.is_ending:
            self.is_interrupted = True
            if self.has_entered or self.is_waiting:
                self._cancel()

    def leave(self) -> None:
        """Ask it to stop between two supersteps. A run that still waits for its thread ends immediately."""
        self.is_leaving = True
        if self.is_waiting:
            self.interrupt()

    def leave_now(self) -> None:
        """Stop it inside its superstep: only recorded work stays."""
        if not self._cancels:
            self._cancel()

    def call_soon(self, act: Callable[[], object]) -> None:
        """Call `act` in the event loop of the run."""
        act() if self.is_here else self._task.get_loop().call_soon_threadsafe(act)

    def _cancel(self) -> None:
        self._cancels += 1
        self.call_soon(self._task.cancel)

    @contextmanager
    def mark_waiting(self) -> Iterator[None]:
        """Mark that it waits for its thread: an interruption then ends it immediately."""
        self.is_waiting = True
        try:
            if self.is_interrupted:  # from another OS thread, just now
                raise asyncio.CancelledError
            yield
        finally:
            self.is_waiting = False

    def mark_entered(self) -> None:
        """Mark that its input is committed. Raises CancelledError for an interruption that waited for that."""
        self.has_entered = True
        if self.is_interrupted:
            raise asyncio.CancelledError

    @property
    def is_cancelled(self) -> bool:
        """Whether its caller cancelled it, beside any interruption."""
        return self._task.cancelling() - self._cancels > self._cancels_before

    async def wait(self) -> None:
        """Wait until it has released its thread, in its store as well."""
        if self.is_here:
            await self.released.wait()
        while not (self.released.is_set() or self.is_dead):  # noqa: ASYNC110  # an Event belongs to one loop
            await asyncio.sleep(BUSY_POLL_SECONDS)

    def take_interruption(self) -> bool:
        """Whether it was ended through `interrupt`. Removes that cancellation from its task."""
        for _ in range(self._cancels):
            self._task.uncancel()
        self._cancels = 0
        return self.is_interrupted


class LiveThreads:
    def __init__(self, compiled: Compiled, clock: Clock) -> None:
        self.compiled = compiled
        self.clock = clock
        self._threads: dict[str, LiveThread] = {}
        self._lock = threading.Lock()
        self._served_by_given: str | None = None
        """The thread that uses the user's own executor instances: the first that ran."""
        self.default_thread_id: str | None = None
        """The default thread: that of runs without a thread_id."""

    def find(self, thread_id: str) -> LiveThread | None:
        return self._threads.get(thread_id)

    def runs(self) -> list[tuple[LiveThread, Ownership]]:
        """The runs that own a thread or wait for it, each with its thread."""
        threads = list(self._threads.values())
        runs = [(thread, run) for thread in threads for run in (thread.owner, *thread.queue) if run is not None]
        return [(thread, run) for thread, run in runs if run.drives and not run.is_dead]

    def default_or_new_id(self) -> str:
        if self.default_thread_id is None:
            self.default_thread_id = new_thread_id()
        return self.default_thread_id

    def mark_default(self, thread: LiveThread, *, becomes: bool) -> None:
        """Note in the thread whether it is the default thread, which it may become."""
        if becomes:
            self.default_thread_id = thread.thread_id
        thread.is_default = self.default_thread_id == thread.thread_id

    def get(self, thread_id: str) -> LiveThread:
        thread = self._threads.get(thread_id)
        if thread is None:
            if self._served_by_given is None:
                self._served_by_given = thread_id
            is_own = thread_id in (self._served_by_given, self.default_thread_id)
            thread = LiveThread(thread_id, Instances(self.compiled.graph, is_own=is_own))
            self._threads[thread_id] = thread
        return thread

    async def claim(self, thread_id: str, ownership: Ownership, on_busy: str) -> LiveThread:
        """Make the run the thread's owner, first come first served.

        Raises ThreadBusy if the thread has an owner and `on_busy` is "reject". Interrupting runs precede waiting ones.
        """
        thread = self.get(thread_id)
        if self._take_if_free(thread, ownership):
            return thread
        owner: Ownership = thread.owner
        ownership.interrupts = on_busy == "interrupt"
        if ownership.interrupts:
            owner.interrupt()
        elif on_busy == "reject" and (thread.queue or not owner.is_ending):
            raise ThreadBusy(thread_id, owner.run_id)
        if not owner.is_here:  # in another event loop, maybe in another OS thread: it cannot wake this one
            while not self._take_if_free(thread, ownership):  # noqa: ASYNC110  # an Event belongs to one loop
                await asyncio.sleep(BUSY_POLL_SECONDS)
            return thread
        ownership.turn = asyncio.get_running_loop().create_future()
        earlier = [run for run in thread.queue if run.interrupts or not ownership.interrupts]
        thread.queue.insert(len(earlier), ownership)
        try:
            await ownership.turn
        except asyncio.CancelledError:
            ownership.released.set()
            if thread.owner is ownership:
                self._hand_over(thread)
            elif ownership in thread.queue:
                thread.queue.remove(ownership)
            self._forget(thread)
            raise
        return thread

    def _take_if_free(self, thread: LiveThread, ownership: Ownership) -> bool:
        with self._lock:  # event loops of several OS threads may share a workflow object
            if thread.owner is not None and thread.owner.is_dead:
                thread.owner, thread.is_abandoned = None, True
            if thread.owner is not None:
                return False
            thread.owner = ownership
            return True

    def _hand_over(self, thread: LiveThread) -> None:
        """Make the next run in the queue the owner, so that no newcomer can overtake it."""
        thread.owner = None
        while thread.queue and thread.owner is None:
            following: Ownership = thread.queue.pop(0)
            if following.turn is not None and not following.turn.done():  # else it was cancelled meanwhile
                thread.owner = following
                following.turn.set_result(None)
        if thread.owner is not None and any(run.interrupts for run in thread.queue):
            thread.owner.interrupt()

    def release(self, thread: LiveThread, ownership: Ownership, *, forget: bool) -> None:
        """Release the thread. With `forget`, it leaves memory unless it is the default thread or the first."""
        ownership.released.set()
        if thread.owner is not ownership:  # another run took it after the event loop was closed
            return
        thread.is_kept_elsewhere = forget
        self._hand_over(thread)
        self._forget(thread)

    def _forget(self, thread: LiveThread) -> None:
        stays = thread.thread_id in (self.default_thread_id, self._served_by_given) or thread.inbox
        if thread.is_kept_elsewhere and not stays and thread.owner is None:
            self._threads.pop(thread.thread_id, None)

    def drop_new(self, thread: LiveThread) -> None:
        """Forget a thread that was claimed but never received input, so that a rejected run leaves no trace."""
        is_new = thread.number == 0 and thread.position.next_delivery_id == 1 and not thread.inbox
        if is_new and thread.owner is None and thread.thread_id != self.default_thread_id:
            self._threads.pop(thread.thread_id, None)
            if self._served_by_given == thread.thread_id:
                self._served_by_given = None
                thread.executors.give_back()
