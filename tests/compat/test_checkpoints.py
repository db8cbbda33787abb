"""Checkpoints captured, resumed on the same run, rehydrated in a new one, executors' states saved.

Its Python flows as they are, its C# flows in Python's form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.compat.programs import (
    BARLEY,
    SUPERSTEPS_OF_BARLEY,
    Still,
    Wash,
    checkpoints_of,
    collect,
    last_status,
    outputs,
    still_builder,
    still_workflow,
    tide_workflow,
)

from perdure import (
    CheckpointInfo,
    CheckpointNotFound,
    Executor,
    InMemoryCheckpointStorage,
    NoStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)


async def distilled() -> tuple[Workflow, InMemoryCheckpointStorage, list[CheckpointInfo]]:
    """A finished run, with the checkpoints that its supersteps named."""
    storage = InMemoryCheckpointStorage()
    workflow = still_workflow()
    events = await collect(workflow.run("barley", checkpoint_storage=storage, stream=True))
    assert outputs(events) == [BARLEY]
    return workflow, storage, checkpoints_of(events)


# ---------------------------------------------------------------- capturing


async def test_older_builder_and_run_streaming_leave_checkpoints_in_the_storage() -> None:
    checkpoint_storage = InMemoryCheckpointStorage()
    builder = still_builder()
    workflow = builder.with_checkpointing(checkpoint_storage).build()

    events = [event async for event in workflow.run_streaming("barley")]
    checkpoints = await checkpoint_storage.list_checkpoints()

    assert outputs(events) == [BARLEY]
    assert [checkpoint.iteration_count for checkpoint in checkpoints] == list(range(SUPERSTEPS_OF_BARLEY + 1))
    ids = [checkpoint.checkpoint_id for checkpoint in checkpoints]
    assert [checkpoint.previous_checkpoint_id for checkpoint in checkpoints] == [None, *ids[:-1]]


async def test_the_two_generations_of_the_builder_make_the_same_workflow() -> None:
    older = still_builder().with_checkpointing(InMemoryCheckpointStorage()).build()
    newer = still_workflow(InMemoryCheckpointStorage())

    assert (older.name, older.start_executor_id) == (newer.name, newer.start_executor_id)
    assert set(older.executors) == set(newer.executors)
    assert outputs(await collect(older.run_streaming("barley"))) == (await newer.run("barley")).get_outputs()


async def test_a_storage_given_with_the_run_names_its_checkpoints_in_the_events() -> None:
    _, storage, checkpoints = await distilled()

    entry, *stored = await storage.list_checkpoint_ids()
    assert [info.checkpoint_id for info in checkpoints] == stored
    assert [info.iteration_count for info in checkpoints] == list(range(1, SUPERSTEPS_OF_BARLEY + 1))
    assert (await storage.load(entry)).iteration_count == 0


async def test_without_a_storage_supersteps_name_no_checkpoint() -> None:
    events = await collect(still_workflow().run("barley", stream=True))
    completed = [event for event in events if event.type == "superstep_completed"]

    assert len(completed) == SUPERSTEPS_OF_BARLEY
    assert [event.checkpoint for event in completed] == [None] * SUPERSTEPS_OF_BARLEY


async def test_list_without_a_name_has_all_workflows_and_with_a_name_only_one() -> None:
    storage = InMemoryCheckpointStorage()
    tides, still = tide_workflow(storage), still_workflow(storage)
    await tides.run()
    await still.run("barley")

    every = [checkpoint.workflow_name for checkpoint in await storage.list_checkpoints()]
    assert every == [tides.name] * 6 + [still.name] * (SUPERSTEPS_OF_BARLEY + 1)
    assert {checkpoint.workflow_name for checkpoint in await storage.list_checkpoints(workflow_name=still.name)} == {
        still.name
    }


# ---------------------------------------------------------------- resuming on the same object, on the same run


async def test_the_sixth_checkpoint_resumes_on_the_same_workflow() -> None:
    checkpoint_storage = InMemoryCheckpointStorage()
    workflow = still_builder().with_checkpointing(checkpoint_storage).build()
    await collect(workflow.run_streaming("barley"))
    checkpoints = await checkpoint_storage.list_checkpoints()

    saved_checkpoint = checkpoints[5]
    events = [event async for event in workflow.run_stream_from_checkpoint(saved_checkpoint.checkpoint_id)]

    assert outputs(events) == [BARLEY]
    assert [event.iteration for event in events if event.type == "superstep_completed"] == [6, 7, 8, 9]
    assert last_status(events) == WorkflowRunState.IDLE


async def test_a_live_run_is_restored_to_its_sixth_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    async with still_workflow().open(checkpoint_storage=storage) as run:
        await run.send("barley")
        first = await collect(run.events())
        checkpoints = checkpoints_of(first)
        assert outputs(first) == [BARLEY]

        await run.restore(checkpoints[5])
        second = await collect(run.events())

    assert outputs(second) == [BARLEY]
    assert [event.iteration for event in second if event.type == "superstep_completed"] == [7, 8, 9]
    assert last_status(second) == WorkflowRunState.IDLE


async def test_a_live_run_can_be_restored_again_and_again() -> None:
    async with still_workflow(InMemoryCheckpointStorage()).open() as run:
        await run.send("barley")
        checkpoints = checkpoints_of(await collect(run.events()))
        for checkpoint in [*checkpoints, *reversed(checkpoints)]:
            await run.restore(checkpoint)
            assert outputs(await collect(run.events())) == [BARLEY]
            result = await run.wait()
            assert result is not None and result.get_outputs() == [BARLEY]


async def test_a_live_run_is_restored_while_it_is_still_running() -> None:
    async with still_workflow(InMemoryCheckpointStorage()).open() as run:
        await run.send("barley")
        seen: list[CheckpointInfo] = []
        async for event in run.events():
            if event.type == "superstep_completed" and event.checkpoint:
                seen.append(event.checkpoint)
            if len(seen) == 3:
                break
        assert run.result is None  # it has not ended
        await run.restore(seen[1])
        events = await collect(run.events())

    assert outputs(events) == [BARLEY]
    assert [event.iteration for event in events if event.type == "superstep_completed"] == [3, 4, 5, 6, 7, 8, 9]
    assert WorkflowRunState.CANCELLED not in [event.state for event in events]


async def test_after_a_restore_only_later_events_are_emitted() -> None:
    storage = InMemoryCheckpointStorage()
    async with still_workflow(storage).open() as run:
        await run.send("barley")
        await run.wait()  # no caller reads the events
        assert [info.iteration_count for info in run.checkpoints] == list(range(SUPERSTEPS_OF_BARLEY + 1))

        await run.restore(run.checkpoints[5])
        events = await collect(run.events())

    assert outputs(events) == [BARLEY]
    assert [event.iteration for event in events if event.type == "superstep_started"] == [6, 7, 8, 9]


async def test_restoring_an_unknown_checkpoint_raises_in_the_event_stream() -> None:
    storage = InMemoryCheckpointStorage()
    async with still_workflow(storage).open() as run:
        await run.send("barley")
        await collect(run.events())
        for _ in range(3):
            await run.restore("nowhere")
            with pytest.raises(CheckpointNotFound, match="ID nowhere "):
                await collect(run.events())

        await run.restore((await storage.list_checkpoint_ids())[5])
        assert outputs(await collect(run.events())) == [BARLEY]


async def test_a_live_run_without_a_storage_has_nothing_to_restore() -> None:
    async with still_workflow().open() as run:
        with pytest.raises(NoStorage, match="Restoring a checkpoint"):
            await run.restore("any")


# ---------------------------------------------------------------- rehydrating


async def test_workflow_built_without_checkpointing_resumes_the_sixth_checkpoint() -> None:
    checkpoint_storage = InMemoryCheckpointStorage()
    await collect(still_builder().with_checkpointing(checkpoint_storage).build().run_streaming("barley"))
    checkpoints = await checkpoint_storage.list_checkpoints()
    workflow = still_builder().build()

    saved_checkpoint = checkpoints[5]
    events = [
        event
        async for event in workflow.run_stream_from_checkpoint(
            saved_checkpoint.checkpoint_id,
            checkpoint_storage,
        )
    ]

    assert outputs(events) == [BARLEY]
    assert [event.iteration for event in events if event.type == "superstep_completed"] == [6, 7, 8, 9]


async def test_new_workflow_resumes_each_checkpoint_that_an_event_named() -> None:
    _, storage, checkpoints = await distilled()

    for saved in checkpoints:
        stream = still_workflow().run(checkpoint_id=saved, checkpoint_storage=storage, stream=True)
        assert outputs(await collect(stream)) == [BARLEY]
        stream = still_workflow().run_stream_from_checkpoint(saved, storage)
        assert outputs(await collect(stream)) == [BARLEY]
        assert (await still_workflow().run_from_checkpoint(saved, storage)).get_outputs() == [BARLEY]


async def test_new_live_run_takes_over_the_thread_of_the_restored_checkpoint() -> None:
    _, storage, checkpoints = await distilled()
    rebuilt = still_workflow()

    async with rebuilt.open(checkpoint_storage=storage) as run:
        await run.restore(checkpoints[5])
        assert outputs(await collect(run.events())) == [BARLEY]
        assert run.thread_id == checkpoints[5].thread_id
        await run.restore(checkpoints[1])
        assert outputs(await collect(run.events())) == [BARLEY]


async def test_a_new_live_run_of_a_named_thread_restores_any_of_its_checkpoints() -> None:
    _, storage, checkpoints = await distilled()
    thread_id = checkpoints[5].thread_id

    async with still_workflow().open(thread_id=thread_id, checkpoint_storage=storage) as run:
        for saved in (checkpoints[5], checkpoints[5].checkpoint_id, checkpoints[0]):
            await run.restore(saved)
            assert outputs(await collect(run.events())) == [BARLEY]
        assert {checkpoint.thread_id for checkpoint in run.checkpoints} == {thread_id}


async def test_workflow_without_any_storage_raises_no_storage() -> None:
    with pytest.raises(NoStorage, match="checkpoint_storage=") as refused:
        await still_builder().build().run_stream_from_checkpoint("any").get_final_response()
    assert isinstance(refused.value, ValueError)


async def test_checkpoints_of_a_resumed_run_continue_the_chain_in_the_storage() -> None:
    workflow, storage, checkpoints = await distilled()
    before = await storage.list_checkpoint_ids()

    await collect(workflow.run_stream_from_checkpoint(checkpoints[5], storage))
    added = [checkpoint for checkpoint in await storage.list_checkpoints() if checkpoint.checkpoint_id not in before]

    rewind, *rest = added
    assert rewind.previous_checkpoint_id == checkpoints[5].checkpoint_id
    assert [checkpoint.iteration_count for checkpoint in rest] == [7, 8, 9]
    assert [checkpoint.previous_checkpoint_id for checkpoint in rest] == [
        checkpoint.checkpoint_id for checkpoint in added[:-1]
    ]


# ---------------------------------------------------------------- states of executors


async def test_a_hook_with_context_keeps_its_state_in_the_executors_private_part() -> None:
    _, storage, checkpoints = await distilled()

    kept = [(await storage.load(info)).executors["still"].private for info in checkpoints]
    batches = [None if private is None else private["batches"] for private in kept]
    assert batches == [[], [5], [5], [5, 10], [5, 10], [5, 10, 20], [5, 10, 20], [5, 10, 20, 40], [5, 10, 20, 40]]


async def test_a_hook_with_context_puts_back_what_it_had_saved() -> None:
    _, storage, checkpoints = await distilled()
    rebuilt = still_workflow()

    await rebuilt.run(checkpoint_id=checkpoints[-1], checkpoint_storage=storage)

    still = rebuilt.executors["still"]
    assert isinstance(still, Still)
    assert still.batches == [5, 10, 20, 40]


async def test_a_hook_may_keep_its_state_under_a_key_of_the_shared_state() -> None:
    class Logbook(Executor):
        def __init__(self, id: str) -> None:
            super().__init__(id=id)
            self._lines: list[str] = []

        @handler
        async def write(self, line: str, ctx: WorkflowContext[str, list[str]]) -> None:
            self._lines.append(line)
            await ctx.yield_output(list(self._lines))

        async def on_checkpoint_save(self, ctx: Any) -> dict[str, Any]:
            ctx.set_state("logbook", self._lines)
            return {}

        async def on_checkpoint_restore(self, state: dict[str, Any], ctx: Any) -> None:
            self._lines = ctx.get_state("logbook")

    storage = InMemoryCheckpointStorage()
    await WorkflowBuilder(start_executor=Logbook("log"), checkpoint_storage=storage).build().run("calm")
    latest = await storage.get_latest()
    assert latest and latest.state == {"logbook": ["calm"]}

    rebuilt = WorkflowBuilder(start_executor=Logbook("log"), checkpoint_storage=storage).build()
    await rebuilt.run(checkpoint_id=latest.checkpoint_id)
    assert (await rebuilt.run("gale")).get_outputs() == [["calm", "gale"]]


# ---------------------------------------------------------------- what a checkpoint captures


async def test_a_checkpoint_captures_pending_messages_and_shared_state() -> None:
    _, storage, checkpoints = await distilled()

    sixth = await storage.load(checkpoints[5])

    assert {source: [message.data for message in due] for source, due in sixth.messages.items()} == {
        "still": [Wash(40, ["barley", "distilled 1", "distilled 2", "distilled 3"])]
    }
    assert sixth.deliveries[0].target_id == "condenser"
    assert sixth.state == {"grain": "barley", "condensed": 2}


@dataclass
class Offer:
    price: int


class Broker(Executor):
    """Asks two people about one lot and says what each of them answered."""

    @handler
    async def offer(self, price: int, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info(Offer(price), bool, request_id="buyer")
        await ctx.request_info(Offer(price + 1), bool, request_id="seller")

    @response_handler
    async def answered(self, offer: Offer, agreed: bool, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{ctx.request_id} at {offer.price}: {agreed}")


async def test_checkpoint_captures_pending_requests_and_answers_on_their_way() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=Broker("broker"), checkpoint_storage=storage).build()
    await workflow.run(9)
    asked = await storage.get_latest()
    assert asked and {key: event.data for key, event in asked.pending_request_info_events.items()} == {
        "buyer": Offer(9),
        "seller": Offer(10),
    }

    await workflow.run(responses={"buyer": True})
    answer, settled = (await storage.list_checkpoints())[-2:]

    assert [(delivery.data, delivery.type.value) for delivery in answer.deliveries] == [(True, "response")]
    assert set(answer.pending_request_info_events) == {"seller"}
    assert (settled.deliveries, set(settled.pending_request_info_events)) == ([], {"seller"})


async def test_an_answer_on_its_way_is_delivered_by_a_new_workflow() -> None:
    storage = InMemoryCheckpointStorage()
    await WorkflowBuilder(start_executor=Broker("broker"), checkpoint_storage=storage).build().run(9)
    asked = await storage.get_latest()
    assert asked
    first = WorkflowBuilder(start_executor=Broker("broker"), checkpoint_storage=storage).build()
    await first.run(checkpoint_id=asked.checkpoint_id, responses={"buyer": True})
    answer = (await storage.list_checkpoints())[-2]

    rebuilt = WorkflowBuilder(start_executor=Broker("broker")).build()
    result = await rebuilt.run(checkpoint_id=answer.checkpoint_id, checkpoint_storage=storage)

    assert result.get_outputs() == ["buyer at 9: True"]
    assert [event.request_id for event in result.get_request_info_events()] == ["seller"]
    assert result.get_final_state() == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    last = await rebuilt.run(responses={"seller": False}, checkpoint_storage=storage)
    assert last.get_outputs()[-1] == "seller at 10: False"
    assert last.get_final_state() == WorkflowRunState.IDLE
