"""Metrics of the server and of the engine in its process, in the text format of Prometheus."""

from __future__ import annotations

import re
import weakref
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from perdure.errors import MissingExtra
from perdure.observing import (
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
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("The server", "prometheus-client", "server") from error

Labels = tuple[str, ...]

_CREATED = re.compile(rb"(?:# (?:HELP|TYPE) )?\w+_created[ {]")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
OTHER = "other"
"""Replaces a label value beyond the limit."""
MAX_LABEL_VALUES = 200
"""Values of one label. Workflows and routes are few; invented names must not fill the memory."""

COMMIT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
COMMIT_BYTES = (256, 1024, 4096, 16384, 65536, 262144, 1048576, 16777216)
REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
RUN_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600)


class CounterMetric:
    """A value that only grows, by labels."""

    kind: Any = CounterMetricFamily

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._about = f"perdure_{name}", text
        self._labels = labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, count: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + count

    def family(self) -> Any:
        family = self.kind(*self._about, labels=self._labels)
        for labels, value in tuple(self._values.items()):
            family.add_metric(labels, value)
        return family


class GaugeMetric(CounterMetric):
    """A value that grows and shrinks."""

    kind = GaugeMetricFamily


class HistogramMetric:
    """Counts of values by bucket, and their sum."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> None:
        self._about = f"perdure_{name}", text
        self._bounds = bounds
        self._labels = labels
        self._values: defaultdict[Labels, list[float]] = defaultdict(lambda: [0] * (len(bounds) + 2))
        if not labels:
            self._values[()]

    def add(self, value: float, *labels: str) -> None:
        counts = self._values[labels]
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value

    def family(self) -> Any:
        family = HistogramMetricFamily(*self._about, labels=self._labels)
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for labels, (*within, total) in tuple(self._values.items()):
            family.add_metric(labels, list(zip(names, accumulate(within), strict=True)), total)
        return family


class Metrics(Collector):
    """Counts from its creation until `close`.

    It has its own registry, so several apps in one process do not collide. Each app counts the whole engine. Updates
    take no lock: concurrent updates from several threads may lose a count.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._labels: defaultdict[str, set[str]] = defaultdict(set)
        self._create_server_metrics()
        self._create_engine_metrics()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._detach = weakref.finalize(self, observers.remove, _observe_weakly(self))

    def collect(self) -> Iterator[Any]:
        """The metrics of the server and the engine, for the registry."""
        own = [metric for metric in vars(self).values() if isinstance(metric, CounterMetric | HistogramMetric)]
        return (metric.family() for metric in own)

    def close(self) -> None:
        """Stop observing the engine. The counts can still be rendered."""
        self._detach()

    def render(self) -> bytes:
        lines = generate_latest(self._registry).splitlines(keepends=True)
        # The `_created` lines of prometheus-client would more than double the output.
        return b"".join(line for line in lines if not _CREATED.match(line))

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add the gauge `perdure_<name>`, whose value is read at each rendering."""
        Gauge(f"perdure_{name}", text, registry=self._registry).set_function(value)

    def _create_server_metrics(self) -> None:
        self._http = CounterMetric("http_requests", "HTTP requests", "method", "route", "status")
        of_requests = "Time to the end of the response; for a stream, to its end"
        self._http_seconds = HistogramMetric("http_request_seconds", of_requests, REQUEST_SECONDS, "method", "route")
        self._streams = GaugeMetric("streams_open", "Open event streams and sockets")
        self._served = CounterMetric("served_runs", "Runs of clients", "workflow", "outcome")
        of_runs = "Time of a client's run, including the queue"
        self._served_seconds = HistogramMetric("served_run_seconds", of_runs, RUN_SECONDS, "workflow")
        self._served_started = CounterMetric("served_runs_started", "Clients' runs that left the queue", "workflow")

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route`: the template, such as `/v1/threads/{thread_id}`, never the path with its ids."""
        method = method if method in METHODS else OTHER
        route = self._bound_label("route", route)
        self._http.add(method, route, str(status))
        self._http_seconds.add(seconds, method, route)

    def stream_opened(self) -> None:
        self._streams.add()

    def stream_closed(self) -> None:
        self._streams.add(count=-1)

    def run_started(self, workflow: str) -> None:
        self._served_started.add(self._bound_label("workflow", workflow))

    def run_ended(self, workflow: str, outcome: str, seconds: float) -> None:
        workflow = self._bound_label("workflow", workflow)
        self._served.add(workflow, outcome.lower())
        self._served_seconds.add(seconds, workflow)

    def _create_engine_metrics(self) -> None:
        self._runs = CounterMetric("runs", "Runs that ended", "workflow", "outcome")
        self._run_seconds = HistogramMetric("run_seconds", "Time of a run", RUN_SECONDS, "workflow")
        self._active = GaugeMetric("runs_active", "Runs that own their thread")
        self._queued = GaugeMetric("runs_queued", "Runs that wait for their thread")
        self._queued_seconds = HistogramMetric(
            "run_queued_seconds", "Time that a run waited for its thread", RUN_SECONDS
        )
        self._lost = CounterMetric("lease_losses", "Runs that lost their thread to another run")
        self._supersteps = CounterMetric("supersteps", "Supersteps", "workflow", "outcome")
        of_supersteps = "Time of a superstep, including its commit"
        self._superstep_seconds = HistogramMetric("superstep_seconds", of_supersteps, REQUEST_SECONDS)
        of_commits = "Time to store a commit, including the queue"
        self._commit_seconds = HistogramMetric("commit_seconds", of_commits, COMMIT_SECONDS)
        self._commit_failures = CounterMetric("commit_failures", "Failed commits")
        self._commits_unsaved = GaugeMetric("commits_unsaved", "Commits not stored yet: the lag of durability=async")
        self._commit_bytes = HistogramMetric("commit_bytes", "Encoded size of a commit", COMMIT_BYTES)
        self._asked = CounterMetric("requests_asked", "Requests to people", "workflow")
        of_settled = "Requests that are no longer pending"
        self._settled = CounterMetric("requests_settled", of_settled, "workflow", "outcome")
        self.handlers: dict[type, Callable[[Any], None]] = {
            RunWaits: lambda _: self._queued.add(),
            RunBegan: self._run_began,
            RunEnded: self._run_ended,
            SuperstepEnded: self._superstep_ended,
            CommitBegan: lambda _: self._commits_unsaved.add(),
            CommitEnded: self._commit_ended,
            CommitWritten: lambda commit: self._commit_bytes.add(commit.size),
            RequestAsked: lambda request: self._asked.add(self._bound_label("workflow", request.workflow)),
            RequestSettled: lambda request: self._settled.add(
                self._bound_label("workflow", request.workflow), request.how
            ),
        }

    def _run_began(self, run: RunBegan) -> None:
        self._queued.add(count=-1)
        self._active.add()
        self._queued_seconds.add(run.waited)

    def _run_ended(self, run: RunEnded) -> None:
        (self._active if run.owned else self._queued).add(count=-1)
        workflow = self._bound_label("workflow", run.workflow)
        self._runs.add(workflow, run.outcome)
        self._run_seconds.add(run.seconds, workflow)
        if run.outcome == "conflict":
            self._lost.add()

    def _superstep_ended(self, superstep: SuperstepEnded) -> None:
        outcome = "discarded" if superstep.is_discarded else "committed"
        self._supersteps.add(self._bound_label("workflow", superstep.workflow), outcome)
        self._superstep_seconds.add(superstep.seconds)

    def _commit_ended(self, commit: CommitEnded) -> None:
        self._commits_unsaved.add(count=-1)
        if commit.is_stored:
            self._commit_seconds.add(commit.seconds)
        else:
            self._commit_failures.add()

    def _bound_label(self, label: str, value: str) -> str:
        values = self._labels[label]
        if value not in values:
            if len(values) >= MAX_LABEL_VALUES:
                return OTHER
            values.add(value)
        return value


def _observe_weakly(metrics: Metrics) -> Callable[[Observation], None]:
    """Observe the engine through a weak reference, so that metrics which were not closed stop with their app."""
    reference = weakref.ref(metrics)

    def observe(observation: Observation) -> None:
        metrics = reference()
        handle = None if metrics is None else metrics.handlers.get(type(observation))
        if handle is not None:
            handle(observation)

    observers.append(observe)
    return observe
