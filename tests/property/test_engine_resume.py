"""Whatever disturbs a run, its thread ends as if nothing had: same outputs in order, same state, nothing run twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings, strategies as st
from tests.property.engine_graphs import (
    THREAD,
    Attempt,
    Ledger,
    Plan,
    Probe,
    Rest,
    SixMethods,
    cancelled_after,
    drive,
    failing,
    final,
    history,
    left_after,
    plans,
)

from holdfast import InMemoryCheckpointStorage, WorkflowCheckpoint

POINTS = st.lists(st.integers(0, 30), min_size=1, max_size=4)


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


@given(plans())
async def test_a_fork_of_any_checkpoint_ends_as_the_original_and_executes_only_what_was_left(plan: Plan) -> None:
    storage = InMemoryCheckpointStorage()
    rests, calls = await calm(plan, storage)
    end, past = await final(storage), await history(storage)
    run_ids = list(dict.fromkeys(one.run_id for one in past))
    done = 0
    for place, checkpoint in enumerate(past):
        ledger, thread = Ledger(), f"fork-{place}"
        begin = {"checkpoint_id": checkpoint.checkpoint_id, "fork": True, "thread_id": thread}
        resumed = await drive(plan, lambda ledger=ledger: plan.build(ledger, storage), thread=thread, **begin)
        assert resumed == rests_from(checkpoint, rests, run_ids)
        assert await final(storage, thread) == end
        assert sorted(ledger.finished) == sorted(calls[done:])
        done += len(checkpoint.deliveries)


@given(plans())
async def test_a_rewind_of_the_same_object_to_any_checkpoint_ends_as_the_first_time(plan: Plan) -> None:
    storage, ledger = InMemoryCheckpointStorage(), Ledger()
    workflow = plan.build(ledger, storage)
    rests = await drive(plan, lambda: workflow)
    end, past = await final(storage), await history(storage)
    run_ids = list(dict.fromkeys(one.run_id for one in past))
    for checkpoint in reversed(past):
        resumed = await drive(plan, lambda: workflow, checkpoint_id=checkpoint.checkpoint_id)
        assert resumed == rests_from(checkpoint, rests, run_ids)
        assert await final(storage) == end


async def disturbed(plan: Plan, attempt: Attempt, storage: Any, *, anew: bool, fails: bool = False) -> None:
    """Compare a disturbed run with a calm one. `anew`: each attempt has a workflow object of its own."""
    calm_storage = InMemoryCheckpointStorage()
    rests, calls = await calm(plan, calm_storage)
    ledger = Ledger(may_fail=fails)
    same = plan.build(ledger, storage)
    again = await drive(plan, lambda: plan.build(ledger, storage) if anew else same, attempt)
    assert again == rests
    assert await final(storage) == await final(calm_storage)
    if isinstance(storage, SixMethods):
        assert set(ledger.finished) == set(calls)  # it has no journal: a superstep is repeated whole
    else:
        assert sorted(ledger.finished) == sorted(calls)


@given(plans(), POINTS)
async def test_a_stream_left_at_any_event_is_resumed_to_the_same_end_by_a_new_object(
    plan: Plan, counts: list[int]
) -> None:
    await disturbed(plan, left_after(counts), InMemoryCheckpointStorage(), anew=True)


@given(plans(), POINTS)
async def test_a_task_cancelled_at_any_await_is_resumed_to_the_same_end_by_a_new_object(
    plan: Plan, turns: list[int]
) -> None:
    await disturbed(plan, cancelled_after(turns), InMemoryCheckpointStorage(), anew=True)


@given(plans(), POINTS)
async def test_a_task_cancelled_at_any_await_is_resumed_to_the_same_end_by_the_same_object(
    plan: Plan, turns: list[int]
) -> None:
    await disturbed(plan, cancelled_after(turns), InMemoryCheckpointStorage(), anew=False)


@given(plans(), st.booleans())
async def test_failures_resumed_until_done_lead_to_the_same_end_and_no_finished_sibling_runs_again(
    plan: Plan, anew: bool
) -> None:
    await disturbed(plan, failing, InMemoryCheckpointStorage(), anew=anew, fails=True)


@given(plans(), st.booleans())
async def test_a_storage_with_six_methods_leads_to_the_same_end_after_failures(plan: Plan, anew: bool) -> None:
    await disturbed(plan, failing, SixMethods(), anew=anew, fails=True)


@given(plans(), POINTS)
async def test_a_storage_with_six_methods_leads_to_the_same_end_after_cancellation(
    plan: Plan, turns: list[int]
) -> None:
    await disturbed(plan, cancelled_after(turns), SixMethods(), anew=True)


@given(plans(), st.booleans())
async def test_no_storage_memory_and_six_methods_give_the_same_outputs_and_state(plan: Plan, fails: bool) -> None:
    told = []
    for storage in (None, InMemoryCheckpointStorage(), SixMethods()):
        ledger = Ledger(may_fail=fails)
        workflow = plan.build(ledger, storage)
        rests = await drive(plan, lambda workflow=workflow: workflow, failing)
        state = (await workflow.run(Probe(), thread_id=THREAD)).get_outputs()
        told.append((rests, state, sorted(ledger.finished)))
    assert told[0] == told[1] == told[2]
