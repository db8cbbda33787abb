"""Policies of sub-workflows, and answers and deadlines that reach children late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.turns import turns
from tests.unit.engine.function_flows import Calls
from tests.unit.engine.nested import THREAD, Desk, answered_by, around, asking
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Flaky,
    SkippingClock,
    chained,
    executor_outline,
    failing,
    relay,
    sink,
    worker,
)

from perdure import InMemoryCheckpointStorage, WorkflowBuilder, WorkflowExecutor, WorkflowRunState, workflow
from perdure.errors import StorageFailed, SubWorkflowFailed
from perdure.testing import FakeClock, Faults

# ---------------------------------------------------------------- failures that are no policy's business


def counting(calls: Calls) -> Any:
    """A child of three steps that gives back its input."""
    add = calls.step()

    @workflow(name="counting")
    async def flow(message: str) -> str:
        for number in range(3):
            await add(number)
        return message

    return flow


@pytest.mark.parametrize(
    "policy",
    [{}, {"on_error": "skip"}, {"on_error": "isolate"}, {"retry": AT_ONCE}],
    ids=["no policy", "skip", "isolate", "retry"],
)
async def test_failing_storage_inside_a_child_fails_the_run_and_keeps_its_steps(policy: dict[str, Any]) -> None:
    calls, faults = Calls(), Faults()
    flow = around(counting(calls), faults.wrap(InMemoryCheckpointStorage()), **policy)
    faults.fail("journal", nth=2, error=OSError("disk full"))
    with pytest.raises(StorageFailed):
        await flow.run("x", thread_id=THREAD)
    result = await flow.run(thread_id=THREAD)
    assert result.get_outputs() == ["x"]
    assert calls == [0, 1, 1, 2], "only the step that could not be recorded is called again"


class Leveled(Exception):
    """An error of a user, with an attribute whose name the engine might think its own."""

    level = "ERROR"


async def test_an_error_may_have_attributes_of_any_name() -> None:
    def fail(*_: Any) -> None:
        raise Leveled

    child = chained(worker("inner", fail), sink("end"))
    with pytest.raises(SubWorkflowFailed) as raised:
        await around(child).run("x")
    assert isinstance(raised.value.__cause__, Leveled)
    assert (await around(child, on_error="skip").run("x")).get_outputs() == []


# ---------------------------------------------------------------- fallbacks, timeouts and the log


@pytest.mark.parametrize("on_error", ["stop", "isolate"])
async def test_sub_workflow_fallback_uses_the_edges_of_the_failed_executor(on_error: str) -> None:
    broken = sink("inner") if on_error == "stop" else failing("inner", Flaky(9))
    fallback = WorkflowExecutor(chained(relay("first"), broken), "fallback", on_error=on_error)
    start = relay("start")
    failed, other = failing("failed", Flaky(9), on_error=fallback), relay("other")
    join = worker("join", lambda message, ctx: ctx.yield_output(sorted(message)), accepts=list)
    builder = WorkflowBuilder(name="joined", start_executor=start).add_fan_out_edges(start, [failed, other])
    result = await builder.add_fan_in_edges([failed, other], join).build().run("x")
    sent = ["x-start-first"] if on_error == "stop" else []
    assert result.get_outputs() == [[*sent, "x-start-other"]]


async def test_the_timeout_of_a_child_does_not_count_the_time_of_others() -> None:
    clock, start, slow_start = FakeClock(), relay("start"), relay("slow start")
    sub = WorkflowExecutor(chained(relay("one"), sink("two")), "sub", allow_direct_output=True, timeout=5)

    async def take_long(message: Any, ctx: Any) -> None:
        await turns(100)  # the child has done its part by then
        clock.advance(15)

    slow = worker("slow", take_long)
    builder = WorkflowBuilder(name="timed", start_executor=start, clock=clock)
    builder.add_fan_out_edges(start, [sub, slow_start])
    result = await builder.add_edge(slow_start, slow).build().run("x")
    assert result.get_outputs() == ["x-start-one"]


@pytest.mark.parametrize("policy", [{"on_error": "skip"}, {"retry": AT_ONCE}], ids=["skip", "retry"])
async def test_log_names_the_inner_executor_that_failed(policy: dict[str, Any]) -> None:
    flaky = failing("inner", Flaky())
    flow = around(chained(flaky, sink("end")), InMemoryCheckpointStorage(), **policy)
    await flow.run("x", thread_id=THREAD)
    async with flow.open(thread_id=THREAD) as handle:
        logged = executor_outline([event async for event in handle.events(after=0)])
    at = logged.index(("failed", "sub/inner"))
    assert ("invoked", "sub/inner") in logged[:at]
    assert ("failed", "sub") in logged[at:]


# ---------------------------------------------------------------- questions of children, answered too late


async def test_answer_of_the_parent_after_the_deadline_is_dropped_with_a_warning() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    child = asking(deadline=clock.now() + timedelta(seconds=5), default="nobody")
    flow = answered_by(Desk("desk"), child, storage, clock=clock)
    (request,) = (await flow.run("who", thread_id=THREAD)).get_request_info_events()
    clock.advance(6)
    result = await flow.run(responses={str(request.request_id): "bob"}, thread_id=THREAD)
    assert result.get_outputs() == ["who=nobody"]
    assert any("dropped" in str(event.data) for event in result if event.type == "warning")
    again = await flow.run(thread_id=THREAD)
    assert again.get_final_state() is WorkflowRunState.IDLE


async def test_deadline_of_a_childs_question_passes_while_the_run_sleeps() -> None:
    clock = SkippingClock()
    times: list[float] = []
    start, last = relay("start"), worker("last", lambda *_: times.append(clock.monotonic()), accepts=str)
    deadline = clock.now() + timedelta(seconds=5)
    sub = WorkflowExecutor(asking(deadline=deadline, default="nobody"), "sub")
    napping = worker("napping", lambda message, ctx: ctx.sleep(1000))
    builder = WorkflowBuilder(name="waiting", start_executor=start, clock=clock)
    await builder.add_fan_out_edges(start, [sub, napping]).add_edge(sub, last).build().run("who")
    assert (times, clock.monotonic()) == ([5.0], 1000.0)
