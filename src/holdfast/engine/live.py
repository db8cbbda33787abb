"""The threads that a workflow object holds in this process, each owned by one run at a time."""

from __future__ import annotations

import asyncio

from holdfast.engine.thread import Instances, Thread
from holdfast.errors import ThreadBusy
from holdfast.graph.graph import Graph
from holdfast.names import new_thread_id


class Ownership:
    """A run's hold on its thread, seen from outside: can it be waited for, can it be ended?"""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.task: asyncio.Task[object] | None = asyncio.current_task()
        self.is_interrupted = False
        """Asked to end by another run or by a handle, rather than by its caller's own cancellation."""
        self._ended: asyncio.Future[None] | None = None

    @property
    def is_ending(self) -> bool:
        return self.task is None or self.task.cancelling() > 0 or self.task.done()

    def interrupt(self) -> None:
        if not self.is_ending and self.task is not None:
            self.is_interrupted = True
            self.task.cancel()

    def take_interruption(self) -> bool:
        """Whether it was ended through `interrupt`; its task then goes on as if it had not been cancelled."""
        if self.is_interrupted and self.task is not None:
            self.task.uncancel()
            self.is_interrupted = False
            return True
        return False

    def ended(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def wait(self) -> None:
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._ended)


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

    def _get(self, thread_id: str) -> Thread:
        thread = self._threads.get(thread_id)
        if thread is None:
            if self._served_by_given is None:
                self._served_by_given = thread_id
            is_first = self._served_by_given == thread_id
            given = self._graph.executors if is_first else None
            thread = self._threads[thread_id] = Thread(thread_id, Instances(self._graph.nodes, given))
        return thread

    async def claim(self, thread_id: str, ownership: Ownership, on_busy: str) -> Thread:
        """Make the run the thread's owner. Raises ThreadBusy if it has one and the caller does not wait for it."""
        thread = self._get(thread_id)
        thread.waiting += 1
        try:
            while thread.run is not None:
                owner: Ownership = thread.run
                if on_busy == "interrupt":
                    owner.interrupt()
                elif on_busy == "reject" and not owner.is_ending:
                    raise ThreadBusy(thread_id, owner.run_id)
                await owner.wait()
            thread.run = ownership
        finally:
            thread.waiting -= 1
        return thread

    def release(self, thread: Thread, *, forget: bool) -> None:
        """Give the thread up. With a storage it need not stay in memory, unless it is the one that always does."""
        owner: Ownership = thread.run
        thread.run = None
        stays = thread.thread_id in (self.own_id, self._served_by_given)
        if forget and not stays and not thread.waiting:
            self._threads.pop(thread.thread_id, None)
        owner.ended()

    def drop_new(self, thread: Thread) -> None:
        """Forget a thread that was claimed but never got anything, so that a refused run leaves no trace."""
        is_new = thread.number == 0 and thread.position.next_delivery_id == 1
        if is_new and not thread.waiting and thread.run is None and thread.thread_id != self.own_id:
            self._threads.pop(thread.thread_id, None)
            if self._served_by_given == thread.thread_id:
                self._served_by_given = None
