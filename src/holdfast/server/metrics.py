"""Metrics in the text format of Prometheus: of the server, and of the engine in its process."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable

from holdfast.errors import MissingExtra
from holdfast.observing import (
    CommitBegan,
    CommitEnded,
    CommitWritten,
    Observation,
    RequestAsked,
    RequestSettled,
    RunBegan,
    RunEnded,
    RunWaits,
    SuperstepEnded,
    observers,
)

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
    from prometheus_client.exposition import generate_latest
except ImportError as error:
    raise MissingExtra("The server", "prometheus-client", "server") from error

_CREATED = re.compile(rb"(?:# (?:HELP|TYPE) )?\w+_created[ {]")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
OTHER = "other"
"""In place of a label's value when there are too many of them."""
MOST_VALUES = 200
"""Of one label: names of workflows and routes are few, and whoever makes them up must not fill the memory."""

COMMIT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
COMMIT_BYTES = (256, 1024, 4096, 16384, 65536, 262144, 1048576, 16777216)
REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
RUN_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600)


class Metrics:
    """Counts from when it is made until `close`. It has a registry of its own, so that several apps in one process do
    not meet; what the engine does is counted in each of them."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._labels: dict[str, set[str]] = {}
        self._make_of_server()
        self._make_of_engine()
        ProcessCollector(registry=self._registry)
        self._forget = weakref.finalize(self, _no_longer, _observe_weakly(self))

    def close(self) -> None:
        """The engine is not observed any more. What was counted can still be rendered."""
        self._forget()

    def render(self) -> bytes:
        lines = generate_latest(self._registry).splitlines(keepends=True)
        # When a series was begun is told twice over by the client: more lines than the numbers themselves.
        return b"".join(line for line in lines if not _CREATED.match(line))

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """`holdfast_<name>`, asked for whenever metrics are rendered: such as `runs.waiting` of the server."""
        Gauge(f"holdfast_{name}", text, registry=self._registry).set_function(value)

    # ------------------------------------------------------------ the server

    def _make_of_server(self) -> None:
        registry = self._registry
        self._http = Counter(
            "holdfast_http_requests", "HTTP requests", ("method", "route", "status"), registry=registry
        )
        self._http_seconds = Histogram(
            "holdfast_http_request_seconds",
            "Until the answer was sent; of a stream, until it ended",
            ("method", "route"),
            buckets=REQUEST_SECONDS,
            registry=registry,
        )
        self._streams = Gauge("holdfast_streams_open", "Event streams and sockets that are open", registry=registry)
        self._served = Counter("holdfast_served_runs", "Runs of clients", ("workflow", "outcome"), registry=registry)
        self._served_seconds = Histogram(
            "holdfast_served_run_seconds",
            "Of a client's run, its time in the queue included",
            ("workflow",),
            buckets=RUN_SECONDS,
            registry=registry,
        )
        self._served_started = Counter(
            "holdfast_served_runs_started", "Runs of clients that left the queue", ("workflow",), registry=registry
        )

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route`: the template, such as `/v1/threads/{thread_id}`, never the path with its ids."""
        method = method if method in METHODS else OTHER
        route = self._bounded("route", route)
        self._http.labels(method, route, str(status)).inc()
        self._http_seconds.labels(method, route).observe(seconds)

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def run_started(self, workflow: str) -> None:
        self._served_started.labels(self._bounded("workflow", workflow)).inc()

    def run_ended(self, workflow: str, outcome: str, seconds: float) -> None:
        workflow = self._bounded("workflow", workflow)
        self._served.labels(workflow, outcome.lower()).inc()
        self._served_seconds.labels(workflow).observe(seconds)

    # ------------------------------------------------------------ the engine

    def _make_of_engine(self) -> None:
        registry = self._registry
        self._runs = Counter("holdfast_runs", "Runs that ended", ("workflow", "outcome"), registry=registry)
        self._run_seconds = Histogram(
            "holdfast_run_seconds", "Of a run", ("workflow",), buckets=RUN_SECONDS, registry=registry
        )
        self._active = Gauge("holdfast_runs_active", "Runs that own their thread now", registry=registry)
        self._queued = Gauge("holdfast_runs_queued", "Runs that wait for their thread", registry=registry)
        self._queued_seconds = Histogram(
            "holdfast_run_queued_seconds", "A run's wait for its thread", buckets=RUN_SECONDS, registry=registry
        )
        self._lost = Counter("holdfast_lease_losses", "Runs whose thread was taken from them", registry=registry)
        self._supersteps = Counter("holdfast_supersteps", "Supersteps", ("workflow", "outcome"), registry=registry)
        self._superstep_seconds = Histogram(
            "holdfast_superstep_seconds",
            "Of a superstep, its commit included",
            buckets=REQUEST_SECONDS,
            registry=registry,
        )
        self._commit_seconds = Histogram(
            "holdfast_commit_seconds",
            "Until a commit was stored, its time in the line included",
            buckets=COMMIT_SECONDS,
            registry=registry,
        )
        self._commit_failures = Counter("holdfast_commit_failures", "Commits that were not stored", registry=registry)
        self._commits_on_the_way = Gauge(
            "holdfast_commits_unsaved",
            "Commits that are not stored yet: the lag of durability=async",
            registry=registry,
        )
        self._commit_bytes = Histogram(
            "holdfast_commit_bytes", "What a commit adds, as encoded", buckets=COMMIT_BYTES, registry=registry
        )
        self._asked = Counter("holdfast_requests_asked", "Requests to people", ("workflow",), registry=registry)
        self._settled = Counter(
            "holdfast_requests_settled",
            "Requests that do not wait any more",
            ("workflow", "outcome"),
            registry=registry,
        )
        self._heard: dict[type, Callable[..., None]] = {
            RunWaits: self._run_waits,
            RunBegan: self._run_began,
            RunEnded: self._run_ended,
            SuperstepEnded: self._superstep_ended,
            CommitBegan: self._commit_began,
            CommitEnded: self._commit_ended,
            CommitWritten: self._commit_written,
            RequestAsked: self._request_asked,
            RequestSettled: self._request_settled,
        }

    def observe(self, observation: Observation) -> None:
        heard = self._heard.get(type(observation))
        if heard is not None:
            heard(observation)

    def _run_waits(self, _: RunWaits) -> None:
        self._queued.inc()

    def _run_began(self, run: RunBegan) -> None:
        self._queued.dec()
        self._active.inc()
        self._queued_seconds.observe(run.waited)

    def _run_ended(self, run: RunEnded) -> None:
        (self._active if run.owned else self._queued).dec()
        workflow = self._bounded("workflow", run.workflow)
        self._runs.labels(workflow, run.outcome).inc()
        self._run_seconds.labels(workflow).observe(run.seconds)
        if run.outcome == "conflict":
            self._lost.inc()

    def _superstep_ended(self, superstep: SuperstepEnded) -> None:
        outcome = "discarded" if superstep.is_discarded else "committed"
        self._supersteps.labels(self._bounded("workflow", superstep.workflow), outcome).inc()
        self._superstep_seconds.observe(superstep.seconds)

    def _commit_began(self, _: CommitBegan) -> None:
        self._commits_on_the_way.inc()

    def _commit_ended(self, commit: CommitEnded) -> None:
        self._commits_on_the_way.dec()
        if commit.is_stored:
            self._commit_seconds.observe(commit.seconds)
        else:
            self._commit_failures.inc()

    def _commit_written(self, commit: CommitWritten) -> None:
        self._commit_bytes.observe(commit.size)

    def _request_asked(self, request: RequestAsked) -> None:
        self._asked.labels(self._bounded("workflow", request.workflow)).inc()

    def _request_settled(self, request: RequestSettled) -> None:
        self._settled.labels(self._bounded("workflow", request.workflow), request.how).inc()

    def _bounded(self, label: str, value: str) -> str:
        known = self._labels.setdefault(label, set())
        if value not in known:
            if len(known) >= MOST_VALUES:
                return OTHER
            known.add(value)
        return value


def _observe_weakly(metrics: Metrics) -> Callable[[Observation], None]:
    """One that nobody closed is gone with its app, and does not count for ever."""
    known = weakref.ref(metrics)

    def observe(observation: Observation) -> None:
        found = known()
        if found is not None:
            found.observe(observation)

    observers.append(observe)
    return observe


def _no_longer(observe: Callable[[Observation], None]) -> None:
    if observe in observers:
        observers.remove(observe)
