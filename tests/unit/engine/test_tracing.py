"""Spans: a tree for each run, one trace for each thread, and nothing at all while tracing is off."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Never

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode
from tests.unit.engine.flows import alone, function, relay, shouting, sink
from tests.unit.engine.nested import Ask
from tests.unit.engine.policy_flows import AT_ONCE, Boom, Flaky, worker
from tests.unit.engine.traced import Traced, all_text, attributes, tracing

from perdure import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    RunContext,
    SqliteCheckpointStorage,
    ThreadBusy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    workflow,
)
from perdure.engine.tracing import configure_from_environment, configure_tracing, link_to_caller, trace_ids
from perdure.errors import StorageFailed
from perdure.observing import RunEnded, observers

Context = WorkflowContext[Any, Any]


@pytest.fixture
def traced() -> Iterator[Traced]:
    with tracing() as collected:
        yield collected


def fanned_out(first: Any, second: Any, **options: Any) -> Workflow:
    start = relay("start")
    return (
        WorkflowBuilder(name="fan", start_executor=start, **options).add_fan_out_edges(start, [first, second]).build()
    )


# ---------------------------------------------------------------- the tree


async def test_steps_are_below_deliveries_below_supersteps_below_the_run(traced: Traced) -> None:
    met = asyncio.Barrier(2)

    async def work(message: Any, ctx: Context) -> None:
        await met.wait()  # both deliveries are under way
        await ctx.step(len, message)
        await met.wait()
        await ctx.yield_output(message)

    flow = fanned_out(function("b", work), function("c", work), checkpoint_storage=InMemoryCheckpointStorage())
    await flow.run("hi", thread_id="t", run_id="r")
    assert traced.tree() == [
        "workflow.run (idle)",
        "  workflow.superstep",
        "    executor.process start (completed)",
        "  workflow.superstep",
        "    executor.process b (completed)",
        "      step.process b/len (completed)",
        "    executor.process c (completed)",
        "      step.process c/len (completed)",
    ]
    assert len(traced.traces) == 1


async def test_spans_have_the_attributes_that_the_reference_knows(traced: Traced) -> None:
    await shouting(description="Louder.").run("hi", thread_id="t", run_id="r")
    run, second = traced.single("workflow.run"), traced.single("executor.process deliver")
    known = attributes(run)
    assert len(known.pop("workflow.id")) == 64
    assert known == {
        "workflow.name": "shouting",
        "workflow.description": "Louder.",
        "gen_ai.conversation.id": "t",
        "perdure.run_id": "r",
        "perdure.durability": "sync",
        "perdure.entry": "message",
        "perdure.outcome": "idle",
    }
    assert [event.name for event in run.events] == ["workflow.started", "workflow.completed"]
    assert attributes(second) == {
        "executor.id": "deliver",
        "executor.type": "FunctionExecutor",
        "message.source_id": "shout",
        "message.type": "standard",
        "message.payload_type": "str",
        "perdure.delivery_id": 2,
        "perdure.outcome": "completed",
    }


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_each_commit_is_a_span_of_the_superstep_that_made_it(traced: Traced, durability: Any) -> None:
    storage = InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=storage).run("hi", thread_id="t", durability=durability)
    commits = traced.named("checkpoint.commit")
    steps = {span.context.span_id for span in traced.named("workflow.superstep") if span.context is not None}
    made = [checkpoint.checkpoint_id for checkpoint in reversed(await storage.history("t"))]
    assert [attributes(span)["checkpoint.id"] for span in commits if "checkpoint.id" in attributes(span)] == made
    assert {attributes(span)["perdure.outcome"] for span in commits} == {"stored"}
    inside = [span for span in commits if span.parent is not None and span.parent.span_id in steps]
    assert len(inside) == (0 if durability == "exit" else 2)


async def test_a_sub_workflow_has_a_superstep_inside_of_its_parents(traced: Traced) -> None:
    first, last = relay("a"), sink("b")
    inner = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, last).build()
    child = WorkflowExecutor(inner, id="child")
    flow = WorkflowBuilder(name="outer", start_executor=child).add_edge(child, sink("end")).build()
    await flow.run("hi", thread_id="t")
    assert traced.tree() == [
        "workflow.run (idle)",
        "  workflow.superstep",
        "    executor.process child (started)",
        "  workflow.superstep",
        "    workflow.superstep",
        "      executor.process child/a (completed)",
        "  workflow.superstep",
        "    workflow.superstep",
        "      executor.process child/b (completed)",
        "  workflow.superstep",
        "    executor.process end (completed)",
    ]
    [span, _] = [span for span in traced.named("workflow.superstep") if "executor.id" in attributes(span)]
    assert attributes(span) == {"workflow.name": "inner", "executor.id": "child", "perdure.child_id": 1}


async def test_spans_of_user_code_are_children_of_the_delivery_or_step(traced: Traced) -> None:
    tracer = traced.provider.get_tracer("app")

    async def fetch() -> None:
        with tracer.start_as_current_span("fetch"):
            pass

    async def work(message: Any, ctx: Context) -> None:
        with tracer.start_as_current_span("own"):
            await ctx.step(fetch)

    await alone(work, accepts=str).run("hi")
    assert traced.tree()[2:] == [
        "    executor.process only (completed)",
        "      own",
        "        step.process only/fetch (completed)",
        "          fetch",
    ]


# ---------------------------------------------------------------- failures


async def test_a_failure_is_seen_on_the_delivery_the_superstep_and_the_run(traced: Traced) -> None:
    waits = asyncio.Event()

    async def fail(message: Any, ctx: Context) -> None:
        raise Boom("of " + message)

    flow = fanned_out(function("good", lambda *_: waits.wait()), function("bad", fail))
    with pytest.raises(Boom):
        await flow.run("secret-5", thread_id="t")
    assert traced.tree() == [
        "workflow.run (failed)",
        "  workflow.superstep",
        "    executor.process start (completed)",
        "  workflow.superstep (failed)",
        "    executor.process good (cancelled)",
        "    executor.process bad (failed)",
    ]
    for span in (
        traced.single("workflow.run"),
        traced.named("workflow.superstep")[1],
        traced.single("executor.process bad"),
    ):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == f"{Boom.__module__}.Boom"
        [noted] = [event for event in span.events if event.name == "exception"]
        assert "in fail" in str(dict(noted.attributes or {})["exception.stacktrace"])
    assert traced.single("executor.process good").status.status_code is StatusCode.UNSET


async def test_spans_hold_content_only_with_sensitive_tracing() -> None:
    async def fail(message: Any, ctx: Context) -> None:
        raise Boom(f"cannot take {message}")

    async def ask(message: Any, ctx: Context) -> None:
        await ctx.step(len, message)
        await ctx.request_info(message, str, request_id="q")

    for sensitive in (False, True):
        with tracing(sensitive=sensitive) as traced:
            for work in (fail, ask):
                flow = alone(work)
                try:
                    await flow.run("secret-5", thread_id="t")
                except Boom:
                    pass
            assert ("secret-5" in all_text(traced.spans)) is sensitive
            assert len(traced.named("request.ask")) == 1
            known = attributes(traced.named("executor.process only")[0])
            assert known.get("executor.input") == ("'secret-5'" if sensitive else None)


async def test_each_attempt_of_a_delivery_is_a_span(traced: Traced) -> None:
    flaky = Flaky(1)
    only = worker("only", lambda *_: flaky.meet(), retry=AT_ONCE)
    await WorkflowBuilder(start_executor=only).build().run("hi")
    first, second = traced.named("executor.process only")
    assert attributes(first)["perdure.outcome"] == "retrying" and first.status.status_code is StatusCode.ERROR
    assert attributes(second)["perdure.outcome"] == "completed" and second.status.status_code is StatusCode.UNSET
    assert traced.single("workflow.run").status.status_code is StatusCode.UNSET


async def test_each_attempt_of_a_step_is_a_span(traced: Traced) -> None:
    flaky = Flaky(2)

    async def work(message: Any, ctx: Context) -> None:
        await ctx.step(flaky.meet, name="meet", retry=AT_ONCE)

    await alone(work).run("hi")
    attempts = [attributes(span) for span in traced.named("step.process only/meet")]
    assert [(span["perdure.attempt"], span["perdure.outcome"]) for span in attempts] == [
        (1, "failed"),
        (2, "failed"),
        (3, "completed"),
    ]


async def test_a_failure_in_a_sub_workflow_marks_its_superstep(traced: Traced) -> None:
    async def fail(message: Any, ctx: Context) -> None:
        raise Boom

    inner = WorkflowBuilder(name="inner", start_executor=function("bad", fail)).build()
    with pytest.raises(Exception, match="inner"):
        await WorkflowBuilder(name="outer", start_executor=WorkflowExecutor(inner, id="child")).build().run("hi")
    assert [span.status.status_code.name for span in traced.spans if "executor.id" in attributes(span)] == [
        "UNSET",  # the delivery that started it
        "ERROR",  # its superstep
        "ERROR",  # the delivery in it
    ]


async def test_a_commit_that_fails_is_seen(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryCheckpointStorage()

    async def full(commit: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(storage.store, "commit", full)
    with pytest.raises(StorageFailed):
        await shouting(checkpoint_storage=storage).run("hi", thread_id="t")
    first = traced.named("checkpoint.commit")[0]
    assert attributes(first)["perdure.outcome"] == "not stored"
    assert attributes(first)["error.type"] == "perdure.errors.StorageFailed"


async def test_span_of_a_rejected_run_has_outcome_refused(traced: Traced) -> None:
    going, done = asyncio.Event(), asyncio.Event()

    async def work(message: Any, ctx: Context) -> None:
        going.set()
        await done.wait()

    flow = alone(work)
    first = asyncio.create_task(flow.run("a", thread_id="t"))
    await going.wait()
    with pytest.raises(ThreadBusy):
        await flow.run("b", thread_id="t")
    done.set()
    await first
    assert {attributes(span)["perdure.outcome"] for span in traced.named("workflow.run")} == {"refused", "idle"}


async def test_spans_of_a_cancelled_run_are_not_errors(traced: Traced) -> None:
    going = asyncio.Event()

    async def work(message: Any, ctx: Context) -> None:
        going.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(alone(work).run("a"))
    await going.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert traced.tree() == [
        "workflow.run (cancelled)",
        "  workflow.superstep (cancelled)",
        "    executor.process only (cancelled)",
    ]
    assert {span.status.status_code for span in traced.spans} == {StatusCode.UNSET}


def test_run_in_a_closed_event_loop_is_abandoned_without_a_log_record(
    traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(message: Any, ctx: Context) -> None:
        await ctx.step(asyncio.Event().wait)

    loop = asyncio.new_event_loop()
    run = alone(work).run("hi").__await__()
    loop.run_until_complete(_begin(run))
    loop.close()
    run.close()
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert attributes(traced.single("workflow.run"))["perdure.outcome"] == "abandoned"


async def _begin(run: Iterator[Any]) -> None:
    next(run)


# ---------------------------------------------------------------- one thread, one trace


async def test_all_runs_of_a_thread_are_one_trace_that_its_id_names(traced: Traced) -> None:
    flow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    for thread_id in ("ada", "ada", "bob"):
        await flow.run("hi", thread_id=thread_id)
    runs = [span.context.trace_id for span in traced.named("workflow.run") if span.context is not None]
    ada, bob = (int(hashlib.sha256(name).hexdigest()[:32], 16) for name in (b"ada", b"bob"))
    assert runs == [ada, ada, bob]
    assert trace_ids("ada")[0] == ada
    assert traced.traces == {ada, bob}


async def test_run_is_linked_to_the_span_of_its_caller(traced: Traced) -> None:
    with traced.provider.get_tracer("app").start_as_current_span("caller") as caller:
        await shouting().run("hi", thread_id="t")
        assert trace.get_current_span() is caller
    [link] = traced.single("workflow.run").links
    assert link.context == caller.get_span_context()
    assert traced.single("workflow.run").context != caller.get_span_context()


async def test_a_run_is_linked_to_the_caller_that_a_header_names(traced: Traced) -> None:
    with link_to_caller({"traceparent": f"00-{7:032x}-{9:016x}-01"}):
        task = asyncio.create_task(shouting().run("hi", thread_id="t"))
    await task
    [link] = traced.single("workflow.run").links
    assert (link.context.trace_id, link.context.span_id) == (7, 9)
    with link_to_caller({"traceparent": "nonsense"}):
        await shouting().run("hi", thread_id="u")
    assert [len(span.links) for span in traced.named("workflow.run")] == [1, 0]


async def test_a_sampler_decides_about_a_thread_as_a_whole() -> None:
    half = ParentBased(TraceIdRatioBased(0.5))
    with tracing(half) as traced:
        flow = shouting()
        for thread_id in [f"t{number}" for number in range(40)] * 2:
            await flow.run("hi", thread_id=thread_id)
        seen = [attributes(span)["gen_ai.conversation.id"] for span in traced.named("workflow.run")]
    assert 5 < len(set(seen)) < 35
    assert sorted(seen) == sorted([*set(seen), *set(seen)])
    with tracing(ParentBased(TraceIdRatioBased(0))) as traced:
        await shouting().run("hi", thread_id="t")
    assert not traced.spans


# ---------------------------------------------------------------- requests, and other processes


async def test_request_makes_a_span_when_asked_and_a_span_when_settled(traced: Traced) -> None:
    flow = WorkflowBuilder(start_executor=Ask(request_id="q")).build()
    await flow.run("why", thread_id="t")
    await flow.run(responses={"q": "so"}, thread_id="t")
    asked, settled = traced.single("request.ask"), traced.single("request.settle")
    assert asked.kind is SpanKind.PRODUCER and settled.kind is SpanKind.CONSUMER
    assert attributes(asked) == {
        "request.id": "q",
        "request.type": "Question",
        "response.type": "str",
        "executor.id": "ask",
    }
    assert attributes(settled)["perdure.outcome"] == "answered"
    assert [attributes(span)["perdure.outcome"] for span in traced.named("workflow.run")] == ["waiting", "idle"]
    assert attributes(traced.named("workflow.run")[1])["perdure.entry"] == "responses"
    assert len(traced.traces) == 1


@workflow
async def confirm(name: str, ctx: RunContext) -> str:
    letters = await ctx.step(len, name)
    answer = await ctx.request_info(name, str, request_id="q")
    return f"{letters} {answer}"


ANSWERS = """
import asyncio, json, sys
from tests.unit.engine.test_tracing import SqliteCheckpointStorage, confirm
from tests.unit.engine.traced import tracing

async def main():
    async with SqliteCheckpointStorage(sys.argv[1]) as storage:
        with tracing() as traced:
            await confirm.run(responses={"q": "yes"}, thread_id="t", checkpoint_storage=storage)
            print(json.dumps({"tree": traced.tree(), "traces": [*traced.traces], "events": [
                event.name for span in traced.spans for event in span.events]}))

asyncio.run(main())
"""


async def test_request_answered_by_another_process_continues_the_same_trace(traced: Traced, tmp_path: Path) -> None:
    place = str(tmp_path / "threads.db")
    async with SqliteCheckpointStorage(place) as storage:
        await confirm.run("Ada", thread_id="t", checkpoint_storage=storage)
    assert traced.tree() == [
        "workflow.run (waiting)",
        "  workflow.superstep",
        "    executor.process confirm (suspended)",
        "      step.process len (completed)",
        "    request.ask",
    ]
    other = json.loads(await in_another_process(ANSWERS, place))
    assert other["tree"] == [
        "workflow.run (idle)",
        "  request.settle (answered)",
        "  workflow.superstep",
        "    executor.process confirm (completed)",
    ]
    assert set(other["traces"]) == traced.traces
    assert "step.bypassed" in other["events"]


async def in_another_process(code: str, *arguments: str, **environment: str) -> str:
    root = Path(__file__).parents[3]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        timeout=19,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- off, and on

RUNS = """
import sys
from typing import Never
from perdure import WorkflowBuilder, WorkflowContext, executor, run_sync

@executor(id="greet")
async def greet(name: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.step(len, name)
    await ctx.yield_output(f"hello {name}")

run_sync(WorkflowBuilder(start_executor=greet).build().run("Ada"))
print([one for one in sys.modules if one.startswith("opentelemetry")] != [])
"""


async def test_run_without_tracing_does_not_import_opentelemetry() -> None:
    assert await in_another_process(RUNS, PERDURE_TRACING="") == "False\n"
    assert await in_another_process(RUNS, PERDURE_TRACING="1") == "True\n"


async def test_tracing_without_opentelemetry_names_the_package_to_install() -> None:
    code = f"""
import sys
sys.modules["opentelemetry"] = None
from perdure.errors import MissingExtra
try:
    from perdure.engine.tracing import configure_tracing
    configure_tracing()
except MissingExtra as error:
    print(error)
{RUNS}"""
    assert "pip install 'perdure[otel]'" in await in_another_process(code, PERDURE_TRACING="")


@pytest.mark.parametrize("count", [1, 30])
async def test_run_of_any_length_without_tracing_calls_no_tracing_function(count: int, tmp_path: Path) -> None:
    called: list[str] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and (
            "/engine/tracing" in file or "/engine/watch" in file or file.endswith("/perdure/observing.py")
        ):
            called.append(frame.f_code.co_name)

    async def work(left: Any, ctx: Context) -> None:
        await ctx.step(abs, left)
        await (ctx.send_message(left - 1) if left else ctx.yield_output("done"))

    only = function("only", work, accepts=int)
    flow = WorkflowBuilder(start_executor=only, checkpoint_storage=FileCheckpointStorage(tmp_path)).add_edge(only, only)
    built = flow.build()
    sys.setprofile(watch)
    try:
        await built.run(count, thread_id="t")
    finally:
        sys.setprofile(None)
    assert not called


async def test_tracing_that_is_switched_off_makes_no_spans(traced: Traced) -> None:
    configure_tracing(False)
    await shouting().run("hi")
    assert not traced.spans


def test_invalid_provider_is_rejected_and_changes_nothing(traced: Traced) -> None:
    with pytest.raises(TypeError, match="has no get_tracer"):
        configure_tracing("jaeger")
    asyncio.run(_run())
    assert traced.spans


async def _run() -> None:
    await shouting().run("hi")


def test_invalid_tracing_setting_logs_a_warning_and_leaves_tracing_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PERDURE_TRACING", "jaeger")
    with caplog.at_level(logging.WARNING, "perdure"):
        configure_from_environment()
    assert "PERDURE_TRACING=jaeger is not 1, 0 or sensitive" in caplog.text


async def test_the_global_provider_may_be_set_after_tracing_was_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced()
    configure_tracing()
    try:
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: traced.provider)
        await shouting().run("hi")
    finally:
        configure_tracing(False)
    assert traced.named("workflow.run")


# ---------------------------------------------------------------- observers


async def test_failing_observer_does_not_harm_the_run_or_other_observers(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    def broken(observation: Any) -> Never:
        raise Boom("of an observer")

    observers.extend([broken, seen.append])
    try:
        with caplog.at_level(logging.WARNING, "perdure"):
            result = await shouting().run("hi")
    finally:
        observers.clear()
    assert result.get_outputs() == ["<HI>"]
    assert isinstance(seen[-1], RunEnded) and seen[-1].outcome == "idle"
    assert "an observer failed at RunEnded: Boom" in caplog.text
