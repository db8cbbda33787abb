"""Runs of this process: each is a task that keeps running when its client disconnects.

Clients start runs with an input, with answers, or to resume.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Union, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.engine.run.request import RunOptions, accepts
from perdure.engine.run.run import Run, WorkflowRunResult
from perdure.errors import PerdureError, RunInterrupted, ThreadBusy, ThreadConflict, ThreadNotIdle, type_name
from perdure.events import WorkflowErrorDetails, WorkflowRunState
from perdure.graph.coercion import coerce
from perdure.log import get_logger
from perdure.server.auth.principal import check_id
from perdure.server.config.schema import LimitsConfig
from perdure.server.problems import HttpProblem, problem_of, unprocessable
from perdure.server.threads.as_json import error_to_json
from perdure.server.threads.threads import Threads
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.metrics import Metrics

logger = get_logger("server")

MAX_REMEMBERED = 1000
"""Ended runs whose ids are kept here. The thread logs record all runs."""
MAX_CHECKPOINTS_SEARCHED = 1000
"""Checkpoints of a thread that are searched for a run id that a client chose."""


@dataclass(eq=False)
class ServedRun:
    """One run of this process, from the moment a client requested it."""

    run_id: str
    thread_id: str
    """The id in the storage."""
    workflow: Workflow
    run: Run
    begun: asyncio.Future[None]
    """Set once its input is stored, or the run has ended."""
    task: asyncio.Task[None] = field(init=False)
    is_waiting: bool = True
    """Whether it is queued behind `max_runs` other runs."""
    result: WorkflowRunResult | None = None
    error: BaseException | None = None

    @property
    def is_refused(self) -> bool:
        """Whether it ended before anything was written."""
        return self.error is not None and not self.run.has_begun

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
        self._streams = 0
        self.is_stopping = False

    @property
    def waiting_count(self) -> int:
        return sum(run.is_waiting for run in self._active.values())

    @property
    def active(self) -> int:
        return len(self._active) - self.waiting_count

    @property
    def active_threads(self) -> set[str]:
        return {thread_id for thread_id, _ in self._active}

    def find(self, thread_id: str, run_id: str) -> ServedRun | None:
        """A run that has not ended. The thread logs record the results of ended runs."""
        return self._active.get((thread_id, run_id))

    @property
    def under_way(self) -> list[ServedRun]:
        """Runs that have begun and not ended."""
        return [run for run in self._active.values() if run.run.has_begun]

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
        self._refuse_if_stopping()
        if self._slots.locked() and self.waiting_count >= self._limits.max_waiting:
            message = f"{self.active} runs are active and {self.waiting_count} wait. Nothing was started; try again."
            raise HttpProblem(429, "too_many_runs", message, headers={"Retry-After": "1"})
        key = stored_id, str(options.get("run_id"))
        if key in self._active or key in self._ended:
            raise run_exists(key[1])
        options["thread_id"], options["checkpoint_storage"] = stored_id, self._storage
        run = workflow.new_run(message, **options)
        loop = asyncio.get_running_loop()
        served = ServedRun(run.run_id, stored_id, workflow, run, begun=loop.create_future())
        run.on_begun = served.note_begun
        self._active[stored_id, run.run_id] = served
        served.task = loop.create_task(self._execute(served, stream, afterwards), name=f"run {served.run_id}")
        return served

    def _refuse_if_stopping(self) -> None:
        if self.is_stopping:
            message = "The server is stopping. Nothing was started."
            raise HttpProblem(503, "stopping", message, headers={"Retry-After": "5"})

    @contextmanager
    def stream_slot(self) -> Iterator[None]:
        """Count an open stream or socket. Raises HttpProblem if the server is stopping, or has too many."""
        self._refuse_if_stopping()
        if self._streams >= self._limits.max_streams:
            message = f"{self._streams} streams are open. Try again."
            raise HttpProblem(429, "too_many_streams", message, headers={"Retry-After": "5"})
        self._streams += 1
        self._metrics.stream_opened()
        try:
            yield
        finally:
            self._streams -= 1
            self._metrics.stream_closed()

    async def _execute(
        self, served: ServedRun, stream: bool, afterwards: Callable[[WorkflowRunResult], Awaitable[None]] | None
    ) -> None:
        name, began = served.workflow.name, time.perf_counter()
        try:
            async with self._slots:
                served.is_waiting = False
                self._metrics.run_started(name)
                result = await served.run.execute(is_streaming=stream)
            served.result = result
            if afterwards is not None:
                await afterwards(result)
        except asyncio.CancelledError as error:
            if served.result is not None:  # only `afterwards` was cancelled
                return
            served.error = RunInterrupted(served.run_id, served.thread_id)
            served.error.__cause__ = error
        except Exception as error:  # stored for the waiters, and logged
            served.error = error
            where = f"run {served.run_id} of thread {served.thread_id}"
            if served.is_refused or isinstance(error, RunInterrupted | ThreadBusy | ThreadNotIdle | ThreadConflict):
                logger.info("%s: %s", where, error)
            elif isinstance(error, PerdureError):
                logger.warning("%s failed: %s", where, error)
            else:
                logger.warning("%s failed", where, exc_info=error)
        finally:
            served.note_begun()
            key = served.thread_id, served.run_id
            del self._active[key]
            if not served.is_refused:  # a rejected run never existed
                self._ended[key] = None
            if len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
            self._metrics.run_ended(name, served.state, time.perf_counter() - began)

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
    if (run_id := options.get("run_id")) is not None:
        infos = await threads.storage.list_checkpoint_infos(thread_id=stored_id, limit=MAX_CHECKPOINTS_SEARCHED)
        if any(info.run_id == run_id for info in infos):
            raise run_exists(run_id)
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


def run_exists(run_id: str) -> HttpProblem:
    """A client repeats a request whose connection broke."""
    return HttpProblem(409, "run_exists", f"Run {run_id!r} exists already. Nothing was started.", field="run_id")


async def _wait(threads: Threads, served: ServedRun, *, until_ended: bool) -> None:
    """Raises HttpProblem if the run is queued for too long."""
    seconds = threads.service.config.limits.request_seconds
    if not await _wait_for(served.task if until_ended else served.begun, seconds) and not served.begun.done():
        thread_id = threads.space.public_id(served.thread_id)
        state = f"It has not begun. GET /v1/threads/{thread_id}/runs/{served.run_id} returns its state."
        raise problem_of_run(504, "run_waits_longer", served, thread_id, f"has been queued for {seconds:g} s. {state}")


class RunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new input, or answers to requests. With neither, an interrupted thread resumes."""

    input: Any | UnsetType = UNSET
    responses: dict[str, Any] | None = None
    workflow: str | None = None
    """Of a new thread; the default workflow if omitted."""
    on_busy: Literal["reject", "enqueue"] = "reject"
    run_id: str | None = None
    """Chosen by the client, to find out whether a broken request started the run."""


async def start_run(threads: Threads, thread_id: str, body: RunBody) -> ServedRun:
    """`POST /v1/threads/{id}/runs`. Raises HttpProblem and the error that rejected the run."""
    has_input, service = body.input is not UNSET, threads.service
    if has_input and body.responses is not None:
        raise unprocessable("input", "Send input or responses, not both. Nothing was started.")
    stored_id = threads.space.stored_id(thread_id)
    if body.run_id is not None:
        check_id("run_id", body.run_id)
    info = await threads.look_up(stored_id)
    if info is None and not has_input:
        raise HttpProblem(404, "thread_not_found", f"No thread {thread_id!r} exists. Begin it with an input.")
    workflow = service.workflow(body.workflow) if info is None else service.workflow_of(info)
    if info is not None and body.workflow is not None and service.workflow(body.workflow) is not workflow:
        sentence = f"Thread {thread_id!r} belongs to workflow {info.workflow_name!r}. Nothing was started."
        raise HttpProblem(409, "other_workflow", sentence, field="workflow")
    answers = None if body.responses is None else await threads.answers_for(thread_id, body.responses)
    message = input_from_json(workflow, body.input) if has_input else None
    options: dict[str, Any] = {"responses": answers, "on_busy": body.on_busy, "run_id": body.run_id}
    return await start(threads, workflow, stored_id, message, **options)


def input_from_json(workflow: Workflow, value: Any) -> Any:
    """Convert JSON to the input type of the workflow's start executor. Raises HttpProblem."""
    if accepts(workflow.graph, value) and not isinstance(value, dict | list):
        return value
    types = workflow.input_types
    try:
        return coerce(value, Union[tuple(types)])  # noqa: UP007  # a union of types known only now
    except (ValueError, TypeError) as error:
        expected = " or ".join(type_name(kind) for kind in types)
        sentence = f"{workflow.name!r} takes {expected}: {error} Nothing was started."
        raise unprocessable("input", sentence, "wrong_input_type") from error


def failure_of(threads: Threads, served: ServedRun) -> HttpProblem:
    """The problem to answer for a run that began and failed."""
    thread_id = threads.space.public_id(served.thread_id)
    error = served.error
    if isinstance(error, RunInterrupted):
        sentence = "was interrupted because the server stops. It resumes from its last checkpoint."
        problem = problem_of_run(503, "run_interrupted", served, thread_id, sentence)
        problem.headers["Retry-After"] = "5"
        return problem
    known = problem_of(error) if isinstance(error, PerdureError) else None
    if known is not None and known.status in (409, 503) and not isinstance(error, ThreadBusy):
        return known
    hides, why = threads.service.hides_errors, ""
    if error is not None and not hides:
        details = error_to_json(WorkflowErrorDetails.from_exception(error), hides=hides)
        why = f": {details['error_type']}: {details['message']}"
    sentence = f"failed{why}. Committed work is kept. Resume the thread with POST /v1/threads/{thread_id}/runs."
    return problem_of_run(502, "run_failed", served, thread_id, sentence)


def problem_of_run(status: int, code: str, served: ServedRun, thread_id: str, sentence: str) -> HttpProblem:
    text = f"Run {served.run_id} of thread {thread_id!r} {sentence}"
    return HttpProblem(status, code, text, headers={"X-Run-Id": served.run_id}, thread_id=thread_id)
