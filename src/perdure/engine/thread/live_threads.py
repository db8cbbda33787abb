"""The threads that a workflow object holds in this process, each owned by one run at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from perdure.engine.thread.position import Position
from perdure.errors import ThreadBusy
from perdure.events import WorkflowRunState
from perdure.graph.executor import Executor
from perdure.graph.graph import Graph, Node
from perdure.names import new_thread_id
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.engine.thread.effects import Effects


class Instances(dict[str, Executor]):
    """Executor instances of one thread, made when they are first needed."""

    def __init__(self, nodes: Mapping[str, Node], given: Mapping[str, Executor] | None = None) -> None:
        super().__init__(given or {})
        self._nodes = nodes

    def __missing__(self, executor_id: str) -> Executor:
        made = self[executor_id] = self._nodes[executor_id].make()
        return made


NOT_IN_STEP = -1
"""Number of a live thread that stands elsewhere than its store says: the next run reads it anew."""


class LiveThread:
    """One durable line of execution, as this process holds it."""

    __slots__ = (
        "children",
        "executors",
        "head_id",
        "inbox",
        "is_abandoned",
        "is_ahead",
        "is_dirty",
        "is_kept_elsewhere",
        "journal",
        "number",
        "owner",
        "position",
        "queue",
        "records",
        "status",
        "storage",
        "thread_id",
        "waker",
    )

    def __init__(self, thread_id: str, executors: Instances) -> None:
        self.thread_id = thread_id
        self.executors = executors
        self.position = Position()
        self.number = 0
        """The commit it stands at; a store that says otherwise was moved by somebody else."""
        self.head_id: str | None = None
        """The checkpoint it stands at: the next one's parent."""
        self.is_ahead = False
        """Whether it was moved without a storage since its head was saved."""
        self.journal: dict[int, Effects] = {}
        """Outcomes of deliveries that ended in a superstep that did not; not run again."""
        self.records: dict[int, list[Record]] = {}
        """All that a delivery has recorded, for those that recorded something since the head."""
        self.children: dict[int, Instances] = {}
        """Executors of sub-workflows, by the delivery that started them."""
        self.waker: asyncio.Future[None] | None = None
        """Resolved when something comes into the inbox while the run waits for a sleeper."""
        self.owner: Any = None
        """The Ownership of the run that moves it now."""
        self.is_abandoned = False
        """Whether its last owner died without giving it up, here and in its store."""
        self.is_kept_elsewhere = False
        """Whether a storage has it, so that it need not stay in memory."""
        self.storage: Any = None
        """Where its number and head belong to."""
        self.status = WorkflowRunState.IDLE
        """How its last run ended, or what the present one is doing."""
        self.queue: list[Any] = []
        """Runs that wait for their turn, first come first served."""
        self.inbox: dict[str, Any] = {}
        """Messages that were sent to the thread and are in no commit yet, by item id, in the order of arrival."""
        self.is_dirty = False
        """Whether executors may stand elsewhere than the position says: undoing a superstep was not completed."""

    def wake(self) -> None:
        """Something came into the inbox."""
        if self.waker is not None and not self.waker.done():
            self.waker.set_result(None)


_RUNS: WeakValueDictionary[str, Ownership] = WeakValueDictionary()
"""The runs of this process, by id: a store that names an owner may mean one that is just ending."""


BUSY_POLL_SECONDS = 0.02
"""How often a waiting run looks whether a thread is free whose owner cannot tell it."""


class Ownership:
    """A run's hold on its thread, seen from outside: it can be asked to end, and waited for."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.is_interrupted = False
        """Asked to end by another run, a handle or a reader who left, rather than by its caller's cancellation."""
        self.is_leaving = False
        """Asked to give its thread up between two supersteps, without an end."""
        self.was_left = False
        """Whether it did."""
        self.drives = False
        """Whether it runs supersteps, rather than changing the thread by hand."""
        self.interrupts = False
        """Whether it came to end the one before it, rather than to wait for it."""
        self._has_entered = False
        self._waits = False
        self._cancels = 0
        self.turn: asyncio.Future[None] | None = None
        """Resolved when the thread is handed to this run, while it waits in the queue."""
        self._task = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        self._released = asyncio.Event()
        _RUNS[run_id] = self

    @property
    def is_dead(self) -> bool:
        """Its event loop was closed under it: it will never give the thread up by itself."""
        return self._task is not None and self._task.get_loop().is_closed()

    @property
    def is_here(self) -> bool:
        """Whether it runs in the same event loop as whoever asks."""
        return self._task is not None and self._task.get_loop() is asyncio.get_running_loop()

    @property
    def is_ending(self) -> bool:
        # Not by `task.cancelling()`: a timeout inside a handler raises that too, and the run goes on.
        return self.is_interrupted or self._task is None or self._task.done()

    def interrupt(self) -> None:
        """End it now, or, where its input is not committed yet, as soon as that is done: what was sent is not lost."""
        if not self.is_ending:
            self.is_interrupted = True
            if self._has_entered or self._waits:
                self._cancel()

    def leave(self) -> None:
        """Ask it to stop between two supersteps. One that has nothing in hand yet, since its thread is somebody else's,
        ends at once."""
        self.is_leaving = True
        if self.is_waiting:
            self.interrupt()

    def leave_now(self) -> None:
        """Stop it inside its superstep: only what that has recorded stays."""
        if not self._cancels:
            self._cancel()

    def call_soon(self, act: Callable[[], object]) -> None:
        """In the event loop that it runs in."""
        if self._task is not None and not self.is_here:
            self._task.get_loop().call_soon_threadsafe(act)
        else:
            act()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits until its store gives it the thread."""
        return self._waits

    @property
    def has_entered(self) -> bool:
        """Whether it moves the thread: its input is committed."""
        return self._has_entered

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancels += 1
            self.call_soon(self._task.cancel)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While it waits for its thread it has nothing to bring to an end: an interruption ends it at once."""
        self._waits = True
        try:
            if self.is_interrupted:  # from another OS thread, just now
                raise asyncio.CancelledError
            yield
        finally:
            self._waits = False

    def entered(self) -> None:
        """Its input is committed; an interruption that waited for that is heeded now."""
        self._has_entered = True
        if self.is_interrupted:
            raise asyncio.CancelledError

    @property
    def is_cancelled(self) -> bool:
        """Whether its caller cancelled it, beside any interruption."""
        return self._task is not None and self._task.cancelling() - self._cancels > self._cancels_before

    def released(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        """Until it has given up its thread, in its store as well."""
        if self.is_here:
            await self._released.wait()
        while not (self._released.is_set() or self.is_dead):  # noqa: ASYNC110  # an Event belongs to one loop
            await asyncio.sleep(BUSY_POLL_SECONDS)

    def take_interruption(self) -> bool:
        """Whether it was ended through `interrupt`; its task then goes on as if it had not been cancelled."""
        for _ in range(self._cancels):
            if self._task is not None:
                self._task.uncancel()
        self._cancels = 0
        return self.is_interrupted


def find_ending_run(run_id: str | None) -> Ownership | None:
    """The run of this process with this id, if it was asked to end and has not ended yet."""
    found = _RUNS.get(run_id or "")
    return found if found is not None and found.is_interrupted else None


def find_local_run(run_id: str | None) -> Ownership | None:
    """Whichever workflow object it is of."""
    return _RUNS.get(run_id or "")


class LiveThreads:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._threads: dict[str, LiveThread] = {}
        self._lock = threading.Lock()
        self._served_by_given: str | None = None
        """The thread that the given executor instances serve: the first that ran."""
        self.default_thread_id: str | None = None
        """The thread of runs that name none."""

    def find(self, thread_id: str) -> LiveThread | None:
        return self._threads.get(thread_id)

    def runs(self) -> list[tuple[LiveThread, Ownership]]:
        """Those that move a thread, and those that wait for their turn, with the thread they are for."""
        threads = list(self._threads.values())
        found = [(thread, one) for thread in threads for one in (thread.owner, *thread.queue) if one is not None]
        return [(thread, one) for thread, one in found if one.drives and not one.is_dead]

    def default_or_new_id(self) -> str:
        if self.default_thread_id is None:
            self.default_thread_id = new_thread_id()
        return self.default_thread_id

    def get(self, thread_id: str) -> LiveThread:
        thread = self._threads.get(thread_id)
        if thread is None:
            if self._served_by_given is None:
                self._served_by_given = thread_id
            is_first = self._served_by_given == thread_id
            given = self._graph.executors if is_first else None
            thread = self._threads[thread_id] = LiveThread(thread_id, Instances(self._graph.nodes, given))
        return thread

    async def claim(self, thread_id: str, ownership: Ownership, on_busy: str) -> LiveThread:
        """Make the run the thread's owner, first come first served.

        Raises ThreadBusy if it has an owner and the caller does not wait for it. One that interrupts goes before those
        that wait.
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
        if not owner.is_here:
            return await self._claim_across_loops(thread, ownership)
        ownership.turn = asyncio.get_running_loop().create_future()
        before_me = [one for one in thread.queue if one.interrupts or not ownership.interrupts]
        thread.queue.insert(len(before_me), ownership)
        try:
            await ownership.turn
        except asyncio.CancelledError:
            ownership.released()
            if thread.owner is ownership:
                self._hand_over(thread)
            elif ownership in thread.queue:
                thread.queue.remove(ownership)
            self._forget(thread)
            raise
        return thread

    async def _claim_across_loops(self, thread: LiveThread, ownership: Ownership) -> LiveThread:
        """The owner runs in another event loop, maybe in another OS thread, so it cannot wake us: look now and then."""
        while not self._take_if_free(thread, ownership):  # noqa: ASYNC110  # an Event belongs to one loop
            await asyncio.sleep(BUSY_POLL_SECONDS)
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
        """Directly to the next in the queue: nobody who comes meanwhile can overtake it."""
        thread.owner = None
        while thread.queue and thread.owner is None:
            following: Ownership = thread.queue.pop(0)
            if following.turn is not None and not following.turn.done():  # not one that was cancelled meanwhile
                thread.owner = following
                following.turn.set_result(None)
        if thread.owner is not None and any(one.interrupts for one in thread.queue):
            thread.owner.interrupt()

    def release(self, thread: LiveThread, ownership: Ownership, *, forget: bool) -> None:
        """Give the thread up. With a storage it need not stay in memory, unless it is the one that always does."""
        ownership.released()
        if thread.owner is not ownership:  # taken from a run whose event loop was closed
            return
        thread.is_kept_elsewhere = forget
        self._hand_over(thread)
        self._forget(thread)

    def _forget(self, thread: LiveThread) -> None:
        stays = thread.thread_id in (self.default_thread_id, self._served_by_given) or thread.inbox
        if thread.is_kept_elsewhere and not stays and thread.owner is None:
            self._threads.pop(thread.thread_id, None)

    def drop_new(self, thread: LiveThread) -> None:
        """Forget a thread that was claimed but never got anything, so that a refused run leaves no trace."""
        is_new = thread.number == 0 and thread.position.next_delivery_id == 1 and not thread.inbox
        if is_new and thread.owner is None and thread.thread_id != self.default_thread_id:
            self._threads.pop(thread.thread_id, None)
            if self._served_by_given == thread.thread_id:
                self._served_by_given = None
