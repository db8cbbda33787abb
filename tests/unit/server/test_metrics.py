"""The metrics of the engine and the server, in the format of Prometheus."""

from __future__ import annotations

import asyncio
import gc
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.engine.flows import alone, shouting
from tests.unit.engine.nested import Ask
from tests.unit.engine.policy_flows import Boom

from perdure import InMemoryCheckpointStorage, ThreadConflict, WorkflowBuilder
from perdure.errors import StorageFailed
from perdure.observing import observers
from perdure.server.metrics import MAX_LABEL_VALUES, Metrics


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics()
    yield made
    made.close()


def read(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return read(metrics).get((f"perdure_{name}", frozenset(labels.items())), 0)


async def turns_until(is_so: Callable[[], bool]) -> None:
    """Lets other tasks run until the condition is true. A gauge cannot be awaited, and a few turns suffice."""
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was")


# ---------------------------------------------------------------- the engine


async def test_runs_supersteps_and_commits_are_counted(metrics: Metrics) -> None:
    flow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    await flow.run("hi", thread_id="t")
    assert value(metrics, "runs_total", workflow="shouting", outcome="idle") == 1
    assert value(metrics, "run_seconds_count", workflow="shouting") == 1
    assert value(metrics, "supersteps_total", workflow="shouting", outcome="committed") == 2
    assert value(metrics, "commit_seconds_count") == 3  # the input, and each superstep
    assert 0 < value(metrics, "commit_seconds_sum") < value(metrics, "run_seconds_sum", workflow="shouting")
    gauges = ("runs_active", "runs_queued", "commits_unsaved")
    assert [value(metrics, name) for name in gauges] == [0, 0, 0]


async def test_bytes_of_commits_are_counted(metrics: Metrics) -> None:
    flow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    await flow.run("hi", thread_id="small")
    small = value(metrics, "commit_bytes_sum")
    assert value(metrics, "commit_bytes_count") == 3 and small > 0
    noise = random.Random(7).randbytes(100_000).hex()  # a store may compress
    await flow.run(noise, thread_id="large")
    assert value(metrics, "commit_bytes_sum") - small > 100_000


async def test_unsaved_commits_are_counted_while_they_are_written(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, may_write = InMemoryCheckpointStorage(), asyncio.Event()
    write = storage.store.commit

    async def slow(commit: Any) -> None:
        if commit.number > 1:
            await may_write.wait()
        await write(commit)

    monkeypatch.setattr(storage.store, "commit", slow)
    flow = shouting(checkpoint_storage=storage)
    run = asyncio.create_task(flow.run("hi", thread_id="t", durability="async"))
    await turns_until(lambda: value(metrics, "commits_unsaved") == 2)
    may_write.set()
    await run
    assert value(metrics, "commits_unsaved") == 0
    assert value(metrics, "commit_failures_total") == 0


async def test_failures_are_counted_by_run_superstep_and_commit(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(message: Any, ctx: Any) -> None:
        raise Boom

    with pytest.raises(Boom):
        await alone(fail).run("hi")
    assert value(metrics, "runs_total", workflow="alone", outcome="failed") == 1
    assert value(metrics, "supersteps_total", workflow="alone", outcome="discarded") == 1

    storage = InMemoryCheckpointStorage()

    async def full(commit: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(storage.store, "commit", full)
    with pytest.raises(StorageFailed):
        await shouting(checkpoint_storage=storage).run("hi", thread_id="t")
    assert value(metrics, "commit_failures_total") >= 1
    assert value(metrics, "commits_unsaved") == 0


async def test_run_whose_thread_was_taken_over_counts_as_a_lease_loss(metrics: Metrics) -> None:
    storage, going, taken = InMemoryCheckpointStorage(), asyncio.Event(), asyncio.Event()

    async def work(message: Any, ctx: Any) -> None:
        if message == "slow":
            going.set()
            await taken.wait()

    slow = asyncio.create_task(alone(work, checkpoint_storage=storage).run("slow", thread_id="t"))
    await going.wait()
    await storage.store.open("t", "somebody", takeover=True)
    taken.set()
    with pytest.raises(ThreadConflict):
        await slow
    assert value(metrics, "lease_losses_total") == 1
    assert value(metrics, "runs_total", workflow="alone", outcome="conflict") == 1


async def test_runs_that_wait_for_their_thread_are_counted_as_queued(metrics: Metrics) -> None:
    going, done = asyncio.Event(), asyncio.Event()

    async def work(message: Any, ctx: Any) -> None:
        going.set()
        await done.wait()

    flow = alone(work)
    first = asyncio.create_task(flow.run("a", thread_id="t"))
    await going.wait()
    second = asyncio.create_task(flow.run("b", thread_id="t", on_busy="enqueue"))
    third = asyncio.create_task(flow.run("c", thread_id="t", on_busy="enqueue"))
    await turns_until(lambda: value(metrics, "runs_queued") == 2)
    assert value(metrics, "runs_active") == 1
    third.cancel()
    done.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert (value(metrics, "runs_active"), value(metrics, "runs_queued")) == (0, 0)
    assert value(metrics, "runs_total", workflow="alone", outcome="cancelled") == 1
    assert value(metrics, "run_queued_seconds_count") == 2


async def test_asked_and_settled_requests_are_counted(metrics: Metrics) -> None:
    flow = WorkflowBuilder(name="asks", start_executor=Ask(request_id="q")).build()
    await flow.run("why", thread_id="t")
    assert value(metrics, "requests_asked_total", workflow="asks") == 1
    assert value(metrics, "runs_total", workflow="asks", outcome="waiting") == 1
    assert value(metrics, "requests_settled_total", workflow="asks", outcome="answered") == 0
    await flow.run(responses={"q": "so"}, thread_id="t")
    assert value(metrics, "requests_settled_total", workflow="asks", outcome="answered") == 1


# ---------------------------------------------------------------- the server


def test_http_requests_are_counted_by_route_method_and_status(metrics: Metrics) -> None:
    metrics.request_ended("GET", "/v1/threads/{thread_id}", 200, 0.25)
    metrics.request_ended("GET", "/v1/threads/{thread_id}", 404, 0.25)
    metrics.request_ended("BREW", "/v1/threads/{thread_id}", 405, 0.25)
    route = {"route": "/v1/threads/{thread_id}"}
    assert value(metrics, "http_requests_total", method="GET", status="404", **route) == 1
    assert value(metrics, "http_requests_total", method="other", status="405", **route) == 1
    assert value(metrics, "http_request_seconds_sum", method="GET", **route) == 0.5


def test_streams_and_runs_of_clients_are_counted(metrics: Metrics) -> None:
    waiting = [3]
    metrics.gauge("server_runs_waiting", "Runs of clients that wait", lambda: waiting[0])
    metrics.stream_opened()
    metrics.stream_opened()
    metrics.stream_closed()
    metrics.run_started("w")
    metrics.run_ended("w", "IDLE", 0.5)
    assert value(metrics, "streams_open") == 1
    assert value(metrics, "served_runs_total", workflow="w", outcome="idle") == 1
    assert value(metrics, "served_runs_started_total", workflow="w") == 1
    assert value(metrics, "served_run_seconds_sum", workflow="w") == 0.5
    waiting[0] = 4
    assert value(metrics, "server_runs_waiting") == 4


def test_number_of_label_values_is_limited(metrics: Metrics) -> None:
    for number in range(MAX_LABEL_VALUES + 50):
        metrics.run_ended(f"w{number}", "IDLE", 0.5)
    assert value(metrics, "served_runs_total", workflow="other", outcome="idle") == 50


def test_workflow_whose_name_ends_with_created_is_shown(metrics: Metrics) -> None:
    metrics.run_ended("order_created", "IDLE", 0.5)
    assert value(metrics, "served_runs_total", workflow="order_created", outcome="idle") == 1
    assert not [name for name, _ in read(metrics) if name.endswith("_created")]


def test_each_metrics_has_its_own_registry_and_not_the_global_registry(metrics: Metrics) -> None:
    other = Metrics()
    other.stream_opened()
    assert (value(other, "streams_open"), value(metrics, "streams_open")) == (1, 0)
    other.close()
    assert not [metric.name for metric in REGISTRY.collect() if metric.name.startswith("perdure")]


def test_closed_or_collected_metrics_are_no_longer_observers() -> None:
    before = len(observers)
    closed, forgotten = Metrics(), Metrics()
    assert len(observers) == before + 2
    closed.close()
    closed.close()
    del forgotten
    gc.collect()
    assert len(observers) == before


def test_reference_page_names_every_metric_and_no_other(metrics: Metrics) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "metrics-and-spans.md"
    named = set(re.findall(r"`(perdure_\w+)`", page.read_text(encoding="utf-8")))
    metrics.gauge("server_runs", "", lambda: 0)  # those of the service
    metrics.gauge("server_runs_waiting", "", lambda: 0)
    made = set(re.findall(r"# TYPE (perdure_\w+)", metrics.render().decode()))
    assert named == made
