"""Metrics in the text format of Prometheus: of the server, and of the engine in its process."""

from __future__ import annotations

import re
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
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

# ---------------------------------------------------------------- tallies


try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("The server", "prometheus-client", "server") from error

Labels = tuple[str, ...]


class CounterMetric:
    """Goes up."""

    kind: Any = CounterMetricFamily

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._about = name, text
        self._labels = labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, count: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + count

    def family(self) -> Any:
        found = self.kind(*self._about, labels=self._labels)
        for labels, value in tuple(self._values.items()):
            found.add_metric(labels, value)
        return found


class GaugeMetric(CounterMetric):
    """Goes up and down."""

    kind = GaugeMetricFamily


class HistogramMetric:
    """How often a value fell between which bounds, and the sum of them."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> None:
        self._about = name, text
        self._bounds = bounds
        self._labels = labels
        self._names = [*map(_bound_name, bounds), "+Inf"]
        self._values: dict[Labels, list[float]] = {}
        if not labels:
            self._counts(())

    def _counts(self, labels: Labels) -> list[float]:
        found = self._values.get(labels)
        if found is None:
            found = self._values[labels] = [0] * (len(self._bounds) + 2)
        return found

    def add(self, value: float, *labels: str) -> None:
        counts = self._values.get(labels) or self._counts(labels)
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value

    def family(self) -> Any:
        found = HistogramMetricFamily(*self._about, labels=self._labels)
        for labels, counts in tuple(self._values.items()):
            *within, total = counts
            summed, so_far = [], 0.0
            for name, count in zip(self._names, within, strict=True):
                so_far += count
                summed.append((name, so_far))
            found.add_metric(labels, summed, total)
        return found


class Tallies(Collector):
    """All of them. Added to without a lock: where several threads do so at the same time, a count may be lost."""

    def __init__(self) -> None:
        self._all: list[CounterMetric | HistogramMetric] = []

    def tally(self, name: str, text: str, labels: Sequence[str] = ()) -> CounterMetric:
        self._all.append(made := CounterMetric(name, text, labels))
        return made

    def level(self, name: str, text: str) -> GaugeMetric:
        self._all.append(made := GaugeMetric(name, text))
        return made

    def spread(self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> HistogramMetric:
        self._all.append(made := HistogramMetric(name, text, labels, bounds=bounds))
        return made

    def collect(self) -> Iterator[Any]:
        return (one.family() for one in self._all)


def _bound_name(bound: float) -> str:
    return str(float(bound))


try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, ProcessCollector
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
        self._tallies = Tallies()
        self._labels: dict[str, set[str]] = {}
        self._make_of_server()
        self._make_of_engine()
        self._registry.register(self._tallies)
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
        """`perdure_<name>`, asked for whenever metrics are rendered: such as `runs.waiting` of the server."""
        Gauge(f"perdure_{name}", text, registry=self._registry).set_function(value)

    # ------------------------------------------------------------ the server

    def _make_of_server(self) -> None:
        tallies = self._tallies
        self._http = tallies.tally("perdure_http_requests", "HTTP requests", ("method", "route", "status"))
        self._http_seconds = tallies.spread(
            "perdure_http_request_seconds",
            "Until the answer was sent; of a stream, until it ended",
            ("method", "route"),
            bounds=REQUEST_SECONDS,
        )
        self._streams = tallies.level("perdure_streams_open", "Event streams and sockets that are open")
        self._served = tallies.tally("perdure_served_runs", "Runs of clients", ("workflow", "outcome"))
        self._served_seconds = tallies.spread(
            "perdure_served_run_seconds",
            "Of a client's run, its time in the queue included",
            ("workflow",),
            bounds=RUN_SECONDS,
        )
        self._served_started = tallies.tally(
            "perdure_served_runs_started", "Runs of clients that left the queue", ("workflow",)
        )

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route`: the template, such as `/v1/threads/{thread_id}`, never the path with its ids."""
        method = method if method in METHODS else OTHER
        route = self._bounded("route", route)
        self._http.add(method, route, str(status))
        self._http_seconds.add(seconds, method, route)

    def stream_opened(self) -> None:
        self._streams.add()

    def stream_closed(self) -> None:
        self._streams.add(count=-1)

    def run_started(self, workflow: str) -> None:
        self._served_started.add(self._bounded("workflow", workflow))

    def run_ended(self, workflow: str, outcome: str, seconds: float) -> None:
        workflow = self._bounded("workflow", workflow)
        self._served.add(workflow, outcome.lower())
        self._served_seconds.add(seconds, workflow)

    # ------------------------------------------------------------ the engine

    def _make_of_engine(self) -> None:
        tallies = self._tallies
        self._runs = tallies.tally("perdure_runs", "Runs that ended", ("workflow", "outcome"))
        self._run_seconds = tallies.spread("perdure_run_seconds", "Of a run", ("workflow",), bounds=RUN_SECONDS)
        self._active = tallies.level("perdure_runs_active", "Runs that own their thread now")
        self._queued = tallies.level("perdure_runs_queued", "Runs that wait for their thread")
        self._queued_seconds = tallies.spread(
            "perdure_run_queued_seconds", "A run's wait for its thread", bounds=RUN_SECONDS
        )
        self._lost = tallies.tally("perdure_lease_losses", "Runs whose thread was taken from them")
        self._supersteps = tallies.tally("perdure_supersteps", "Supersteps", ("workflow", "outcome"))
        self._superstep_seconds = tallies.spread(
            "perdure_superstep_seconds", "Of a superstep, its commit included", bounds=REQUEST_SECONDS
        )
        self._commit_seconds = tallies.spread(
            "perdure_commit_seconds", "Until a commit was stored, its time in the line included", bounds=COMMIT_SECONDS
        )
        self._commit_failures = tallies.tally("perdure_commit_failures", "Commits that were not stored")
        self._commits_on_the_way = tallies.level(
            "perdure_commits_unsaved", "Commits that are not stored yet: the lag of durability=async"
        )
        self._commit_bytes = tallies.spread(
            "perdure_commit_bytes", "What a commit adds, as encoded", bounds=COMMIT_BYTES
        )
        self._asked = tallies.tally("perdure_requests_asked", "Requests to people", ("workflow",))
        self._settled = tallies.tally(
            "perdure_requests_settled", "Requests that do not wait any more", ("workflow", "outcome")
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
        self._queued.add()

    def _run_began(self, run: RunBegan) -> None:
        self._queued.add(count=-1)
        self._active.add()
        self._queued_seconds.add(run.waited)

    def _run_ended(self, run: RunEnded) -> None:
        (self._active if run.owned else self._queued).add(count=-1)
        workflow = self._bounded("workflow", run.workflow)
        self._runs.add(workflow, run.outcome)
        self._run_seconds.add(run.seconds, workflow)
        if run.outcome == "conflict":
            self._lost.add()

    def _superstep_ended(self, superstep: SuperstepEnded) -> None:
        outcome = "discarded" if superstep.is_discarded else "committed"
        self._supersteps.add(self._bounded("workflow", superstep.workflow), outcome)
        self._superstep_seconds.add(superstep.seconds)

    def _commit_began(self, _: CommitBegan) -> None:
        self._commits_on_the_way.add()

    def _commit_ended(self, commit: CommitEnded) -> None:
        self._commits_on_the_way.add(count=-1)
        if commit.is_stored:
            self._commit_seconds.add(commit.seconds)
        else:
            self._commit_failures.add()

    def _commit_written(self, commit: CommitWritten) -> None:
        self._commit_bytes.add(commit.size)

    def _request_asked(self, request: RequestAsked) -> None:
        self._asked.add(self._bounded("workflow", request.workflow))

    def _request_settled(self, request: RequestSettled) -> None:
        self._settled.add(self._bounded("workflow", request.workflow), request.how)

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
