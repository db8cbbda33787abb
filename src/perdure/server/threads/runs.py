"""Runs of this process: each is a task that keeps running when its client disconnects.

Clients start runs with an input, with answers, or to resume.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Union, Unpack

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.engine.run.request import RunOptions, accepts
from perdure.engine.run.run import Run, WorkflowRunResult
from perdure.errors import PerdureError, RunInterrupted, ThreadBusy, ThreadConflict, ThreadNotIdle, type_name
from perdure.events import WorkflowErrorDetails, WorkflowRunState
from perdure.graph.coercion import coerce
from perdure.log import get_logger
from perdure.server.auth.principal import check_id
from perdure.server.config.schema import LimitsConfig
from perdure.server.problems import HttpProblem, problem_of
from perdure.server.threads.threads import Threads
from perdure.server.threads.to_json import error_to_json
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.metrics import Metrics

logger = get_logger("server")

MAX_REMEMBERED = 1000
"""Ended runs whose ids are kept here. The thread logs record all runs."""
MAX_CHECKPOINTS_SEARCHED = 1000
"""Checkpoints of a thread that are searched for a run id that a client chose."""


class ServedRun:
    """One run of this process, from the moment a client requested it."""

    def __init__(self, run_id: str, thread_id: str, workflow: Workflow, run: Run) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        """The id in the storage."""
        self.workflow = workflow
        self.run = run
        self.task: asyncio.Task[None]
        self.is_waiting = True
        """Whether it is queued behind `max_runs` other runs."""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set once its input is stored, or the run has ended."""
        self.result: WorkflowRunResult | None = None
        self.error: BaseException | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.thread_id, self.run_id

    @property
    def has_begun(self) -> bool:
        """Whether its input is stored."""
        return self.run.has_begun

    @property
    def is_refused(self) -> bool:
        """Whether it ended before anything was written."""
        return self.error is not None and not self.has_begun

    @property
    def state(self) -> str:
        if self.result is not None:
            return self.result.get_final_state().value
        if isinstance(self.error, RunInterrupted):
            return "INTERRUPTED"
        if self.error is not None:
            return WorkflowRunState.FAILED.value
        return "QUEUED" if self.is_waiting else WorkflowRunState.IN_PROGRESS.value

    def note_begun(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    async def wait_begun(self, seconds: float) -> bool:
        return await _wait_for(self.begun, seconds)

    async def wait_ended(self, seconds: float | None = None) -> bool:
        """Wait until the run ends; False if that takes longer than `seconds`."""
        return await _wait_for(self.task, seconds)


async def _wait_for(future: asyncio.Future[None], seconds: float | None) -> bool:
    if not future.done():
        await asyncio.wait([future], timeout=seconds)
    return future.done()


class Runs:
    """Starts runs, at most `max_runs` at a time, and tracks those of this process."""

    def __init__(self, storage: StoreCheckpointStorage, limits: LimitsConfig, metrics: Metrics) -> None:
        self._storage = storage
        self._limits = limits
        self._metrics = metrics
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
        stored_id: str,
        message: Any = None,
        *,
        stream: bool = False,
        afterwards: Callable[[WorkflowRunResult], Awaitable[None]] | None = None,
        **options: Unpack[RunOptions],
    ) -> ServedRun:
        """Start a run as a task.

        `stream`: agents stream their updates. `afterwards` is awaited after a successful end, before waiters resume.
        Raises InvalidRun, and HttpProblem if the server is stopping or full, or if the run id exists.
        """
        self.refuse_if_full()
        run_id = options.get("run_id")
        if run_id is not None and self.knows(stored_id, run_id):
            raise HttpProblem(409, "run_exists", f"Run {run_id!r} exists already. Nothing was started.", field="run_id")
        options["thread_id"], options["checkpoint_storage"] = stored_id, self._storage
        run = workflow.new_run(message, **options)
        served = ServedRun(run.run_id, stored_id, workflow, run)
        run.on_begun = served.note_begun
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
                self._metrics.run_started(name)
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
            served.note_begun()
            del self._active[served.key]
            if not served.is_refused:  # a rejected run never existed
                self._ended[served.key] = None
            if len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
            self._metrics.run_ended(name, served.state, time.perf_counter() - began)

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
        tasks = [run.task for run in served]
        for run in served:
            if run.is_waiting or run.result is not None:
                run.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds + 5)


# ---------------------------------------------------------------- runs that clients request


async def start(
    threads: Threads,
    workflow: Workflow,
    stored_id: str,
    message: Any = None,
    *,
    until_ended: bool = False,
    **options: Any,
) -> ServedRun:
    """Start a run and return it once its input is stored, or, `until_ended`, once it has ended or begun and taken
    `request_seconds`. `options`: those of `Runs.start`.

    A message to an interrupted thread is queued until the interrupted work has finished. Raises the error that
    rejected the run.
    """
    runs = threads.service.runs
    if options.get("run_id") is not None:
        await _refuse_known_run(threads, stored_id, options["run_id"])
    if options.get("responses") is not None:
        options["answered_by"] = threads.space.user_id
    served = runs.start(workflow, stored_id, message, **options)
    await _wait(threads, served, until_ended=until_ended)
    if served.is_refused and isinstance(served.error, ThreadNotIdle) and message is not None:
        served = runs.start(workflow, stored_id, message, **{**options, "on_busy": "enqueue"})
        await _wait(threads, served, until_ended=until_ended)
    if served.is_refused and served.error is not None:
        raise served.error
    return served


async def _refuse_known_run(threads: Threads, stored_id: str, run_id: str) -> None:
    """Raises HttpProblem if the run exists: a client repeats a request whose connection broke."""
    infos = await threads.storage.list_checkpoint_infos(thread_id=stored_id, limit=MAX_CHECKPOINTS_SEARCHED)
    if any(info.run_id == run_id for info in infos):
        raise HttpProblem(409, "run_exists", f"Run {run_id!r} exists already. Nothing was started.", field="run_id")


async def _wait(threads: Threads, served: ServedRun, *, until_ended: bool) -> None:
    """Raises HttpProblem if the run is queued for too long."""
    seconds = threads.service.config.limits.request_seconds
    if not (await served.wait_ended(seconds) if until_ended else await served.wait_begun(seconds)):
        if served.begun.done():
            return
        thread_id = threads.space.public_id(served.thread_id)
        raise HttpProblem(
            504,
            "run_waits_longer",
            f"Run {served.run_id} of thread {thread_id!r} has been queued for more than {seconds:g} s. It has not "
            f"begun. GET /v1/threads/{thread_id}/runs/{served.run_id} returns its state.",
            headers={"X-Run-Id": served.run_id},
            thread_id=thread_id,
        )


async def start_run(
    threads: Threads,
    thread_id: str,
    *,
    value: Any,
    has_input: bool,
    responses: Mapping[str, Any] | None,
    workflow_name: str | None = None,
    on_busy: str = "reject",
    run_id: str | None = None,
) -> ServedRun:
    """`POST /v1/threads/{id}/runs`. Raises HttpProblem and the error that rejected the run."""
    stored_id = threads.space.stored_id(thread_id)
    if run_id is not None:
        check_id("run_id", run_id)
    info = await threads.look_up(stored_id)
    if info is None and not has_input:
        raise HttpProblem(404, "thread_not_found", f"No thread {thread_id!r} exists. Begin it with an input.")
    workflow = threads.service.workflow(workflow_name) if info is None else threads.service.workflow_of(info)
    if info is not None and workflow_name is not None and threads.service.workflow(workflow_name) is not workflow:
        raise HttpProblem(
            409,
            "other_workflow",
            f"Thread {thread_id!r} belongs to workflow {info.workflow_name!r}. Nothing was started.",
            field="workflow",
        )
    answers = None if responses is None else await threads.answers_for(thread_id, responses)
    message = input_from_json(workflow, value) if has_input else None
    return await start(threads, workflow, stored_id, message, responses=answers, on_busy=on_busy, run_id=run_id)


def input_from_json(workflow: Workflow, value: Any) -> Any:
    """Convert JSON to the input type of the workflow's start executor. Raises HttpProblem."""
    if accepts(workflow.graph, value) and not isinstance(value, dict | list):
        return value
    types = workflow.input_types
    try:
        return coerce(value, Union[tuple(types)])  # noqa: UP007  # a union of types known only now
    except (ValueError, TypeError) as error:
        expected = " or ".join(type_name(kind) for kind in types)
        raise HttpProblem(
            422, "wrong_input_type", f"{workflow.name!r} takes {expected}: {error} Nothing was started.", field="input"
        ) from error


def failure_of(threads: Threads, served: ServedRun) -> HttpProblem:
    """The problem to answer for a run that began and failed."""
    thread_id = threads.space.public_id(served.thread_id)
    error = served.error
    headers = {"X-Run-Id": served.run_id}
    if isinstance(error, RunInterrupted):
        return HttpProblem(
            503,
            "run_interrupted",
            f"Run {served.run_id} of thread {thread_id!r} was interrupted because the server stops. "
            "It resumes from its last checkpoint.",
            headers={**headers, "Retry-After": "5"},
            thread_id=thread_id,
        )
    problem = problem_of(error) if isinstance(error, PerdureError) else None
    if problem is not None and problem.status in (409, 503) and not isinstance(error, ThreadBusy):
        return problem
    hides, why = threads.service.hides_errors, ""
    if error is not None and not hides:
        details = error_to_json(WorkflowErrorDetails.from_exception(error), hides=hides)
        why = f": {details['error_type']}: {details['message']}"
    return HttpProblem(
        502,
        "run_failed",
        f"Run {served.run_id} of thread {thread_id!r} failed{why}. Committed work is kept. Resume the thread "
        f"with POST /v1/threads/{thread_id}/runs.",
        headers=headers,
        thread_id=thread_id,
    )
