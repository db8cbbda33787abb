"""Metrics of the server and of the engine in its process, in the text format of Prometheus."""

from __future__ import annotations

import re
import weakref
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

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
M = TypeVar("M", bound="CounterMetric | HistogramMetric")

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

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._about = name, text
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

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> None:
        self._about = name, text
        self._bounds = bounds
        self._labels = labels
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._values: dict[Labels, list[float]] = {}
        if not labels:
            self._counts(())

    def _counts(self, labels: Labels) -> list[float]:
        counts = self._values.get(labels)
        if counts is None:
            counts = self._values[labels] = [0] * (len(self._bounds) + 2)
        return counts

    def add(self, value: float, *labels: str) -> None:
        counts = self._values.get(labels) or self._counts(labels)
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value

    def family(self) -> Any:
        family = HistogramMetricFamily(*self._about, labels=self._labels)
        for labels, counts in tuple(self._values.items()):
            *within, total = counts
            summed, so_far = [], 0.0
            for name, count in zip(self._names, within, strict=True):
                so_far += count
                summed.append((name, so_far))
            family.add_metric(labels, summed, total)
        return family


class MetricCollector(Collector):
    """All metrics. Updates take no lock: concurrent updates from several threads may lose a count."""

    def __init__(self) -> None:
        self._all: list[CounterMetric | HistogramMetric] = []

    def add(self, metric: M) -> M:
        self._all.append(metric)
        return metric

    def collect(self) -> Iterator[Any]:
        return (metric.family() for metric in self._all)


class Metrics:
    """Counts from its creation until `close`.

    It has its own registry, so several apps in one process do not collide. Each app counts the whole engine.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._collector = MetricCollector()
        self._labels: defaultdict[str, set[str]] = defaultdict(set)
        self._create_server_metrics()
        self._create_engine_metrics()
        self._registry.register(self._collector)
        ProcessCollector(registry=self._registry)
        self._detach = weakref.finalize(self, _stop_observing, _observe_weakly(self))

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
        add = self._collector.add
        self._http = add(CounterMetric("perdure_http_requests", "HTTP requests", ("method", "route", "status")))
        self._http_seconds = add(
            HistogramMetric(
                "perdure_http_request_seconds",
                "Time to the end of the response; for a stream, to its end",
                ("method", "route"),
                bounds=REQUEST_SECONDS,
            )
        )
        self._streams = add(GaugeMetric("perdure_streams_open", "Open event streams and sockets"))
        self._served = add(CounterMetric("perdure_served_runs", "Runs of clients", ("workflow", "outcome")))
        self._served_seconds = add(
            HistogramMetric(
                "perdure_served_run_seconds",
                "Time of a client's run, including the queue",
                ("workflow",),
                bounds=RUN_SECONDS,
            )
        )
        self._served_started = add(
            CounterMetric("perdure_served_runs_started", "Clients' runs that left the queue", ("workflow",))
        )

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
        add = self._collector.add
        self._runs = add(CounterMetric("perdure_runs", "Runs that ended", ("workflow", "outcome")))
        self._run_seconds = add(
            HistogramMetric("perdure_run_seconds", "Time of a run", ("workflow",), bounds=RUN_SECONDS)
        )
        self._active = add(GaugeMetric("perdure_runs_active", "Runs that own their thread"))
        self._queued = add(GaugeMetric("perdure_runs_queued", "Runs that wait for their thread"))
        self._queued_seconds = add(
            HistogramMetric("perdure_run_queued_seconds", "Time that a run waited for its thread", bounds=RUN_SECONDS)
        )
        self._lost = add(CounterMetric("perdure_lease_losses", "Runs that lost their thread to another run"))
        self._supersteps = add(CounterMetric("perdure_supersteps", "Supersteps", ("workflow", "outcome")))
        self._superstep_seconds = add(
            HistogramMetric(
                "perdure_superstep_seconds", "Time of a superstep, including its commit", bounds=REQUEST_SECONDS
            )
        )
        self._commit_seconds = add(
            HistogramMetric(
                "perdure_commit_seconds", "Time to store a commit, including the queue", bounds=COMMIT_SECONDS
            )
        )
        self._commit_failures = add(CounterMetric("perdure_commit_failures", "Failed commits"))
        self._commits_unsaved = add(
            GaugeMetric("perdure_commits_unsaved", "Commits not stored yet: the lag of durability=async")
        )
        self._commit_bytes = add(
            HistogramMetric("perdure_commit_bytes", "Encoded size of a commit", bounds=COMMIT_BYTES)
        )
        self._asked = add(CounterMetric("perdure_requests_asked", "Requests to people", ("workflow",)))
        self._settled = add(
            CounterMetric("perdure_requests_settled", "Requests that are no longer pending", ("workflow", "outcome"))
        )
        self.handlers: dict[type, Callable[[Any], None]] = {
            RunWaits: lambda _: self._queued.add(),
            RunBegan: self._run_began,
            RunEnded: self._run_ended,
            SuperstepEnded: self._superstep_ended,
            CommitBegan: lambda _: self._commits_unsaved.add(),
            CommitEnded: self._commit_ended,
            CommitWritten: lambda commit: self._commit_bytes.add(commit.size),
            RequestAsked: lambda request: self._asked.add(self._bound_label("workflow", request.workflow)),
            RequestSettled: self._request_settled,
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

    def _request_settled(self, request: RequestSettled) -> None:
        self._settled.add(self._bound_label("workflow", request.workflow), request.how)

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


def _stop_observing(observe: Callable[[Observation], None]) -> None:
    if observe in observers:
        observers.remove(observe)
