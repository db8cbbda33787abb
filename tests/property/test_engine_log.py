"""What a thread leaves behind: its event log, its checkpoints, and positions that no superstep changes."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from hypothesis import example, given, strategies as st
from tests.property.engine_graphs import (
    INTERLEAVED,
    THREAD,
    Attempt,
    Ledger,
    Plan,
    cancelled_after,
    drive,
    failing,
    history,
    left_after,
    plans,
    undisturbed,
)

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowCheckpoint, WorkflowEvent, WorkflowRunResult
from perdure.engine.delivery.scope import Journal, RunScope
from perdure.engine.run.lanes import Nesting
from perdure.engine.run.superstep import apply, plan as plan_lanes
from perdure.engine.thread.level import Level
from perdure.engine.thread.live_threads import Instances, LiveThread
from perdure.engine.thread.position import Position, position_of
from perdure.testing import FakeClock

POINTS = st.lists(st.integers(0, 30), max_size=4)
ATTEMPTS = st.sampled_from(("undisturbed", "failing")) | POINTS.map(tuple)


def attempt_of(kind: Any, *, by_cancelling: bool) -> Attempt:
    if isinstance(kind, str):
        return failing if kind == "failing" else undisturbed
    return cancelled_after(list(kind)) if by_cancelling else left_after(list(kind))


async def log_of(workflow: Workflow, after: int = 0) -> list[WorkflowEvent]:
    async with workflow.open(thread_id=THREAD) as run:
        return [event async for event in run.events(after=after)]


@given(plans(), ATTEMPTS, st.booleans())
async def test_the_log_read_from_any_cursor_has_no_gap_and_no_repeat(
    plan: Plan, kind: Any, by_cancelling: bool
) -> None:
    storage, ledger = InMemoryCheckpointStorage(), Ledger(may_fail=kind == "failing")
    parts: list[WorkflowEvent] = []
    attempt = attempt_of(kind, by_cancelling=by_cancelling)

    async def attempt_and_read_on(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
        result = await attempt(workflow, options)
        parts.extend(await log_of(workflow, parts[-1].seq or 0 if parts else 0))
        return result

    await drive(plan, lambda: plan.build(ledger, storage), attempt_and_read_on)
    reader = plan.build(ledger, storage)
    whole = await log_of(reader)
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    assert parts == whole
    for cursor in range(len(whole) + 1):
        assert await log_of(reader, cursor) == whole[cursor:]


@example(INTERLEAVED, "undisturbed", False)
@given(plans(), ATTEMPTS, st.booleans())
async def test_log_holds_every_output_and_superstep_once_after_any_attempts(
    plan: Plan, kind: Any, by_cancelling: bool
) -> None:
    storage, ledger = InMemoryCheckpointStorage(), Ledger(may_fail=kind == "failing")
    attempt = attempt_of(kind, by_cancelling=by_cancelling)
    rests = await drive(plan, lambda: plan.build(ledger, storage), attempt)
    log = await log_of(plan.build(ledger, storage))
    assert [event.data for event in log if event.type == "output"] == [
        output for rest in rests for output in rest.outputs
    ]
    past = await history(storage)
    logged_ids = [event.checkpoint.checkpoint_id for event in log if event.checkpoint is not None]
    iterations = [event.iteration for event in log if event.type == "superstep_completed"]
    assert iterations == list(range(1, past[-1].iteration_count + 1))
    kept = [checkpoint.checkpoint_id for checkpoint in past]
    assert logged_ids == [checkpoint_id for checkpoint_id in kept if checkpoint_id in set(logged_ids)]
    assert {event.thread_id for event in log} == {THREAD}


@given(plans())
async def test_cursor_of_a_completed_superstep_points_right_behind_it(plan: Plan) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = plan.build(Ledger(), storage)
    live = [event async for event in workflow.run(plan.first_message, stream=True, thread_id=THREAD)]
    log = await log_of(workflow)
    completed = [event for event in live if event.type == "superstep_completed"]
    assert completed
    for event in completed:
        assert event.last_seq is not None
        logged = log[event.last_seq - 1]
        assert (logged.type, logged.seq, logged.iteration) == (event.type, event.last_seq, event.iteration)
        assert (logged.checkpoint, logged.executors) == (event.checkpoint, event.executors)


@given(plans())
async def test_every_checkpoint_survives_json_and_names_the_one_before(plan: Plan) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = plan.build(Ledger(), storage)
    await drive(plan, lambda: workflow)
    before = None
    for checkpoint in await history(storage):
        again = WorkflowCheckpoint.from_dict(json.loads(json.dumps(checkpoint.to_dict())))
        assert again == checkpoint
        assert again.to_dict() == checkpoint.to_dict()
        assert checkpoint.previous_checkpoint_id == before
        before = checkpoint.checkpoint_id


@given(plans())
async def test_the_messages_of_a_thread_are_those_that_its_handlers_got(plan: Plan) -> None:
    ledger = Ledger()
    workflow = plan.build(ledger, InMemoryCheckpointStorage())
    await drive(plan, lambda: workflow)
    messages = await workflow.messages(THREAD)
    assert [message.delivery_id for message in messages] == list(range(1, len(ledger.finished) + 1))
    assert sorted(str(message.target_id) for message in messages) == sorted(
        call.split(":")[0] for call in ledger.finished
    )


def parts_of(position: Position) -> dict[str, Any]:
    return msgspec.structs.asdict(position)


async def superstep(workflow: Workflow, position: Position, order: list[int]) -> Position:
    """One superstep by hand: lanes run one after the other, those that `order` names first."""
    compiled = workflow._compiled
    thread = LiveThread(THREAD, Instances(compiled.graph))
    thread.position = position

    events: list[WorkflowEvent] = []
    clock, journal = FakeClock(), Journal(thread, None, is_kept=False)
    scope = RunScope(compiled, thread, None, "r", events.append, lambda: None, print, clock, journal)
    level = Level(compiled, thread.position, thread.executors)
    lanes = plan_lanes(level, scope, Nesting(scope).open_child)
    for place in dict.fromkeys((*(number % len(lanes) for number in order), *range(len(lanes)))):
        for message in lanes[place].messages:
            await lanes[place].deliver(message)
    after, _, _ = await apply(level, None, clock.now)
    return after


@given(plans(), st.lists(st.integers(0, 7), max_size=4))
async def test_superstep_keeps_its_position_and_ignores_the_order_of_lanes(plan: Plan, order: list[int]) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = plan.build(Ledger(), storage)
    await drive(plan, lambda: workflow)
    for checkpoint in await history(storage):
        if checkpoint.deliveries:
            position = position_of(checkpoint)
            kept = copy.deepcopy(parts_of(position))
            first = await superstep(workflow, position, [])
            assert parts_of(position) == kept
            made = copy.deepcopy(parts_of(first))
            assert parts_of(await superstep(workflow, position, order)) == made
            assert parts_of(first) == made
