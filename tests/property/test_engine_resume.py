"""Whatever disturbs a run, its thread ends as if nothing had: same outputs in order, same state, nothing run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import example, given, strategies as st
from tests.property.engine_graphs import (
    IN_PLACE,
    INTERLEAVED,
    SLOW_HOOK,
    THREAD,
    Attempt,
    Ledger,
    Plan,
    Probe,
    Rest,
    Wire,
    answer,
    cancelled_after,
    drive,
    failing,
    final,
    history,
    left_after,
    plans,
)
from tests.six_methods import SixMethods

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowCheckpoint, WorkflowRunResult

POINTS = st.lists(st.integers(0, 30), min_size=1, max_size=4)
STORAGES = st.sampled_from((InMemoryCheckpointStorage, SixMethods))


async def calm(plan: Plan, storage: Any = None) -> tuple[list[Rest], list[str]]:
    """The undisturbed run: its rests, and the calls of handlers in order."""
    ledger = Ledger()
    workflow = plan.build(ledger, storage)
    return await drive(plan, lambda: workflow), ledger.finished


def repeated(calls: list[str]) -> list[str]:
    return [call for call, count in Counter(calls).items() if count > 1]


def rests_from(checkpoint: WorkflowCheckpoint, rests: list[Rest], run_ids: list[str | None]) -> list[Rest]:
    """The rests that a thread resumed there still comes to: each run led to one."""
    return rests[run_ids.index(checkpoint.run_id) :]


@given(plans())
async def test_an_undisturbed_run_executes_each_delivery_once_and_ends_idle(plan: Plan) -> None:
    rests, calls = await calm(plan, InMemoryCheckpointStorage())
    assert rests[-1].status == "IDLE"
    assert all(rest.status == "IDLE_WITH_PENDING_REQUESTS" for rest in rests[:-1])
    assert repeated(calls) == []


@example(INTERLEAVED, InMemoryCheckpointStorage, True)
@given(plans(), STORAGES, st.booleans())
async def test_fork_of_any_checkpoint_ends_as_the_original_and_repeats_nothing(
    plan: Plan, make_storage: Callable[[], Any], with_new_objects: bool
) -> None:
    storage, ledger = make_storage(), Ledger()
    workflow = plan.build(ledger, storage)
    rests, calls = await drive(plan, lambda: workflow), list(ledger.finished)
    end, past = await final(storage), await history(storage)
    run_ids = list(dict.fromkeys(checkpoint.run_id for checkpoint in past))
    done = 0
    for place, checkpoint in enumerate(past):
        ledger.finished.clear()
        thread = f"fork-{place}"
        begin: dict[str, Any] = {"checkpoint_id": checkpoint.checkpoint_id, "fork": True, "thread_id": thread}
        resumed = await drive(
            plan, lambda: plan.build(ledger, storage) if with_new_objects else workflow, thread=thread, **begin
        )
        assert resumed == rests_from(checkpoint, rests, run_ids)
        assert await final(storage, thread) == end
        assert sorted(ledger.finished) == sorted(calls[done:])
        done += len(checkpoint.deliveries)


@given(plans())
async def test_rewind_of_one_object_to_any_checkpoint_ends_as_the_first_time(plan: Plan) -> None:
    storage, ledger = InMemoryCheckpointStorage(), Ledger()
    workflow = plan.build(ledger, storage)
    rests = await drive(plan, lambda: workflow)
    end, past = await final(storage), await history(storage)
    run_ids = list(dict.fromkeys(checkpoint.run_id for checkpoint in past))
    for checkpoint in reversed(past):
        resumed = await drive(plan, lambda: workflow, checkpoint_id=checkpoint.checkpoint_id)
        assert resumed == rests_from(checkpoint, rests, run_ids)
        assert await final(storage) == end


async def disturbed(plan: Plan, attempt: Attempt, storage: Any, *, with_new_objects: bool, fails: bool) -> Ledger:
    """A disturbed run ends as a calm one. `with_new_objects`: each attempt has a workflow object of its own."""
    calm_storage = InMemoryCheckpointStorage()
    rests, calls = await calm(plan, calm_storage)
    ledger = Ledger(may_fail=fails)
    same = plan.build(ledger, storage)
    again = await drive(plan, lambda: plan.build(ledger, storage) if with_new_objects else same, attempt)
    assert again == rests
    assert await final(storage) == await final(calm_storage)
    if isinstance(storage, InMemoryCheckpointStorage):
        assert sorted(ledger.finished) == sorted(calls)
    else:
        assert set(ledger.finished) == set(calls)  # without a journal a superstep is repeated whole
    return ledger


@given(plans(), POINTS, st.booleans(), st.booleans())
async def test_a_stream_left_at_any_event_is_resumed_to_the_same_end(
    plan: Plan, counts: list[int], with_new_objects: bool, fails: bool
) -> None:
    await disturbed(
        plan, left_after(counts), InMemoryCheckpointStorage(), with_new_objects=with_new_objects, fails=fails
    )


@example(INTERLEAVED, [7, 4], True, False)
@given(plans(), POINTS, st.booleans(), st.booleans())
async def test_a_task_cancelled_at_any_await_is_resumed_to_the_same_end(
    plan: Plan, turns: list[int], with_new_objects: bool, fails: bool
) -> None:
    await disturbed(
        plan, cancelled_after(turns), InMemoryCheckpointStorage(), with_new_objects=with_new_objects, fails=fails
    )


@example(IN_PLACE, True)
@example(IN_PLACE, False)
@example(SLOW_HOOK, True)
@given(plans(), st.booleans())
async def test_failures_resumed_until_done_give_the_same_end_and_repeat_nothing(
    plan: Plan, with_new_objects: bool
) -> None:
    await disturbed(plan, failing, InMemoryCheckpointStorage(), with_new_objects=with_new_objects, fails=True)


@given(plans(), POINTS, st.booleans(), st.booleans())
async def test_a_storage_with_six_methods_is_resumed_to_the_same_end(
    plan: Plan, turns: list[int], with_new_objects: bool, fails: bool
) -> None:
    await disturbed(plan, cancelled_after(turns), SixMethods(), with_new_objects=with_new_objects, fails=fails)


@given(plans(), st.sampled_from(("async", "exit")), POINTS)
async def test_every_durability_gives_the_same_end_after_any_interruption(
    plan: Plan, durability: str, turns: list[int]
) -> None:
    rests, calls = await calm(plan)
    storage, ledger, attempt = InMemoryCheckpointStorage(), Ledger(may_fail=True), cancelled_after(turns)

    async def run(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
        return await attempt(workflow, {**options, "durability": durability})

    assert await drive(plan, lambda: plan.build(ledger, storage), run) == rests
    assert set(ledger.finished) == set(calls)


def without_joins(plan: Plan) -> Plan:
    """What a join puts together depends on what arrives first, and an early answer changes that."""
    wires: list[Wire] = []
    for wire in plan.wires:
        alone = [Wire("edge", (source,), wire.targets) for source in wire.sources]
        wires += alone if wire.kind == "fan_in" else [wire]
    return replace(plan, wires=tuple(wires))


@given(plans().map(without_joins), POINTS, st.booleans())
async def test_answers_to_an_interrupted_thread_lose_and_repeat_nothing(
    plan: Plan, turns: list[int], fails: bool
) -> None:
    _, calls = await calm(plan)
    storage, ledger, attempt = InMemoryCheckpointStorage(), Ledger(may_fail=fails), cancelled_after(turns)

    async def answer_first(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
        head = await storage.get_latest(thread_id=THREAD)
        if options == {"thread_id": THREAD} and head is not None and head.pending_request_info_events:
            asked = head.pending_request_info_events
            options = {**options, "responses": {key: answer(request) for key, request in asked.items()}}
        return await attempt(workflow, options)

    await drive(plan, lambda: plan.build(ledger, storage), answer_first)
    assert sorted(ledger.finished) == sorted(calls)


@given(plans(), STORAGES, st.booleans())
async def test_concurrent_threads_of_one_object_end_as_each_would_alone(
    plan: Plan, make_storage: Callable[[], Any], fails: bool
) -> None:
    calm_storage = InMemoryCheckpointStorage()
    rests, calls = await calm(plan, calm_storage)
    storage, ledgers = make_storage(), [Ledger(), Ledger(may_fail=fails)]
    workflow = plan.build(ledgers[fails], storage)
    driven = [drive(plan, lambda: workflow, failing, thread) for thread in ("one", "two", "three")]
    assert await asyncio.gather(*driven) == [rests] * 3
    for thread in ("one", "two", "three"):
        assert await final(storage, thread) == await final(calm_storage)
    assert set(ledgers[fails].finished) == set(calls)


@given(plans(), st.booleans())
async def test_no_storage_memory_and_six_methods_give_the_same_outputs_and_state(plan: Plan, fails: bool) -> None:
    async def outcome_of(storage: Any) -> tuple[list[Rest], list[Any], list[str]]:
        ledger = Ledger(may_fail=fails)
        workflow = plan.build(ledger, storage)
        rests = await drive(plan, lambda: workflow, failing)
        state = (await workflow.run(Probe(), thread_id=THREAD)).get_outputs()
        return rests, state, sorted(ledger.finished)

    without = await outcome_of(None)
    assert await outcome_of(InMemoryCheckpointStorage()) == without
    assert await outcome_of(SixMethods()) == without
