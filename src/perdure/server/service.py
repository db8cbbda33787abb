"""The service behind an app: its parts, start and stop, readiness, and recovery of interrupted threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import PerdureError, RunInterrupted, StorageFailed, ThreadBusy, ThreadConflict, did_you_mean
from perdure.events import WorkflowRunState
from perdure.log import get_logger
from perdure.records import ThreadInfo
from perdure.server.auth.principal import Authenticator, Authorizer, Space
from perdure.server.config.schema import ServerConfig
from perdure.server.problems import HttpProblem
from perdure.server.rate_limit import RateLimiter
from perdure.server.registry import Registry
from perdure.server.threads.conversation import NameThreads
from perdure.server.threads.hub import Hub
from perdure.server.threads.runs import Runs
from perdure.server.threads.threads import Threads, Views
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.metrics import Metrics


logger = get_logger("server")

Check = Callable[[], Awaitable[object]]
"""Raises if a dependency is not available."""
CHECK_SECONDS = 2.0


def _reason_of(error: Exception) -> object:
    """Perdure's messages hold no secrets; a driver's may."""
    return error if isinstance(error, PerdureError) else type(error).__name__


async def _check(name: str, check: Check) -> tuple[str, str]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await check()
    except (PerdureError, OSError, TimeoutError) as error:  # drivers raise one of these
        logger.info("%s is not ready: %s", name, _reason_of(error))
        return name, "unavailable"
    return name, "ok"


@dataclass(eq=False)
class Service:
    """The parts of one app. Usable only in the event loop that started it."""

    config: ServerConfig
    registry: Registry
    storage: StoreCheckpointStorage
    authenticator: Authenticator | None
    authorizer: Authorizer
    limiter: RateLimiter | None
    metrics: Metrics
    name_threads: NameThreads | None
    """Names new threads; None if no generator is configured."""
    backends: Mapping[str, Check]
    """Readiness checks by dependency."""

    def __post_init__(self) -> None:
        config, storage, metrics = self.config, self.storage, self.metrics
        self.runs = Runs(storage, config.limits, metrics)
        self.views = Views()
        self.hub = Hub(storage, self.hides_errors)
        self.recovery = Recovery(self)
        self.own_hosts = frozenset({"localhost", "127.0.0.1", "::1", config.host.lower()})
        """Host names that a server without auth accepts."""
        self.stopping = asyncio.Event()
        """Set when the server begins to stop: streams end then."""
        metrics.gauge("server_runs", "Active runs of this server.", lambda: self.runs.active)
        metrics.gauge("server_runs_waiting", "Queued runs of this server.", lambda: self.runs.waiting_count)
        self._stop_task: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that started it."""

    @property
    def hides_errors(self) -> bool:
        return self.config.mode == "production"

    @cached_property
    def default_workflow(self) -> Workflow:
        """The workflow of requests that name none. Raises HttpProblem."""
        if self.registry.default is None:
            message = "The server has no default workflow. Name one."
            raise HttpProblem(422, "no_default_workflow", message, field="workflow")
        return self.registry.default.workflow

    def workflow(self, name: str | None) -> Workflow:
        """The workflow of this public name; None: the default. Raises HttpProblem."""
        if name is None:
            return self.default_workflow
        if name in self.registry:
            return self.registry[name].workflow
        guess, names = did_you_mean(name, self.registry), ", ".join(sorted(self.registry))
        raise HttpProblem(404, "workflow_not_found", f"No workflow {name!r} exists{guess}. Workflows: {names}.")

    def workflow_of(self, info: ThreadInfo) -> Workflow:
        """The workflow of a thread. Raises HttpProblem if the server does not have it."""
        workflow = self.registry.by_workflow_name(info.workflow_name)
        if workflow is None:
            sentence = f"This thread belongs to workflow {info.workflow_name!r}, which this server does not have."
            raise HttpProblem(409, "workflow_not_served", sentence)
        return workflow

    def start(self) -> None:
        """Start recovery. Idempotent: the first request starts an app that is mounted in another."""
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
            self.recovery.start()

    def begin_stopping(self, then: Callable[[object], None] = lambda _: None) -> None:
        """Accept no more work, end streams, and stop runs after their superstep. Safe in a signal handler.

        `then`: called when all runs have stopped.
        """
        self.runs.is_stopping = True
        if self.loop is not None:
            self.loop.call_soon_threadsafe(lambda: self._leave().add_done_callback(then))

    def _leave(self) -> asyncio.Task[None]:
        """The task that ends when all runs have stopped."""
        self.stopping.set()
        self.hub.wake_followers()
        if self._stop_task is None:
            seconds = self.config.limits.shutdown_seconds
            self._stop_task = asyncio.get_running_loop().create_task(self.runs.leave(seconds))
        return self._stop_task

    async def stop(self) -> None:
        self.runs.is_stopping = True
        await self.recovery.stop()
        await self._leave()
        if self.limiter is not None:
            await self.limiter.close()
        self.metrics.close()
        await self.storage.close()

    async def readiness(self) -> Mapping[str, str]:
        """`ok` or `unavailable` by dependency. The reason is only logged, because the route is public."""
        verdicts = dict(await asyncio.gather(*(_check(*backend) for backend in self.backends.items())))
        if self.runs.is_stopping:
            verdicts["server"] = "stopping"
        return verdicts


INTERRUPTED = frozenset({WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value})
LOOK_SECONDS = 1.0
"""How often it looks for due threads."""
LOOKS_BETWEEN = 15
"""Looks between two searches for threads of dead instances, whose leases have expired by then."""
MAX_BATCH = 100


class Recovery(msgspec.Struct, eq=False):
    """Resumes threads without an owner: interrupted ones at the start and periodically, and due ones."""

    _service: Service
    _task: asyncio.Task[None] | None = None
    _stuck: dict[str, int] = {}
    """Threads that could not be resumed, with their checkpoint number."""
    _unknown: set[str] = set()
    """Missing workflows that were logged."""

    def start(self) -> None:
        """Start in the background: a server without its storage still answers."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="perdure recovery")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        storage = self._service.storage
        looks, is_away = 0, False  # only the begin and the end of an outage of the storage are logged
        while True:
            try:
                if looks % LOOKS_BETWEEN == 0:
                    await self._resume_interrupted()
                    await self._interrupt_lost_runs()
                async with storage.access("list due threads"):
                    due = await storage.store.due(datetime.now(UTC), MAX_BATCH)
                for info in due:
                    self._resume(info)
            except Exception as error:  # noqa: BLE001  # any error of a driver: the next look retries
                if not is_away:
                    logger.warning("looking for threads to resume failed: %s", _reason_of(error))
                is_away = True
            else:
                if is_away:
                    logger.info("the storage is reachable again")
                looks, is_away = looks + 1, False
            await asyncio.sleep(LOOK_SECONDS)

    async def _resume_interrupted(self) -> None:
        threads = await self._service.storage.list_threads(statuses=INTERRUPTED)
        self._stuck = {key: self._stuck[key] for info in threads if (key := info.thread_id) in self._stuck}
        count = sum([self._resume(info) for info in threads if info.run_id is None])
        if count:
            logger.info("resuming %d interrupted threads", count)

    async def _interrupt_lost_runs(self) -> None:
        """Interrupt runs whose thread another instance took over: they can commit nothing."""
        threads = Threads(self._service, Space())
        for served in self._service.runs.under_way:
            info = await threads.look_up(served.thread_id)
            if info is not None and info.run_id != served.run_id:
                logger.info("run %s ends: another run took over its thread", served.run_id)
                served.run.interrupt()

    def _resume(self, info: ThreadInfo) -> bool:
        """Start a run of the thread; False if it did not start. It ends if another instance claims the thread first."""
        service = self._service
        workflow = service.registry.by_workflow_name(info.workflow_name)
        if workflow is None:
            if info.workflow_name not in self._unknown:
                self._unknown.add(info.workflow_name)
                logger.warning(
                    "threads of workflow %r are not resumed: this server does not have it", info.workflow_name
                )
            return False
        if info.thread_id in service.runs.active_threads or self._stuck.get(info.thread_id) == info.number:
            return False
        try:
            run = service.runs.start(workflow, info.thread_id)
        except HttpProblem:  # full or stopping: a later look retries
            return False

        def remember_stuck(_: object) -> None:
            """Log a thread that cannot be resumed once, and skip it until it has a new checkpoint."""
            passes_by = ThreadBusy | ThreadConflict | RunInterrupted | StorageFailed
            if run.is_refused and not isinstance(run.error, passes_by):
                self._stuck[info.thread_id] = info.number
                logger.warning("interrupted thread %s cannot be resumed: %s", info.thread_id, run.error)

        run.task.add_done_callback(remember_stuck)
        return True
