"""The threads that a workflow object holds in this process, each owned by one run at a time."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from holdfast.engine.thread import Instances, Thread
from holdfast.errors import ThreadBusy
from holdfast.graph.graph import Graph
from holdfast.names import new_thread_id

_RUNS: WeakValueDictionary[str, Ownership] = WeakValueDictionary()
"""The runs of this process, by id: a store that names an owner may mean one that is just ending."""


class Ownership:
    """A run's hold on its thread, seen from outside: it can be asked to end, and waited for."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.is_interrupted = False
        """Asked to end by another run, a handle or a reader who left, rather than by its caller's cancellation."""
        self.turn: asyncio.Future[None] | None = None
        """Resolved when the thread is handed to this run, while it waits in the queue."""
        self._task = asyncio.current_task()
        self._released = asyncio.Event()
        _RUNS[run_id] = self

    @property
    def is_ending(self) -> bool:
        # Not by `task.cancelling()`: a timeout inside a handler raises that too, and the run goes on.
        return self.is_interrupted or self._task is None or self._task.done()

    def interrupt(self) -> None:
        if not self.is_ending and self._task is not None:
            self.is_interrupted = True
            self._task.cancel()

    def released(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        """Until it has given up its thread, in its store as well."""
        await self._released.wait()

    def take_interruption(self) -> bool:
        """Whether it was ended through `interrupt`; its task then goes on as if it had not been cancelled."""
        if self.is_interrupted and self._task is not None:
            self._task.uncancel()
        return self.is_interrupted


def ending_run(run_id: str | None) -> Ownership | None:
    """The run of this process with this id, if it was asked to end and has not ended yet."""
    found = _RUNS.get(run_id or "")
    return found if found is not None and found.is_interrupted else None


class LiveThreads:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._threads: dict[str, Thread] = {}
        self._served_by_given: str | None = None
        """The thread that the given executor instances serve: the first that ran."""
        self.own_id: str | None = None
        """The thread of runs that name none."""

    def find(self, thread_id: str) -> Thread | None:
        return self._threads.get(thread_id)

    def own_or_new_id(self) -> str:
        if self.own_id is None:
            self.own_id = new_thread_id()
        return self.own_id

    def get(self, thread_id: str) -> Thread:
        thread = self._threads.get(thread_id)
        if thread is None:
            if self._served_by_given is None:
                self._served_by_given = thread_id
            is_first = self._served_by_given == thread_id
            given = self._graph.executors if is_first else None
            thread = self._threads[thread_id] = Thread(thread_id, Instances(self._graph.nodes, given))
        return thread

    # ------------------------------------------------------------ one owner at a time

    async def claim(self, thread_id: str, ownership: Ownership, on_busy: str) -> Thread:
        """Make the run the thread's owner, first come first served.

        Raises ThreadBusy if it has an owner and the caller does not wait for it. One that interrupts goes before those
        that wait.
        """
        thread = self.get(thread_id)
        owner: Ownership | None = thread.run
        if owner is None:
            thread.run = ownership
            return thread
        if on_busy == "interrupt":
            owner.interrupt()
        elif on_busy == "reject" and (thread.queue or not owner.is_ending):
            raise ThreadBusy(thread_id, owner.run_id)
        ownership.turn = asyncio.get_running_loop().create_future()
        thread.queue.insert(0 if on_busy == "interrupt" else len(thread.queue), ownership)
        try:
            await ownership.turn
        except asyncio.CancelledError:
            ownership.released()
            if thread.run is ownership:
                self._hand_over(thread)
            else:
                thread.queue.remove(ownership)
            raise
        return thread

    def _hand_over(self, thread: Thread) -> None:
        """Directly to the next in the queue: nobody who comes meanwhile can overtake it."""
        thread.run = thread.queue.pop(0) if thread.queue else None
        if thread.run is not None:
            thread.run.turn.set_result(None)

    def release(self, thread: Thread, *, forget: bool) -> None:
        """Give the thread up. With a storage it need not stay in memory, unless it is the one that always does."""
        thread.run.released()
        self._hand_over(thread)
        stays = thread.thread_id in (self.own_id, self._served_by_given) or thread.inbox
        if forget and not stays and thread.run is None:
            self._threads.pop(thread.thread_id, None)

    def drop_new(self, thread: Thread) -> None:
        """Forget a thread that was claimed but never got anything, so that a refused run leaves no trace."""
        is_new = thread.number == 0 and thread.position.next_delivery_id == 1 and not thread.inbox
        if is_new and thread.run is None and thread.thread_id != self.own_id:
            self._threads.pop(thread.thread_id, None)
            if self._served_by_given == thread.thread_id:
                self._served_by_given = None
