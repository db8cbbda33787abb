"""Promise 2: finished siblings of a superstep that failed are replayed from the journal; only the others run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.promises.stages import Again, Boom, Does, Relay, Sink, Stage, Tally, fan, kinds
from tests.unit.engine.policy_flows import SkippingClock, asleep, cancelled, started

from perdure import (
    Executor,
    RetryPolicy,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    step,
    workflow as as_workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import FakeClock


async def fail_in(workflow: Workflow, stage: Stage, *failing: str, message: str = "x", after: int = 0) -> None:
    """Run until these fail, once `after` outcomes are in the journal; afterwards they no longer fail."""
    stage.failing, stage.fails_after = set(failing), stage.recorded + after
    with pytest.raises(Boom):
        await workflow.run(message, thread_id="t")
    stage.failing = set()


async def test_only_the_failed_sibling_runs_again(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    workflow = fan(stage, storage)
    await fail_in(workflow, stage, "c", after=2)
    result = await again(workflow, lambda: fan(stage, storage)).run(thread_id="t")
    assert stage.calls == ["source(x)", *(f"{name}(x-source)" for name in "abcc"), f"join({result.get_outputs()[0]})"]
    assert result.get_outputs() == (await fan(Stage()).run("x")).get_outputs()


async def test_the_journal_also_serves_a_workflow_without_storage() -> None:
    stage = Stage()
    workflow = fan(stage)
    await fail_in(workflow, stage, "c")
    result = await workflow.run(thread_id="t")
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert [stage.called(name) for name in "abc"] == [1, 1, 2]


async def test_replayed_deliveries_are_reported_as_bypassed(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    workflow = fan(stage, storage)
    await fail_in(workflow, stage, "b", after=2)
    result = await again(workflow, lambda: fan(stage, storage)).run(thread_id="t")
    event_types = {event.executor_id: event.type for event in result if event.executor_id in ("a", "b", "c")}
    assert event_types == {"a": "executor_bypassed", "b": "executor_completed", "c": "executor_bypassed"}


async def test_resuming_the_head_by_its_checkpoint_id_replays_too(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    workflow = fan(stage, storage)
    await fail_in(workflow, stage, "c", after=2)
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    result = await again(workflow, lambda: fan(stage, storage)).run(checkpoint_id=head.checkpoint_id)
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert [stage.called(name) for name in "abc"] == [1, 1, 2]


async def test_the_journal_grows_over_several_failures(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    stage.close("b")
    workflow = fan(stage, storage)
    await fail_in(workflow, stage, "c", after=1)
    assert stage.cancelled == ["b"]
    stage.gates["b"].set()
    stage.failing, stage.fails_after = {"c"}, stage.recorded + 1
    workflow = again(workflow, lambda: fan(stage, storage))
    with pytest.raises(Boom):
        await workflow.run(thread_id="t")
    stage.failing = set()
    result = await again(workflow, lambda: fan(stage, storage)).run(thread_id="t")
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert [stage.called(name) for name in "abc"] == [1, 2, 3]


async def test_new_run_arguments_on_resume_do_not_lose_the_journal(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    await fail_in(fan(stage, storage), stage, "c", after=2)
    stage.failing, stage.fails_after = {"c"}, 0
    with pytest.raises(Boom):
        await fan(stage, storage).run(thread_id="t", client_kwargs={"region": "eu"})
    stage.failing = set()
    await fan(stage, storage).run(thread_id="t")
    assert [stage.called(name) for name in "abc"] == [1, 1, 3]


async def test_finished_siblings_of_a_cancelled_superstep_are_not_run_again(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    stage.close("c")
    workflow = fan(stage, storage)
    running = asyncio.create_task(workflow.run("x", thread_id="t"))
    await stage.entered["c"].wait()
    running.cancel()
    await asyncio.wait([running])
    stage.gates["c"].set()
    result = await again(workflow, lambda: fan(stage, storage)).run(thread_id="t")
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert [stage.called(name) for name in "abc"] == [1, 1, 2]


async def test_takeover_sees_what_the_last_owner_recorded(storage: StoreCheckpointStorage) -> None:
    """The first object stands at the same commit as before, but the journal has grown since it looked."""
    stage = Stage()
    stage.watch_journal(storage)
    stage.close("b", "c")
    first, second = fan(stage, storage), fan(stage, storage)
    await fail_in(first, stage, "a")  # nothing is recorded: the others wait at their gates
    stage.close("c")
    stage.gates["b"].set()
    stalled = asyncio.create_task(second.run(thread_id="t"))
    await stage.entered["c"].wait()
    await stage.wait_for_records(2)
    before = [stage.called(name) for name in "ab"]
    gate = stage.gates.pop("c")
    result = await first.run(thread_id="t", takeover=True)
    gate.set()
    await asyncio.wait([stalled])
    assert stalled.exception() is not None
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert [stage.called(name) for name in "ab"] == before


# ---------------------------------------------------------------- everything that a delivery did


async def busy(message: str, ctx: WorkflowContext[Any, Any]) -> None:
    """Has every kind of effect."""
    ctx.set_state("set", [message])
    ctx.delete_state("gone")
    ctx.get_state("list").append("changed in place")
    ctx.private["mine"] = message
    ctx.private.setdefault("times", []).append(1)
    await ctx.yield_output(f"{message} early")
    await ctx.request_info("sure?", str, request_id="sure")
    await ctx.send_message({"sent": [message]})


def busy_sibling(stage: Stage, storage: Any, calls: list[str]) -> Workflow:
    async def begin(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        for key in ("gone", "list"):
            ctx.set_state(key, [key])
        await ctx.send_message(message)

    async def once(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        calls.append(message)
        await busy(message, ctx)

    source, sibling, failing = Does("source", begin), Does("busy", once), Relay("fails", stage)
    return (
        WorkflowBuilder(name="busy", start_executor=source, checkpoint_storage=storage)
        .add_fan_out_edges(source, [sibling, failing])
        .add_edge(sibling, Sink("sink"))
        .build()
    )


async def test_every_effect_of_a_replayed_delivery_counts_once(storage: StoreCheckpointStorage, again: Again) -> None:
    stage, calls = Stage(), list[str]()
    stage.watch_journal(storage)
    workflow = busy_sibling(stage, storage, calls)
    await fail_in(workflow, stage, "fails", after=1)
    result = await again(workflow, lambda: busy_sibling(stage, storage, calls)).run(thread_id="t")
    assert calls == ["x"]
    assert result.get_outputs() == ["x early", {"sent": ["x"]}]
    assert [event.data for event in result if event.type == "output"] == result.get_outputs(), "and is emitted"
    assert [event.request_id for event in result.get_request_info_events()] == ["sure"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    assert head.state == {"set": ["x"], "list": ["list", "changed in place"]}
    assert head.executors["busy"].private == {"mine": "x", "times": [1]}


# ---------------------------------------------------------------- executors that keep something in `self`


class TallyByContext(Tally):
    """Its hooks take `ctx`, and keep the total in private state."""

    async def on_checkpoint_save(self, ctx: Any) -> dict[str, Any]:  # type: ignore[override]  # hooks may take ctx
        ctx.private["total"] = self.total
        return {}

    async def on_checkpoint_restore(self, state: dict[str, Any], ctx: Any) -> None:  # type: ignore[override]  # as above
        self.total = ctx.private["total"]


@pytest.mark.parametrize("kind", [Tally, TallyByContext])
async def test_an_executors_own_memory_is_right_after_replay(
    storage: StoreCheckpointStorage, again: Again, kind: type[Tally]
) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    workflow = fan(stage, storage, kind=kind)
    await workflow.run("first", thread_id="t")
    await fail_in(workflow, stage, "c", after=2)
    workflow = again(workflow, lambda: fan(stage, storage, kind=kind))
    assert (await workflow.run(thread_id="t")).get_outputs() == ["a=2+b=2+c=2"]
    workflow = again(workflow, lambda: fan(stage, storage, kind=kind))
    assert (await workflow.run("third", thread_id="t")).get_outputs() == ["a=3+b=3+c=3"]
    assert [stage.called(name) for name in "abc"] == [3, 3, 4]


# ---------------------------------------------------------------- several deliveries to one executor


def two_in_a_lane(stage: Stage, storage: Any) -> Workflow:
    """split sends every word to the one `lane`, which fails at the word that the stage names."""

    class Lane(Tally):
        @handler
        async def count(self, message: str, ctx: WorkflowContext[str]) -> None:
            self.total += 1
            ctx.set_state("words", [*ctx.get_state("words", []), message])
            ctx.private["last"] = message
            await self.stage.play(message, self.total)
            await ctx.send_message(f"{message}{self.total}{ctx.private['last']}")

    async def split(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        for word in message.split():
            await ctx.send_message(word)

    lane: Executor = Lane("lane", stage)
    builder = WorkflowBuilder(name="two", start_executor=Does("split", split), checkpoint_storage=storage)
    return builder.add_edge("split", lane).add_edge(lane, Sink("sink")).build()


async def test_lane_continues_at_the_failed_delivery(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    workflow = two_in_a_lane(stage, storage)
    await fail_in(workflow, stage, "two", message="one two three", after=1)
    result = await again(workflow, lambda: two_in_a_lane(stage, storage)).run(thread_id="t")
    assert result.get_outputs() == ["one1one", "two2two", "three3three"]
    assert stage.calls == ["one(1)", "two(2)", "two(2)", "three(3)"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"words": ["one", "two", "three"]}


async def test_the_journal_goes_with_the_commit_that_settles_it(storage: StoreCheckpointStorage) -> None:
    """A delivery of a later superstep or run is never mistaken for a recorded one."""
    stage = Stage()
    stage.watch_journal(storage)
    workflow = fan(stage, storage)
    await fail_in(workflow, stage, "c", after=2)
    await workflow.run(thread_id="t")
    result = await fan(stage, storage).run("y", thread_id="t")
    assert result.get_outputs() == ["y-source-a+y-source-b+y-source-c"]
    assert "executor_bypassed" not in kinds(result)


async def test_restoring_an_older_checkpoint_runs_its_deliveries_again(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    workflow = fan(stage, storage)
    await fail_in(workflow, stage, "c", after=2)
    entry = (await storage.list_checkpoint_infos(thread_id="t"))[0]
    result = await workflow.run(checkpoint_id=entry)
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert [stage.called(name) for name in ("source", *"abc")] == [2, 2, 2, 2]


# ---------------------------------------------------------------- policies, sleepers, sub-workflows, functions


async def nap(message: str, ctx: WorkflowContext[Any, Any]) -> None:
    await ctx.sleep(10)
    await ctx.send_message(f"{message}-napped")


def disturbed_siblings(sibling: Executor, stage: Stage, storage: Any) -> Workflow:
    """source -> the sibling and one that fails once -> sink; waiting takes no time."""
    source, fails, sink = Relay("source", stage), Relay("fails", stage), Sink("sink")
    builder = WorkflowBuilder(
        name="disturbed", start_executor=source, checkpoint_storage=storage, clock=SkippingClock()
    )
    return builder.add_fan_out_edges(source, [sibling, fails]).add_edge(sibling, sink).add_edge(fails, sink).build()


async def test_retried_sibling_continues_at_its_next_attempt(storage: StoreCheckpointStorage, again: Again) -> None:
    """Its first attempt was recorded before the other sibling failed: of its two, one is left."""
    stage, attempts = Stage(), list[str]()
    stage.watch_journal(storage)

    async def flaky(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        attempts.append(message)
        raise Boom(f"attempt {len(attempts)}")

    def build() -> Workflow:
        source, sibling, fails = Relay("source", stage), Does("flaky", flaky), Relay("fails", stage)
        builder = WorkflowBuilder(name="retried", start_executor=source, checkpoint_storage=storage)
        builder.add_fan_out_edges(source, [sibling, fails])
        return builder.with_policy(sibling, retry=RetryPolicy(2, initial_delay=0)).build()

    workflow = build()
    await fail_in(workflow, stage, "fails", after=1)
    with pytest.raises(Boom, match="attempt 2"):
        await again(workflow, build).run(thread_id="t")


async def test_sleeper_continues_after_its_failed_sibling_is_repaired(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    stage, calls = Stage(), list[str]()
    stage.watch_journal(storage)

    async def once(word: str) -> str:
        calls.append(word)
        return word

    async def work(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.step(once, "before")
        await nap(message, ctx)
        await ctx.step(once, "after")

    def build() -> Workflow:
        return disturbed_siblings(Does("naps", work), stage, storage)

    workflow = build()
    await fail_in(workflow, stage, "fails", after=2)  # the step, and that it fell asleep
    result = await again(workflow, build).run(thread_id="t")
    assert sorted(result.get_outputs()) == ["x-source-fails", "x-source-napped"]
    assert calls == ["before", "after"]


async def test_a_delivery_committed_while_another_slept_is_not_run_again(any_storage: Any, again: Again) -> None:
    stage, clock = Stage(), FakeClock()

    def build() -> Workflow:
        source, calm, sink = Relay("source", stage), Relay("calm", stage), Sink("sink")
        naps = Does("naps", nap)
        builder = WorkflowBuilder(name="naps", start_executor=source, checkpoint_storage=any_storage, clock=clock)
        return builder.add_fan_out_edges(source, [naps, calm]).add_edge(naps, sink).add_edge(calm, sink).build()

    workflow = build()
    run = started(workflow.run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(10)
    result = await again(workflow, build).run(thread_id="t")
    assert result.get_outputs() == ["x-source-calm", "x-source-napped"]
    assert stage.calls == ["source(x)", "calm(x-source)"]


async def test_a_finished_sub_workflow_sibling_is_not_run_again(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    stage.watch_journal(storage)

    def build() -> Workflow:
        inner = Relay("inner", stage)
        child = WorkflowBuilder(name="child", start_executor=inner).add_edge(inner, Sink("out")).build()
        return disturbed_siblings(WorkflowExecutor(child, "sub"), stage, storage)

    workflow = build()
    await fail_in(workflow, stage, "fails", after=1)
    result = await again(workflow, build).run(thread_id="t")
    assert sorted(result.get_outputs()) == ["x-source-fails", "x-source-inner"]
    assert stage.called("inner") == 1


async def test_steps_of_a_function_beside_a_failing_sibling_are_not_called_again(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    stage, calls = Stage(), list[str]()
    stage.watch_journal(storage)

    @step
    async def fetch(word: str) -> str:
        calls.append(word)
        return word.upper()

    @as_workflow(name="function")
    async def function(message: str, ctx: RunContext) -> str:
        first = await fetch("a")
        await ctx.sleep(10)
        return first + await fetch("b")

    def build() -> Workflow:
        return disturbed_siblings(WorkflowExecutor(function, "function"), stage, storage)

    workflow = build()
    await fail_in(workflow, stage, "fails")
    result = await again(workflow, build).run(thread_id="t")
    assert sorted(result.get_outputs()) == ["AB", "x-source-fails"]
    assert sorted(calls) == ["a", "b"]
