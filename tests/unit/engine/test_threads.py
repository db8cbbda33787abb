"""Threads: one owner at a time, many side by side, and what was exchanged in one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.six_methods import SixMethods
from tests.unit.engine.flows import (
    Gate,
    Verdict,
    Weather,
    alone,
    asking,
    crossing,
    function,
    gated,
    relay,
    shouting,
)

from perdure import (
    InMemoryCheckpointStorage,
    MessageType,
    NoStorage,
    ThreadBusy,
    ThreadConflict,
    ThreadNotFound,
    Workflow,
    WorkflowBuilder,
    WorkflowRunResult,
    WorkflowRunState,
)


async def begun(workflow: Workflow, gate: Gate, **where: Any) -> asyncio.Future[WorkflowRunResult]:
    running: asyncio.Future[WorkflowRunResult] = asyncio.ensure_future(workflow.run("first", **where))
    await gate.arrived.wait()
    return running


async def test_second_run_on_a_busy_thread_is_rejected_and_the_first_continues() -> None:
    gate = Gate()
    workflow = gated(gate)
    running = await begun(workflow, gate, thread_id="t", run_id="the-first")
    with pytest.raises(ThreadBusy, match=r"Thread 't' is being run by run 'the-first'.*choose on_busy='enqueue'"):
        await workflow.run("second", thread_id="t")
    gate.opened.set()
    assert (await running).get_outputs() == ["first"]
    assert (await workflow.run("second", thread_id="t")).get_outputs() == ["second"]


async def test_a_busy_thread_is_noticed_through_another_workflow_object_too() -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()
    running = await begun(gated(gate, checkpoint_storage=storage), gate, thread_id="t")
    with pytest.raises(ThreadBusy):
        await gated(gate, checkpoint_storage=storage).run("second", thread_id="t")
    gate.opened.set()
    assert (await running).get_outputs() == ["first"]


async def test_enqueued_runs_take_their_turn_and_lose_nothing() -> None:
    gate = Gate()
    workflow = gated(gate)
    running = await begun(workflow, gate, thread_id="t")
    waiting = [asyncio.ensure_future(workflow.run(word, thread_id="t", on_busy="enqueue")) for word in "abc"]
    await asyncio.sleep(0)
    gate.opened.set()
    assert [(await run).get_outputs() for run in (running, *waiting)] == [["first"], ["a"], ["b"], ["c"]]


async def test_a_run_that_gave_up_waiting_does_not_hold_up_the_others() -> None:
    gate = Gate()
    workflow = gated(gate)
    running = await begun(workflow, gate, thread_id="t")
    impatient, patient = (asyncio.ensure_future(workflow.run(w, thread_id="t", on_busy="enqueue")) for w in "ab")
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    gate.opened.set()
    assert [(await run).get_outputs() for run in (running, patient)] == [["first"], ["b"]]


async def test_a_handler_that_runs_its_own_thread_is_refused_rather_than_stuck() -> None:
    itself: list[Workflow] = []

    async def run_itself(message: str, ctx: Any) -> None:
        with pytest.raises(ThreadBusy):
            await itself[0].run(message, thread_id=ctx.thread_id)
        await ctx.yield_output("refused")

    itself.append(alone(run_itself))
    assert (await itself[0].run("x")).get_outputs() == ["refused"]


async def test_an_interrupting_run_ends_the_other_and_loses_no_message() -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()
    workflow = gated(gate, checkpoint_storage=storage)
    running = await begun(workflow, gate, thread_id="t")
    second = asyncio.ensure_future(workflow.run("second", thread_id="t", on_busy="interrupt"))
    first = await running
    assert first.get_final_state() is WorkflowRunState.CANCELLED and first.get_outputs() == []
    gate.opened.set()
    assert (await second).get_outputs() == ["first", "second"]


async def test_threads_run_side_by_side_on_one_object() -> None:
    barrier = asyncio.Barrier(20)

    async def meet(message: str, ctx: Any) -> None:
        ctx.set_state("mine", message)
        await barrier.wait()
        await ctx.yield_output((ctx.thread_id, ctx.get_state("mine")))

    workflow = alone(meet, checkpoint_storage=InMemoryCheckpointStorage())
    results = await asyncio.gather(*(workflow.run(f"m{n}", thread_id=f"t{n}") for n in range(20)))
    assert [result.get_outputs() for result in results] == [[(f"t{n}", f"m{n}")] for n in range(20)]


async def test_a_run_that_was_taken_over_cannot_write_any_more() -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()
    running = await begun(gated(gate, checkpoint_storage=storage), gate, thread_id="t")
    taker = alone(lambda message, ctx: ctx.yield_output("taken"), checkpoint_storage=storage)
    assert (await taker.run(thread_id="t", takeover=True)).get_outputs() == ["taken"]
    gate.opened.set()
    with pytest.raises(ThreadConflict, match=r"was changed by another owner.*Nothing was stored"):
        await running
    assert (await taker.run(thread_id="t")).get_outputs() == ["taken"]


async def test_siblings_of_a_failure_are_cancelled_and_awaited() -> None:
    cleaned = asyncio.Event()
    blocked = asyncio.Event()

    async def wait(message: str, ctx: Any) -> None:
        blocked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    async def fail(message: str, ctx: Any) -> None:
        await blocked.wait()
        raise ValueError("as asked")

    start = relay("start")
    workers = [function("waits", wait), function("fails", fail)]
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, workers).build()
    with pytest.raises(ValueError, match="as asked"):
        await workflow.run("x")
    assert cleaned.is_set()


async def test_change_of_a_message_by_a_failed_handler_is_discarded() -> None:
    fails = [True]

    async def change(words: list[str], ctx: Any) -> None:
        words.append("changed")
        if fails[0]:
            raise ValueError("as asked")
        await ctx.yield_output(words)

    workflow = alone(change, accepts=list)
    with pytest.raises(ValueError, match="as asked"):
        await workflow.run(["sent"])
    fails[0] = False
    assert (await workflow.run()).get_outputs() == [["sent", "changed"]]


async def test_each_target_of_a_fan_out_has_a_message_of_its_own() -> None:
    async def change(words: list[str], ctx: Any) -> None:
        words.append(ctx.executor_id)
        await ctx.yield_output(words)

    start, first, second = relay("start"), function("one", change, accepts=list), function("two", change, accepts=list)
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [first, second]).build()
    assert (await workflow.run(["sent"])).get_outputs() == [["sent", "one"], ["sent", "two"]]


async def test_a_finished_sibling_of_a_failure_is_not_run_again() -> None:
    weather, calls = Weather(), []

    async def quick(message: str, ctx: Any) -> None:
        calls.append(message)
        await ctx.yield_output("quick")

    start = relay("start")
    workers = [function("quick", quick), function("bridge", weather.pass_through)]
    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
    workflow = builder.add_fan_out_edges(start, workers).build()
    with pytest.raises(ConnectionError):
        await workflow.run("x", thread_id="t")
    weather.is_bad = False
    result = await workflow.run(thread_id="t")
    assert sorted(result.get_outputs()) == ["quick", "x"] and calls == ["x"]
    assert [event.executor_id for event in result if event.type == "executor_bypassed"] == ["quick"]


async def test_storage_with_only_the_six_methods_warns_once_a_run() -> None:
    storage = SixMethods()
    workflow = shouting(checkpoint_storage=storage)
    for word in ("a", "b"):
        result = await workflow.run(word, thread_id="t")
        (text,) = [event.data for event in result if event.type == "warning"]
        assert "only the six methods" in text and "no journal" in text
    assert (await shouting(checkpoint_storage=storage).run(thread_id="t")).get_outputs() == ["<B>"]


# ---------------------------------------------------------------- messages


async def test_the_messages_of_a_thread_can_be_read_in_their_order() -> None:
    workflow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    for word in ("a", "b"):
        await workflow.run(word, thread_id="t")
    await workflow.run("other", thread_id="u")
    exchanged = [(message.source_id, message.target_id, message.data) for message in await workflow.messages("t")]
    routes = [("internal:shout", "shout"), ("shout", "deliver")]
    assert exchanged == [(*routes[0], "a"), (*routes[1], "A"), (*routes[0], "b"), (*routes[1], "B")]


async def test_answers_are_among_the_messages() -> None:
    workflow = asking(checkpoint_storage=InMemoryCheckpointStorage())
    await workflow.run("why")
    await workflow.run(responses={"why": Verdict(True)})
    asked, answer = await workflow.messages()
    assert (asked.type, answer.type) == (MessageType.STANDARD, MessageType.RESPONSE)
    assert answer.data == Verdict(True) and answer.original_request_info_event.request_id == "why"


async def test_messages_of_an_unknown_thread_or_without_a_storage_are_refused() -> None:
    with pytest.raises(ThreadNotFound, match="No thread 'nobody'"):
        await shouting(checkpoint_storage=InMemoryCheckpointStorage()).messages("nobody")
    with pytest.raises(NoStorage, match="Reading a thread's messages needs a checkpoint storage"):
        await shouting().messages("t")


async def test_messages_of_a_thread_include_a_message_in_flight_at_a_failure() -> None:
    workflow = crossing(Weather(), checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(ConnectionError):
        await workflow.run("cart", thread_id="t")
    assert [message.target_id for message in await workflow.messages("t")] == ["relay", "bridge"]


async def test_generated_thread_ids_are_time_ordered() -> None:
    ids = [(await shouting().run("x")).thread_id for _ in range(3)]
    assert len(set(ids)) == 3
    assert [thread_id.split("-")[0] for thread_id in ids] == sorted(thread_id.split("-")[0] for thread_id in ids)
