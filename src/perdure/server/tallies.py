"""Counts that cost next to nothing to add to, rendered in the format of Prometheus when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import MissingExtra

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("The server", "prometheus-client", "server") from error

Labels = tuple[str, ...]


class Tally:
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


class Level(Tally):
    """Goes up and down."""

    kind = GaugeMetricFamily


class Spread:
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
        self._all: list[Tally | Spread] = []

    def tally(self, name: str, text: str, labels: Sequence[str] = ()) -> Tally:
        self._all.append(made := Tally(name, text, labels))
        return made

    def level(self, name: str, text: str) -> Level:
        self._all.append(made := Level(name, text))
        return made

    def spread(self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> Spread:
        self._all.append(made := Spread(name, text, labels, bounds=bounds))
        return made

    def collect(self) -> Iterator[Any]:
        return (one.family() for one in self._all)


def _bound_name(bound: float) -> str:
    return str(float(bound))
