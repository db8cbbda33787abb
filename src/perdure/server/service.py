"""The service behind an app: its parts, start and stop, readiness, and recovery of interrupted threads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import PerdureError, RunInterrupted, StorageFailed, ThreadBusy, ThreadConflict, did_you_mean
from perdure.events import WorkflowRunState
from perdure.log import get_logger
from perdure.records import ThreadInfo
from perdure.server.auth.principal import Authenticator, Authorizer, Principal, Space, space_of
from perdure.server.config.schema import ServerConfig
from perdure.server.problems import HttpProblem, too_often
from perdure.server.rate_limit import RateLimiter
from perdure.server.registry import Registry
from perdure.server.threads.conversation import NameThreads
from perdure.server.threads.hub import Hub
from perdure.server.threads.runs import Runs, ServedRun
from perdure.server.threads.threads import Views
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.metrics import Metrics


logger = get_logger("server")

Check = Callable[[], Awaitable[object]]
"""Raises if a dependency is not available."""
CHECK_SECONDS = 2.0


async def _check(name: str, check: Check) -> tuple[str, str]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await check()
    except (PerdureError, OSError, TimeoutError) as error:  # drivers raise one of these
        reason = error if isinstance(error, PerdureError) else type(error).__name__
        logger.info("%s is not ready: %s", name, reason)
        return name, "unavailable"
    return name, "ok"


class Service:
    """The parts of one app. Usable only in the event loop that started it."""

    def __init__(
        self,
        config: ServerConfig,
        registry: Registry,
        storage: StoreCheckpointStorage,
        *,
        authenticator: Authenticator | None,
        authorizer: Authorizer,
        limiter: RateLimiter | None,
        metrics: Metrics,
        name_threads: NameThreads | None = None,
        backends: Mapping[str, Check] | None = None,
    ) -> None:
        self.config = config
        self.registry = registry
        self.storage = storage
        self.authenticator = authenticator
        self.authorizer = authorizer
        self.limiter = limiter
        self.metrics = metrics
        self.name_threads = name_threads
        """Names new threads; None if no generator is configured."""
        self.backends = dict(backends or {})
        """Readiness checks by dependency."""
        self.runs = Runs(storage, config.limits, metrics)
        self.views = Views()
        self.hub = Hub(storage, hides=self.hides_errors)
        self.recovery = Recovery(self)
        self.own_hosts = frozenset({"localhost", "127.0.0.1", "::1", config.host.lower()})
        """Host names that a server without auth accepts."""
        self.stopping = asyncio.Event()
        """Set when the server begins to stop: streams end then."""
        self.stop_hooks: set[Callable[[], None]] = set()
        """Called when the server begins to stop, to wake waiting streams."""
        self._streams = 0
        metrics.gauge("server_runs", "Active runs of this server.", lambda: self.runs.active)
        metrics.gauge("server_runs_waiting", "Queued runs of this server.", lambda: self.runs.waiting_count)
        self._stop_task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def hides_errors(self) -> bool:
        return self.config.mode == "production"

    def space(self, principal: Principal) -> Space:
        return space_of(principal, isolates=self.authorizer.isolates_owners)

    def workflow(self, name: str | None) -> Workflow:
        """The workflow of this public name; None: the default. Raises HttpProblem."""
        served = self.registry.default if name is None else self.registry.get(name)
        if served is None and name is None:
            raise HttpProblem(
                422, "no_default_workflow", "The server has no default workflow. Name one.", field="workflow"
            )
        if served is None:
            guess, names = did_you_mean(str(name), self.registry), ", ".join(sorted(self.registry))
            raise HttpProblem(404, "workflow_not_found", f"No workflow {name!r} exists{guess}. Workflows: {names}.")
        return served.workflow

    def workflow_of(self, info: ThreadInfo) -> Workflow:
        """The workflow of a thread. Raises HttpProblem if the server does not have it."""
        served = self.registry.by_workflow_name(info.workflow_name)
        if served is None:
            raise HttpProblem(
                409,
                "workflow_not_served",
                f"This thread belongs to workflow {info.workflow_name!r}, which this server does not have.",
            )
        return served.workflow

    @contextmanager
    def stream_slot(self) -> Iterator[None]:
        """Count an open stream or socket. Raises HttpProblem if there are too many."""
        if self.runs.is_stopping:
            raise HttpProblem(503, "stopping", "The server is stopping.", headers={"Retry-After": "5"})
        if self._streams >= self.config.limits.max_streams:
            raise HttpProblem(
                429, "too_many_streams", f"{self._streams} streams are open. Try again.", headers={"Retry-After": "5"}
            )
        self._streams += 1
        self.metrics.stream_opened()
        try:
            yield
        finally:
            self._streams -= 1
            self.metrics.stream_closed()

    async def count_turn(self, limit_key: str | None) -> None:
        """Count a turn over a socket like a request. Raises HttpProblem at the rate limit."""
        limit = self.config.rate_limit
        if self.limiter is not None and limit is not None and limit_key is not None:
            verdict = await self.limiter.take(limit_key)
            if not verdict.is_allowed:
                raise too_often(verdict.limit, limit.window, verdict.seconds)

    def start(self) -> None:
        """Start recovery. Idempotent: the first request starts an app that is mounted in another."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.recovery.start()

    def begin_stopping(self) -> None:
        """Accept no more work, end streams, and stop runs after their superstep. Safe in a signal handler."""
        self.runs.is_stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_leaving)

    def _begin_leaving(self) -> None:
        self.stopping.set()
        for wake in tuple(self.stop_hooks):
            wake()
        if self._stop_task is None:
            seconds = self.config.limits.shutdown_seconds
            self._stop_task = asyncio.get_running_loop().create_task(self.runs.leave(seconds))

    async def wait_stopped(self) -> None:
        """Wait until all runs have stopped, after `begin_stopping`."""
        await self.stopping.wait()
        if self._stop_task is not None:
            await asyncio.shield(self._stop_task)

    async def stop(self) -> None:
        self.runs.is_stopping = True
        await self.recovery.stop()
        self._begin_leaving()
        if self._stop_task is not None:
            await self._stop_task
        if self.limiter is not None:
            await self.limiter.close()
        self.metrics.close()
        await self.storage.close()

    async def readiness(self) -> Mapping[str, str]:
        """`ok` or `unavailable` by dependency. The reason is only logged, because the route is public."""
        checks = [_check(name, check) for name, check in self.backends.items()]
        verdicts = dict(await asyncio.gather(*checks))
        if self.runs.is_stopping:
            verdicts["server"] = "stopping"
        return verdicts


INTERRUPTED = frozenset({WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value})
LOOK_SECONDS = 1.0
"""How often it looks for due threads."""
LOOKS_BETWEEN = 15
"""Looks between two searches for threads of dead instances, whose leases have expired by then."""
MAX_BATCH = 100


class Recovery:
    """Resumes threads without an owner: interrupted ones at the start and periodically, and due ones."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        """Whether an outage of the storage was logged."""
        self._stuck: dict[str, int] = {}
        """Threads that could not be resumed, with their checkpoint number."""
        self._unknown: set[str] = set()
        """Missing workflows that were logged."""

    def start(self) -> None:
        """Start in the background: a server without its storage still answers."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="perdure recovery")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        has_not_resumed_interrupted = True
        for look in itertools.count(1):
            try:
                if has_not_resumed_interrupted or look % LOOKS_BETWEEN == 0:
                    await self._resume_interrupted()
                    has_not_resumed_interrupted = False
                if look % LOOKS_BETWEEN == 0:
                    await self._interrupt_lost_runs()
                await self._resume_due()
            except Exception as error:  # noqa: BLE001  # any error of a driver: the next look retries
                self._log_outage(error)
            else:
                self._log_outage(None)
            await asyncio.sleep(LOOK_SECONDS)

    def _log_outage(self, error: Exception | None) -> None:
        """Log the begin and the end of an outage."""
        if error is not None and not self._is_away:
            reason = (
                error if isinstance(error, PerdureError) else type(error).__name__
            )  # perdure's messages hold no secrets
            logger.warning("looking for threads to resume failed: %s", reason)
        elif error is None and self._is_away:
            logger.info("the storage is reachable again")
        self._is_away = error is not None

    async def _resume_interrupted(self) -> None:
        threads = await self._service.storage.list_threads(statuses=INTERRUPTED)
        self._stuck = {key: self._stuck[key] for info in threads if (key := info.thread_id) in self._stuck}
        count = sum([self._resume(info) for info in threads if info.run_id is None])
        if count:
            logger.info("resuming %d interrupted threads", count)

    async def _resume_due(self) -> None:
        storage = self._service.storage
        async with storage.access("list due threads"):
            due = await storage.store.due(datetime.now(UTC), MAX_BATCH)
        for info in due:
            self._resume(info)

    async def _interrupt_lost_runs(self) -> None:
        """Interrupt runs whose thread another instance took over: they can commit nothing."""
        storage = self._service.storage
        for served in self._service.runs.under_way:
            async with storage.access("find a thread"):
                infos = await storage.store.threads(thread_id=served.thread_id, limit=1)
            is_owner = not infos or infos[0].run_id == served.run_id
            if not is_owner:
                logger.info("run %s ends: another run took over its thread", served.run_id)
                served.run.interrupt()

    def _resume(self, info: ThreadInfo) -> bool:
        """Start a run of the thread; False if it did not start. It ends if another instance claims the thread first."""
        service = self._service
        served = service.registry.by_workflow_name(info.workflow_name)
        if served is None:
            if info.workflow_name not in self._unknown:
                self._unknown.add(info.workflow_name)
                logger.warning(
                    "threads of workflow %r are not resumed: this server does not have it", info.workflow_name
                )
            return False
        if service.runs.find_by_thread(info.thread_id) is not None or self._stuck.get(info.thread_id) == info.number:
            return False
        try:
            run = service.runs.start(served.workflow, info.thread_id)
        except HttpProblem:  # full or stopping: a later look retries
            return False
        run.task.add_done_callback(lambda _: self._remember_stuck(run, info))
        return True

    def _remember_stuck(self, run: ServedRun, info: ThreadInfo) -> None:
        """Log a thread that cannot be resumed once, and skip it until it has a new checkpoint."""
        if run.is_refused and not isinstance(run.error, ThreadBusy | ThreadConflict | RunInterrupted | StorageFailed):
            self._stuck[info.thread_id] = info.number
            logger.warning("interrupted thread %s cannot be resumed: %s", info.thread_id, run.error)
