"""A fallback gets the message that another executor failed at, and stands in for it in the graph."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Boom,
    Context,
    Flaky,
    chained,
    executor_outline,
    failing,
    fan,
    relay,
    sink,
    worker,
)

from perdure import Executor, InMemoryCheckpointStorage, Message, RetryPolicy, Workflow, WorkflowBuilder
from perdure.testing import FakeClock

ALWAYS = 99


def broken(name: str = "broken", **policy: Any) -> Executor:
    return failing(name, Flaky(ALWAYS), **policy)


async def test_a_fallback_without_edges_sends_along_those_of_the_failed_executor() -> None:
    result = await chained(broken(on_error=relay("spare")), sink()).run("x")
    assert result.get_outputs() == ["x-spare"]


async def test_a_fallback_with_edges_of_its_own_sends_along_these() -> None:
    start, spare = broken(on_error="spare"), relay("spare")
    builder = WorkflowBuilder(start_executor=start).add_edge(start, sink("usual")).add_edge(spare, sink("instead"))
    result = await builder.with_policy(start, on_error=spare).build().run("x")
    assert [(event.executor_id, event.data) for event in result if event.type == "output"] == [("instead", "x-spare")]


async def test_the_fallback_runs_in_the_next_superstep_with_the_same_message() -> None:
    seen: list[Any] = []

    async def spoil(message: list[str], ctx: Context) -> None:
        message.append("spoiled")
        raise Boom

    spare = worker("spare", lambda message, ctx: seen.append((message, ctx.get_source_executor_id())))
    start = worker("start", lambda message, ctx: ctx.send_message(["clean"]))
    result = await chained(start, worker("spoils", spoil, on_error=spare), sink()).run("x")
    assert seen == [(["clean"], "start")]
    ran = [event.executor_id for event in result if event.type == "executor_invoked"]
    assert ran == ["start", "spoils", "spare"]
    assert sum(event.type == "superstep_completed" for event in result) == 3


async def test_join_takes_the_message_of_a_fallback_for_the_failed_sender() -> None:
    result = await fan(broken(on_error=relay("spare")), relay("calm")).run("x")
    assert result.get_outputs() == [["x-spare", "x-calm"]]


async def test_fallbacks_may_have_fallbacks() -> None:
    last = relay("last")
    result = await chained(broken("a", on_error=broken("b", on_error=broken("c", on_error=last))), sink()).run("x")
    assert result.get_outputs() == ["x-last"]
    assert [executor_id for kind, executor_id in executor_outline(result) if kind == "skipped"] == ["a", "b", "c"]


async def test_chain_of_fallbacks_sends_from_its_last_fallback() -> None:
    result = await chained(broken("a", on_error=relay("b", on_error=relay("c"))), sink()).run("x")
    assert result.get_outputs() == ["x-b"]


async def test_a_fallback_shared_by_two_executors_stands_in_for_each() -> None:
    source = worker("source", lambda message, ctx: ctx.send_message(message))
    spare = worker("spare", lambda message, ctx: ctx.send_message(message))
    left, right = broken("left", on_error=spare), broken("right", on_error=spare)
    builder = WorkflowBuilder(start_executor=source).add_fan_out_edges(source, [left, right])
    workflow = builder.add_edge(left, sink("of left")).add_edge(right, sink("of right")).build()
    result = await workflow.run("x")
    assert sorted(str(event.executor_id) for event in result if event.type == "output") == ["of left", "of right"]


async def test_join_continues_without_a_fallback_that_is_isolated() -> None:
    spare = broken("spare", on_error="isolate")
    result = await fan(broken(on_error=spare), relay("calm")).run("x")
    assert result.get_outputs() == [["x-calm"]]


async def test_a_fallback_has_a_policy_of_its_own() -> None:
    flaky = Flaky(2)
    result = await chained(broken(on_error=failing("spare", flaky, retry=AT_ONCE)), sink()).run("x")
    assert result.get_outputs() == ["x-spare"] and len(flaky.calls) == 3


async def test_a_fallback_that_fails_for_good_ends_the_run() -> None:
    with pytest.raises(Boom):
        await chained(broken(on_error=broken("spare")), sink()).run("x")


async def test_a_fallback_may_be_named_by_id() -> None:
    start, spare = broken(on_error="spare"), relay("spare")
    builder = WorkflowBuilder(start_executor=start).add_edge(start, sink()).register_executor(lambda: spare, "spare")
    assert (await builder.build().run("x")).get_outputs() == ["x-spare"]


class Agent:
    def __init__(self, name: str, failures: int = 0) -> None:
        self.name = name
        self.flaky = Flaky(failures)

    async def run(self, messages: list[Message]) -> str:
        self.flaky.meet(messages[-1].text)
        return f"{self.name}({messages[-1].text})"


async def test_an_agent_stands_in_for_an_agent() -> None:
    first, second = Agent("first", ALWAYS), Agent("second")
    builder = WorkflowBuilder(start_executor=first).with_policy(first, retry=AT_ONCE, on_error=second)
    result = await builder.add_edge(first, sink()).build().run("x")
    assert result.get_outputs()[-1].agent_response.text == "second(x)"
    assert first.flaky.calls == ["x"] * 3


async def test_a_fallback_due_at_a_crash_is_done_by_the_next_process() -> None:
    storage, first, spare = InMemoryCheckpointStorage(), Flaky(ALWAYS), Flaky(1)

    def build() -> Workflow:
        start = failing("start", first, on_error=failing("spare", spare))
        return chained(start, sink(), checkpoint_storage=storage, clock=FakeClock())

    with pytest.raises(Boom, match="attempt 1"):
        await build().run("x", thread_id="t")
    assert (await build().run(thread_id="t")).get_outputs() == ["x-spare"]
    assert len(first.calls) == 1, "what was given up is not tried again"


async def test_fallback_of_a_recorded_failure_runs_after_a_sibling_fails_the_run() -> None:
    storage, first, stops = InMemoryCheckpointStorage(), Flaky(ALWAYS), Flaky(1)

    def build() -> Workflow:
        siblings = [failing("first", first, on_error=relay("spare")), failing("stops", stops)]
        return fan(*siblings, checkpoint_storage=storage)

    with pytest.raises(Boom):
        await build().run("x", thread_id="t")
    assert (await build().run(thread_id="t")).get_outputs() == [["x-spare", "x-stops"]]
    assert len(first.calls) == 1


@pytest.mark.parametrize("is_same", [True, False], ids=["same object", "new object"])
async def test_fallback_completed_beside_a_failure_is_replayed_along_its_edges(
    is_same: bool,
) -> None:
    storage, spare, stops = InMemoryCheckpointStorage(), Flaky(0), Flaky(2)

    def build() -> Workflow:
        first = broken("first", on_error=failing("spare", spare))
        return fan(first, failing("stops", stops, retry=RetryPolicy(2, initial_delay=0)), checkpoint_storage=storage)

    workflow = build()
    with pytest.raises(Boom, match="attempt 2"):  # in the superstep in which the fallback ends
        await workflow.run("x", thread_id="t")
    result = await (workflow if is_same else build()).run(thread_id="t")
    assert result.get_outputs() == [["x-spare", "x-stops"]] and len(spare.calls) == 1
