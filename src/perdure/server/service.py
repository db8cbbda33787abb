"""All that a server is made of, put together once; and what it does when it starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.engine.workflow import Workflow
from perdure.log import get_logger
from perdure.records import ThreadInfo
from perdure.server.auth.principal import Authenticator, Authorizer, Principal
from perdure.server.config import ServerConfig
from perdure.server.hub import Hub
from perdure.server.limits.rate import RateLimiter
from perdure.server.naming import NameThreads
from perdure.server.problems import Problem, too_often
from perdure.server.recovery import Recovery
from perdure.server.registry import Registry
from perdure.server.runs import Runs
from perdure.server.space import Space, space_of

if TYPE_CHECKING:
    from perdure.server.metrics import Metrics

logger = get_logger("server")

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
        """By the name that clients use; None: the default. Raises Problem."""
        served = self.registry.default if name is None else self.registry.find(name)
        if served is None and name is None:
            raise Problem(422, "no_default_workflow", "There is no default: name a workflow.", field="workflow")
        if served is None:
            known = ", ".join(sorted(self.registry.names))
            raise Problem(404, "workflow_not_found", f"There is no workflow {name!r}. There are: {known}.")
        return served.workflow

    def workflow_of(self, info: ThreadInfo) -> Workflow:
        """The one that the thread was begun with. Raises Problem."""
        served = self.registry.by_workflow_name(info.workflow_name)
        if served is None:
            raise Problem(
                409,
                "workflow_not_served",
                f"This thread belongs to workflow {info.workflow_name!r}, which this server does not have.",
            )
        return served.workflow

    # ------------------------------------------------------------ how much at once

    @contextmanager
    def stream_slot(self) -> Iterator[None]:
        """While a stream or a socket is open. Raises Problem if there are too many."""
        if self.runs.is_stopping:
            raise Problem(503, "stopping", "The server is stopping.", headers={"Retry-After": "5"})
        if self._streams >= self.config.limits.max_streams:
            raise Problem(
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
        """A turn over a socket counts like a request. Raises Problem."""
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
        from perdure.server.readiness import readiness

        return await readiness(self)
