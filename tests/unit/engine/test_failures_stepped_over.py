"""Failures that do not end the superstep: skipped, isolated, or done by another executor."""

from __future__ import annotations

from typing import Any, Never

import pytest
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Boom,
    Context,
    Flaky,
    SkippingClock,
    chained,
    executor_outline,
    failing,
    fan,
    of_kind,
    relay,
    sink,
    worker,
)

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)

ALWAYS = 99


def broken(name: str = "broken", **policy: Any) -> Executor:
    """Sends, yields and writes, and then fails, every time."""

    async def work(message: Any, ctx: Context) -> None:
        ctx.set_state("by", name)
        ctx.private["by"] = name
        await ctx.send_message("never sent")
        await ctx.yield_output("never yielded")
        raise Boom(name)

    return worker(name, work, **policy)


# ---------------------------------------------------------------- stop


async def test_failure_without_a_policy_stops_the_run() -> None:
    for policy in ({}, {"on_error": "stop"}):
        with pytest.raises(Boom):
            await fan(broken(**policy), relay("calm")).run("x")


# ---------------------------------------------------------------- skip and isolate


@pytest.mark.parametrize(("mode", "joined"), [("skip", []), ("isolate", [["x-a", "x-c"]])])
async def test_join_waits_forever_after_skip_and_continues_after_isolate(mode: str, joined: list[Any]) -> None:
    result = await fan(relay("a"), broken(on_error=mode), relay("c")).run("x")
    assert result.get_outputs() == joined
    assert result.get_final_state() is WorkflowRunState.IDLE


@pytest.mark.parametrize("mode", ["skip", "isolate"])
async def test_skipped_delivery_leaves_no_trace(mode: str) -> None:
    storage = InMemoryCheckpointStorage()
    result = await chained(broken(on_error=mode), sink(), checkpoint_storage=storage).run("x", thread_id="t")
    assert result.get_outputs() == []
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    assert (head.state, head.executors, head.messages, head.suspended) == ({}, {}, {}, {})


async def test_skip_is_reported_in_the_stream_and_in_the_log() -> None:
    workflow = fan(broken(on_error="skip"), relay("calm"), checkpoint_storage=InMemoryCheckpointStorage())
    streamed = [event async for event in workflow.run("x", thread_id="t", stream=True)]
    async with workflow.open(thread_id="t") as handle:
        logged = [event async for event in handle.events(after=0)]
    for events in (streamed, logged):
        about = [event for event in events if event.executor_id == "broken" and event.type.startswith("executor_")]
        assert [event.type for event in about] == ["executor_invoked", "executor_failed", "executor_skipped"]
        assert about[-1].data == "skip"
        assert about[-1].details is not None and about[-1].details.message == "broken"


async def test_executor_skipped_event_names_the_policy_that_applied() -> None:
    modes: list[Any] = ["skip", "isolate", relay("spare")]
    results = [await chained(broken(on_error=mode), sink()).run("x") for mode in modes]
    assert [of_kind(result, "executor_skipped")[0].data for result in results] == ["skip", "isolate", "fallback spare"]


async def test_retries_come_first() -> None:
    flaky = Flaky(ALWAYS)
    result = await fan(failing("flaky", flaky, retry=AT_ONCE, on_error="isolate"), relay("calm")).run("x")
    assert len(flaky.calls) == 3
    assert result.get_outputs() == [["x-calm"]]


async def test_join_omits_an_isolated_sender_once_and_waits_for_it_the_next_time() -> None:
    flaky = Flaky(1)
    workflow = fan(failing("flaky", flaky, on_error="isolate"), relay("calm"))
    assert (await workflow.run("x", thread_id="t")).get_outputs() == [["x-calm"]]
    assert (await workflow.run("y", thread_id="t")).get_outputs() == [["y-flaky", "y-calm"]]


async def test_nothing_is_joined_when_every_sender_is_isolated() -> None:
    storage = InMemoryCheckpointStorage()
    siblings = [broken(name, on_error="isolate") for name in "ab"]
    result = await fan(*siblings, checkpoint_storage=storage).run("x", thread_id="t")
    assert result.get_outputs() == [] and result.get_final_state() is WorkflowRunState.IDLE
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.buffers == {}


async def test_join_does_not_wait_for_a_sender_that_was_isolated_earlier() -> None:
    """The others come a superstep later, and another process waits for them."""
    storage = InMemoryCheckpointStorage()
    stops = Flaky(1)

    def build() -> Workflow:
        source = worker("source", lambda message, ctx: ctx.send_message(message))
        early, late, later = broken(on_error="isolate"), relay("late"), failing("later", stops)
        builder = WorkflowBuilder(name="uneven", start_executor=source, checkpoint_storage=storage)
        builder.add_fan_out_edges(source, [early, late]).add_edge(late, later)
        join = worker("join", lambda message, ctx: ctx.yield_output((message, ctx.source_executor_ids)), accepts=list)
        return builder.add_fan_in_edges([early, later], join).build()

    with pytest.raises(Boom):
        await build().run("x", thread_id="t")
    assert (await build().run(thread_id="t")).get_outputs() == [(["x-late-later"], ["later"])]


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_deliveries_before_and_after_a_skipped_delivery_keep_their_effects(durability: Any) -> None:
    class Tally(Executor):
        def __init__(self) -> None:
            super().__init__("tally", on_error="skip")
            self.kept: list[str] = []

        @handler
        async def take(self, word: str, ctx: WorkflowContext[Never, Any]) -> None:
            self.kept.append(word)
            ctx.private["words"] = [*ctx.private.get("words", []), word]
            await ctx.yield_output((list(self.kept), ctx.private["words"]))
            if word == "bad":
                raise Boom

        async def on_checkpoint_save(self) -> dict[str, Any]:
            return {"kept": self.kept}

        async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
            self.kept = state["kept"]

    async def split(text: str, ctx: Context) -> None:
        for word in text.split():
            await ctx.send_message(word)

    workflow = chained(worker("split", split), Tally(), checkpoint_storage=InMemoryCheckpointStorage())
    result = await workflow.run("one bad two", durability=durability)
    assert result.get_outputs() == [(["one"], ["one"]), (["one", "two"], ["one", "two"])]


async def test_skipped_delivery_is_not_retried_after_a_sibling_fails_the_run() -> None:
    storage, skipped, stops = InMemoryCheckpointStorage(), Flaky(ALWAYS), Flaky(1)

    def build() -> Workflow:
        siblings = [failing("skipped", skipped, on_error="isolate"), failing("stops", stops)]
        return fan(*siblings, checkpoint_storage=storage)

    with pytest.raises(Boom):
        await build().run("x", thread_id="t")
    assert (await build().run(thread_id="t")).get_outputs() == [["x-stops"]]
    assert len(skipped.calls) == 1


async def test_a_policy_of_the_builder_counts() -> None:
    start = broken()
    result = await WorkflowBuilder(start_executor=start).with_policy(start, on_error="skip").build().run("x")
    assert executor_outline(result) == [("invoked", "broken"), ("failed", "broken"), ("skipped", "broken")]


async def test_base_exception_ends_the_run_under_any_policy() -> None:
    class Stop(BaseException):
        """Not an error: nothing that a policy may step over."""

    async def stop(message: Any, ctx: Context) -> None:
        raise Stop

    with pytest.raises(Stop):
        await chained(worker("stops", stop, on_error="skip", retry=AT_ONCE), sink()).run("x")


# ---------------------------------------------------------------- answers


class Asks(Executor):
    def __init__(self, **policy: Any) -> None:
        super().__init__("asks", **policy)

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info(message, str, request_id="q")

    @response_handler
    async def receive(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        raise Boom(answer)


async def test_an_answer_whose_handler_fails_is_skipped_like_a_message() -> None:
    workflow = WorkflowBuilder(start_executor=Asks(on_error="skip")).build()
    await workflow.run("why?", thread_id="t")
    result = await workflow.run(responses={"q": "because"}, thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert executor_outline(result)[-1] == ("skipped", "asks")


async def test_an_answer_that_the_fallback_cannot_take_stops_the_run() -> None:
    workflow = WorkflowBuilder(start_executor=Asks(on_error=relay("spare"))).build()
    await workflow.run("why?", thread_id="t")
    with pytest.raises(Boom, match="because"):
        await workflow.run(responses={"q": "because"}, thread_id="t")


async def test_an_answer_goes_to_a_fallback_that_can_take_it() -> None:
    class Receives(Executor):
        @handler
        async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None: ...

        @response_handler
        async def receive(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.yield_output(f"{question} {answer} {ctx.request_id}")

    workflow = WorkflowBuilder(start_executor=Asks(on_error=Receives("hears"))).build()
    await workflow.run("why?", thread_id="t")
    assert (await workflow.run(responses={"q": "because"}, thread_id="t")).get_outputs() == ["why? because q"]


async def test_an_answer_is_tried_again_with_its_question() -> None:
    tries: list[str] = []

    class Retries(Asks):
        @response_handler
        async def receive(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
            tries.append(f"{question} {answer} {ctx.request_id}")
            if len(tries) < 3:
                raise Boom
            await ctx.yield_output(tries[-1])

    storage = InMemoryCheckpointStorage()

    def build() -> Workflow:
        start = Retries(retry=RetryPolicy(3))
        return WorkflowBuilder(start_executor=start, checkpoint_storage=storage, clock=SkippingClock()).build()

    await build().run("why?", thread_id="t")
    result = await build().run(responses={"q": "because"}, thread_id="t")
    assert result.get_outputs() == ["why? because q"] and len(tries) == 3
