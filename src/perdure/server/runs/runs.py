"""Runs of this process: each is a task that keeps running when its client disconnects."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.engine.run.request import RunOptions
from perdure.engine.run.result import WorkflowRunResult
from perdure.engine.run.run import Run
from perdure.errors import PerdureError, RunInterrupted, ThreadBusy, ThreadConflict, ThreadNotIdle
from perdure.events import WorkflowRunState
from perdure.log import get_logger
from perdure.names import new_run_id
from perdure.server.config.schema import LimitsConfig
from perdure.server.problems import HttpProblem
from perdure.workflows.workflow import Workflow

logger = get_logger("server")

MAX_REMEMBERED = 1000
"""Ended runs whose ids are kept here. The thread logs record all runs."""


class RunObserver(Protocol):
    """Counts runs."""

    def run_started(self, workflow: str) -> None: ...

    def run_ended(self, workflow: str, outcome: str, seconds: float) -> None: ...


class ServedRun:
    """One run of this process, from the moment a client requested it."""

    def __init__(self, run_id: str, thread_id: str, workflow: Workflow, run: Run) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        """The id in the storage."""
        self.workflow = workflow
        self.run: Run | None = run
        self._has_begun = False
        self._begins_thread = False
        self.task: asyncio.Task[None] | None = None
        self.is_waiting = True
        """Whether it is queued behind `max_runs` other runs."""
        self.begun = asyncio.Event()
        """Set once its input is stored, or the run has ended."""
        self.result: WorkflowRunResult | None = None
        self.error: BaseException | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.thread_id, self.run_id

    @property
    def has_begun(self) -> bool:
        """Whether its input is stored."""
        return self._has_begun if self.run is None else self.run.has_begun

    def release(self) -> None:
        """Drop the engine's run object after the end; the result stays."""
        self._has_begun = self.has_begun
        self._begins_thread = self.run is not None and self.run.is_first
        self.run = None

    @property
    def is_refused(self) -> bool:
        """Whether it ended before anything was written."""
        return self.error is not None and not self.has_begun

    @property
    def is_new_thread(self) -> bool:
        return self._begins_thread if self.run is None else self.run.is_first

    @property
    def state(self) -> str:
        if self.result is not None:
            return self.result.get_final_state().value
        if isinstance(self.error, RunInterrupted):
            return "INTERRUPTED"
        if self.error is not None:
            return WorkflowRunState.FAILED.value
        return "QUEUED" if self.is_waiting else WorkflowRunState.IN_PROGRESS.value

    async def wait_ended(self, seconds: float | None = None) -> bool:
        """Wait until the run ends; False if that takes longer than `seconds`."""
        if self.task is None or self.task.done():
            return True
        if seconds is None:
            await asyncio.shield(self.task)
            return True
        done, _ = await asyncio.wait([self.task], timeout=seconds)
        return bool(done)


class Runs:
    """Starts runs, at most `max_runs` at a time, and tracks those of this process."""

    def __init__(
        self, storage: StoreCheckpointStorage, limits: LimitsConfig, observer: RunObserver | None = None
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._observer = observer
        self._slots = asyncio.Semaphore(limits.max_runs)
        self._active: dict[tuple[str, str], ServedRun] = {}
        self._ended: OrderedDict[tuple[str, str], None] = OrderedDict()
        """By thread and run: clients may choose run ids, and two users may choose the same."""
        self._waiting = 0
        self.is_stopping = False

    @property
    def active(self) -> int:
        return len(self._active) - self._waiting

    @property
    def waiting_count(self) -> int:
        return self._waiting

    def find(self, thread_id: str, run_id: str) -> ServedRun | None:
        """A run that has not ended. The thread logs record the results of ended runs."""
        return self._active.get((thread_id, run_id))

    def knows(self, thread_id: str, run_id: str) -> bool:
        """Whether the run is active or ended recently."""
        return (thread_id, run_id) in self._active or (thread_id, run_id) in self._ended

    @property
    def under_way(self) -> list[ServedRun]:
        """Runs that have begun and not ended."""
        return [run for run in self._active.values() if run.has_begun]

    def find_by_thread(self, thread_id: str) -> ServedRun | None:
        """The active run of the thread."""
        return next((run for run in self._active.values() if run.thread_id == thread_id), None)

    def start(
        self,
        workflow: Workflow,
        thread_id: str,
        message: Any = None,
        *,
        responses: Mapping[str, Any] | None = None,
        answered_by: str | None = None,
        on_busy: str = "reject",
        stream: bool = False,
        run_id: str | None = None,
        max_iterations: int | None = None,
        change_state: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        afterwards: Callable[[WorkflowRunResult], Awaitable[None]] | None = None,
    ) -> ServedRun:
        """Start a run as a task.

        `stream`: agents stream their updates. `afterwards` is awaited after a successful end, before waiters resume.
        Raises InvalidRun, and HttpProblem if the server is stopping or full, or if the run id exists.
        """
        self.refuse_if_full()
        if run_id is not None and self.knows(thread_id, run_id):
            raise HttpProblem(409, "run_exists", f"Run {run_id!r} exists already. Nothing was started.", field="run_id")
        options: RunOptions = {
            "thread_id": thread_id,
            "run_id": run_id or new_run_id(),
            "max_iterations": max_iterations,
            "change_state": change_state,
            "checkpoint_storage": self._storage,
            "on_busy": on_busy,  # type: ignore[typeddict-item]  # checked by the engine
        }
        if responses is not None:
            options["responses"] = responses
            options["answered_by"] = answered_by
        run = workflow.new_run(message, **options)
        served = ServedRun(run.run_id, thread_id, workflow, run)
        run.on_begun = served.begun.set
        self._active[served.key] = served
        served.task = asyncio.get_running_loop().create_task(
            self._execute(served, run, stream, afterwards), name=f"run {served.run_id}"
        )
        return served

    def refuse_if_full(self) -> None:
        """Raises HttpProblem if the server is stopping or full."""
        if self.is_stopping:
            raise HttpProblem(
                503, "stopping", "The server is stopping. Nothing was started.", headers={"Retry-After": "5"}
            )
        if self._slots.locked() and self._waiting >= self._limits.max_waiting:
            raise HttpProblem(
                429,
                "too_many_runs",
                f"{self.active} runs are active and {self._waiting} wait. Nothing was started; try again.",
                headers={"Retry-After": "1"},
            )

    async def _execute(
        self,
        served: ServedRun,
        run: Run,
        stream: bool,
        afterwards: Callable[[WorkflowRunResult], Awaitable[None]] | None,
    ) -> None:
        name, began = served.workflow.name, time.perf_counter()
        try:
            self._waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self._waiting -= 1
            try:
                served.is_waiting = False
                if self._observer is not None:
                    self._observer.run_started(name)
                result = await run.execute(is_streaming=stream)
            finally:
                self._slots.release()
            served.result = result
            if afterwards is not None:
                await afterwards(result)
        except asyncio.CancelledError as error:
            if served.result is not None:  # only `afterwards` was cancelled
                return
            served.error = RunInterrupted(served.run_id, served.thread_id)
            served.error.__cause__ = error
        except Exception as error:  # noqa: BLE001  # stored for the waiters, and logged
            served.error = error
            self._log_failure(served, error)
        finally:
            served.release()
            served.begun.set()
            del self._active[served.key]
            if not served.is_refused:  # a rejected run never existed
                self._ended[served.key] = None
            if len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
            if self._observer is not None:
                self._observer.run_ended(name, served.state, time.perf_counter() - began)

    def _log_failure(self, served: ServedRun, error: Exception) -> None:
        if served.is_refused or isinstance(error, RunInterrupted | ThreadBusy | ThreadNotIdle | ThreadConflict):
            logger.info("run %s of thread %s: %s", served.run_id, served.thread_id, error)
        elif isinstance(error, PerdureError):
            logger.warning("run %s of thread %s failed: %s", served.run_id, served.thread_id, error)
        else:
            logger.warning("run %s of thread %s failed", served.run_id, served.thread_id, exc_info=error)

    async def leave(self, seconds: float) -> None:
        """Accept no more runs, let supersteps finish, and leave the rest for other processes to resume."""
        self.is_stopping = True
        served = list(self._active.values())
        workflows = {id(run.workflow): run.workflow for run in served}
        await asyncio.gather(*(workflow.leave(seconds) for workflow in workflows.values()), return_exceptions=True)
        tasks = [run.task for run in served if run.task is not None]
        for run in served:
            if (run.is_waiting or run.result is not None) and run.task is not None:
                run.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds + 5)
