"""All that a server is made of, put together once; and what it does when it starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.records import ThreadInfo
from perdure.server.app.recovery import Recovery
from perdure.server.app.registry import Registry
from perdure.server.auth.principal import Authenticator, Authorizer, Principal
from perdure.server.config.schema import ServerConfig
from perdure.server.problems import HttpProblem, too_often
from perdure.server.rate_limit.memory import RateLimiter
from perdure.server.runs.hub import Hub
from perdure.server.runs.runs import Runs
from perdure.server.threads.naming import NameThreads
from perdure.server.threads.tenancy import Space, space_of
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.metrics import Metrics


# ---------------------------------------------------------------- readiness


logger = get_logger("server")

ASK_SECONDS = 2.0


async def readiness(service: Service) -> dict[str, str]:
    """`ok` or `unavailable`, by name. What is wrong stands in the log: the answer is open to all."""
    found = dict.fromkeys(service.backends, "unavailable")
    checks = [_check(name, check) for name, check in service.backends.items()]
    for name, verdict in await asyncio.gather(*checks):
        found[name] = verdict
    if service.runs.is_stopping:
        found["server"] = "stopping"
    return found


async def _check(name: str, check: Check) -> tuple[str, str]:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await check()
    except (PerdureError, OSError, TimeoutError) as error:  # what drivers raise is one of these
        said = error if isinstance(error, PerdureError) else type(error).__name__
        logger.info("%s is not ready: %s", name, said)
        return name, "unavailable"
    return name, "ok"


Check = Callable[[], Awaitable[object]]


class Service:
    """One for each app. It is usable in one event loop: the one that started it."""

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
        """Gives a new thread its name; None if nobody does."""
        self.backends = dict(backends or {})
        """What it depends on, each with a way to ask whether it is there."""
        self.runs = Runs(storage, config.limits, metrics)
        self.hub = Hub(storage, hides=self.hides_errors)
        self.recovery = Recovery(self)
        self.own_hosts = frozenset({"localhost", "127.0.0.1", "::1", config.host.lower()})
        """Names that a server without auth is asked by."""
        self.stopping = asyncio.Event()
        """Set when the server begins to stop: streams end then."""
        self.stop_hooks: set[Callable[[], None]] = set()
        """Called then: they wake those who wait."""
        self._streams = 0
        metrics.gauge("server_runs", "Runs of this server that go on now.", lambda: self.runs.active)
        metrics.gauge("server_runs_waiting", "Runs that wait for others to end.", lambda: self.runs.waiting)
        self._leaving: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def hides_errors(self) -> bool:
        return self.config.mode == "production"

    def space(self, principal: Principal) -> Space:
        return space_of(principal, isolates=self.authorizer.isolates_owners)

    # ------------------------------------------------------------ what runs

    def workflow(self, name: str | None) -> Workflow:
        """By the name that clients use; None: the default. Raises HttpProblem."""
        served = self.registry.default if name is None else self.registry.find(name)
        if served is None and name is None:
            raise HttpProblem(422, "no_default_workflow", "There is no default: name a workflow.", field="workflow")
        if served is None:
            known = ", ".join(sorted(self.registry.names))
            raise HttpProblem(404, "workflow_not_found", f"There is no workflow {name!r}. There are: {known}.")
        return served.workflow

    def workflow_of(self, info: ThreadInfo) -> Workflow:
        """The one that the thread was begun with. Raises HttpProblem."""
        served = self.registry.by_workflow_name(info.workflow_name)
        if served is None:
            raise HttpProblem(
                409,
                "workflow_not_served",
                f"This thread belongs to workflow {info.workflow_name!r}, which this server does not have.",
            )
        return served.workflow

    # ------------------------------------------------------------ how much at once

    @contextmanager
    def stream_slot(self) -> Iterator[None]:
        """While a stream or a socket is open. Raises HttpProblem if there are too many."""
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
        """A turn over a socket counts like a request. Raises HttpProblem."""
        limit = self.config.rate_limit
        if self.limiter is not None and limit is not None and limit_key is not None:
            verdict = await self.limiter.take(limit_key)
            if not verdict.is_allowed:
                raise too_often(verdict.limit, limit.window, verdict.seconds)

    # ------------------------------------------------------------ from start to end

    def start(self) -> None:
        """Go on with what was interrupted. Called again, it does nothing: an app that is mounted in another one is
        started by its first request."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.recovery.start()

    def begin_stopping(self) -> None:
        """Take no more work, let streams end, and runs stop after their superstep. For a signal handler, too."""
        self.runs.is_stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self.stopping.set()
        for wake in tuple(self.stop_hooks):
            wake()
        if self._leaving is None:
            seconds = self.config.limits.shutdown_seconds
            self._leaving = asyncio.get_running_loop().create_task(self.runs.leave(seconds))

    async def left(self) -> None:
        """Once no run goes on any more, after `begin_stopping`."""
        await self.stopping.wait()
        if self._leaving is not None:
            await asyncio.shield(self._leaving)

    async def stop(self) -> None:
        self.runs.is_stopping = True
        await self.recovery.stop()
        self._leave()
        if self._leaving is not None:
            await self._leaving
        if self.limiter is not None:
            await self.limiter.close()
        self.metrics.close()
        await self.storage.close()

    async def readiness(self) -> Mapping[str, str]:
        """Each thing that it depends on, by itself: `ok`, or why it cannot be used."""
        return await readiness(self)
