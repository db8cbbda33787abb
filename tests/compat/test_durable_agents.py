"""State in `self` that survives, people who answer later, ids that stay the same."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.compat.programs import (
    DEPTHS,
    SOUNDINGS,
    BerthRequest,
    Clearance,
    Survey,
    Surveyor,
    Tide,
    berth_workflow,
    checkpoints_of,
    collect,
    last_status,
    outputs,
    run_until_asked,
    survey_workflow,
    tide_workflow,
    warnings_among,
)

from perdure import (
    Executor,
    FunctionExecutor,
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowRunState,
    handler,
)

# ---------------------------------------------------------------- a counter with hooks


async def test_a_counter_in_self_is_saved_after_every_superstep() -> None:
    storage = InMemoryCheckpointStorage()
    tide = Tide("tide")
    builder = WorkflowBuilder(start_executor=tide, checkpoint_storage=storage)
    workflow = builder.add_edge(tide, tide).build()

    result = await workflow.run()

    assert result.get_outputs() == [5]
    saved = [
        checkpoint.executors["tide"].saved for checkpoint in await storage.list_checkpoints(workflow_name=workflow.name)
    ]
    assert saved == [{"height": height} for height in range(6)]


@pytest.mark.parametrize("fresh", [False, True], ids=["same object", "new object"])
async def test_counter_continues_from_any_checkpoint(fresh: bool) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = tide_workflow(storage)
    await workflow.run()

    for checkpoint in await storage.list_checkpoints(workflow_name=workflow.name):
        resumed = tide_workflow(storage) if fresh else workflow
        events = await collect(resumed.run(checkpoint_id=checkpoint.checkpoint_id, stream=True))
        assert outputs(events) == [5]
        assert len(checkpoints_of(events)) == 5 - checkpoint.iteration_count


async def test_counter_without_an_edge_to_itself_stops_with_a_warning() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=Tide("tide"), checkpoint_storage=storage).build()

    events = await collect(workflow.run(stream=True))

    [warning] = warnings_among(events)
    assert "type None that 'tide' sent" in warning
    assert "add_edge(tide, tide)" in warning
    assert outputs(events) == []
    assert last_status(events) == WorkflowRunState.IDLE


async def test_new_object_without_hooks_starts_from_its_constructor_state() -> None:
    class Forgetful(Executor):
        def __init__(self, id: str) -> None:
            super().__init__(id=id)
            self._count = 0

        @handler
        async def count(self, left: int, ctx: WorkflowContext[int, int]) -> None:
            self._count += 1
            if left:
                await ctx.send_message(left - 1)
            else:
                await ctx.yield_output(self._count)

    def build(storage: Any) -> Any:
        forgetful = Forgetful("forgetful")
        return (
            WorkflowBuilder(start_executor=forgetful, checkpoint_storage=storage).add_edge(forgetful, forgetful).build()
        )

    storage = InMemoryCheckpointStorage()
    assert (await build(storage).run(3)).get_outputs() == [4]
    third = (await storage.list_checkpoints())[2]
    assert (await build(storage).run(checkpoint_id=third.checkpoint_id)).get_outputs() == [2]


# ---------------------------------------------------------------- a table with hooks, a message changed in place


async def test_a_table_of_tuples_with_int_keys_comes_back_as_it_was() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = survey_workflow(storage)
    _, second, *_ = checkpoints_of(await collect(workflow.run(Survey(list(DEPTHS)), stream=True)))

    saved = (await storage.load(second)).executors["surveyor"].saved["soundings"]
    assert saved == {depth: SOUNDINGS[depth] for depth in DEPTHS[:2]}
    assert {type(key) for key in saved} == {int}
    assert {type(pair) for pairs in saved.values() for pair in pairs} == {tuple}


async def test_message_that_its_handler_changes_in_place_is_whole_on_resume() -> None:
    storage = InMemoryCheckpointStorage()
    sent = Survey(list(DEPTHS))
    first = await survey_workflow(storage).run(sent)
    assert first.get_outputs() == [SOUNDINGS]

    due = [checkpoint.deliveries for checkpoint in await storage.list_checkpoints()]
    assert [[message.data.remaining for message in messages] for messages in due] == [
        [[6, 4, 9, 8]],
        [[4, 9, 8]],
        [[9, 8]],
        [[8]],
        [],
    ]
    assert sent.remaining == DEPTHS


async def test_partly_computed_results_are_not_computed_again() -> None:
    computed: list[int] = []

    class Counted(Surveyor):
        @handler
        async def sound(self, survey: Survey, ctx: WorkflowContext[Survey, Any]) -> None:
            computed.append(survey.remaining[0])
            await super().sound(survey, ctx)

    def build() -> Any:
        surveyor = Counted("surveyor")
        return WorkflowBuilder(start_executor=surveyor, checkpoint_storage=storage).add_edge(surveyor, surveyor).build()

    storage = InMemoryCheckpointStorage()
    async for event in build().run(Survey(list(DEPTHS)), stream=True):
        if event.type == "superstep_completed" and event.iteration == 2:
            break
    latest = await storage.get_latest(workflow_name=build().name)
    assert latest and latest.iteration_count == 2
    assert outputs(await collect(build().run(checkpoint_id=latest.checkpoint_id, stream=True))) == [SOUNDINGS]
    assert computed == DEPTHS


# ---------------------------------------------------------------- people


@pytest.mark.parametrize("fresh", [False, True], ids=["same object", "new object"])
async def test_a_run_left_at_its_question_resumes_at_once_with_the_answer(fresh: bool) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = berth_workflow(storage)
    request: BerthRequest | None = None
    async for ev in workflow.run("Ariel", stream=True):
        if ev.type == "request_info" and isinstance(ev.data, BerthRequest):
            request = ev.data
        if ev.state == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break
    assert request is not None
    checkpoint = await storage.get_latest(workflow_name=workflow.name)
    assert checkpoint is not None

    resumed = berth_workflow(storage) if fresh else workflow
    results = []
    async for ev in resumed.run(
        checkpoint_id=checkpoint.checkpoint_id, stream=True, responses={request.request_id: request.grant()}
    ):
        if ev.type == "output":
            results.append(ev.data)

    assert results == ["moored Ariel after ['Ariel']"]
    assert resumed.status == WorkflowRunState.IDLE


async def test_a_run_left_at_the_question_itself_can_be_resumed_and_answered() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = berth_workflow(storage)
    async for ev in workflow.run("Ariel", stream=True):
        if ev.type == "request_info":
            break

    asked = await workflow.run()
    assert [event.request_id for event in asked.get_request_info_events()] == ["berth-Ariel"]
    answered = await workflow.run(responses={"berth-Ariel": Clearance(granted=True)})
    assert answered.get_outputs() == ["moored Ariel after ['Ariel']"]


async def test_the_older_call_takes_answers_too() -> None:
    storage = InMemoryCheckpointStorage()
    request = await run_until_asked(berth_workflow(storage), "Ariel")
    latest = await storage.get_latest()
    assert latest

    stream = berth_workflow().run_stream_from_checkpoint(
        latest.checkpoint_id, storage, responses={request.request_id: request.grant()}
    )

    assert outputs(await collect(stream)) == ["moored Ariel after ['Ariel']"]


async def test_leaving_at_the_last_status_cancels_nothing() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = berth_workflow(storage)
    await run_until_asked(workflow, "Ariel")

    latest = await storage.get_latest(workflow_name=workflow.name)

    assert latest and latest.status == "IDLE_WITH_PENDING_REQUESTS"
    assert workflow.status == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_the_id_of_the_event_answers_as_well_as_that_of_the_request() -> None:
    workflow = berth_workflow(InMemoryCheckpointStorage())
    result = await workflow.run("Ariel")
    [asked] = result.get_request_info_events()
    assert (asked.source_executor_id, asked.request_type, asked.response_type) == ("master", BerthRequest, Clearance)

    answered = await workflow.run(responses={asked.request_id or "": asked.data.turn_away("no room")})

    assert answered.get_outputs() == ["Ariel turned away: no room"]
    assert answered.get_final_state() == WorkflowRunState.IDLE


async def test_a_resume_without_the_answer_asks_again() -> None:
    storage = InMemoryCheckpointStorage()
    request = await run_until_asked(berth_workflow(storage), "Ariel")
    latest = await storage.get_latest(workflow_name=berth_workflow().name)
    assert latest

    rebuilt = berth_workflow(storage)
    events = await collect(rebuilt.run(checkpoint_id=latest.checkpoint_id, stream=True))
    asked = [event for event in events if event.type == "request_info"]

    assert [(event.request_id, event.data, event.replayed) for event in asked] == [("berth-Ariel", request, True)]
    assert last_status(events) == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    answered = await rebuilt.run(responses={request.request_id: request.grant()})
    assert answered.get_outputs() == ["moored Ariel after ['Ariel']"]


async def test_one_pending_checkpoint_can_be_answered_in_two_ways() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = berth_workflow(storage)
    request = await run_until_asked(workflow, "Ariel")
    latest = await storage.get_latest(workflow_name=workflow.name)
    assert latest

    granted = await workflow.run(checkpoint_id=latest.checkpoint_id, responses={request.request_id: request.grant()})
    refused = await workflow.run(
        checkpoint_id=latest.checkpoint_id, responses={request.request_id: request.turn_away("storm")}
    )

    assert granted.get_outputs() == ["moored Ariel after ['Ariel']"]
    assert refused.get_outputs() == ["Ariel turned away: storm"]


async def test_request_that_is_answered_in_the_same_call_is_not_emitted_again() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = berth_workflow(storage)
    request = await run_until_asked(workflow, "Ariel")
    latest = await storage.get_latest(workflow_name=workflow.name)
    assert latest

    answers = {request.request_id: request.grant()}
    events = await collect(
        berth_workflow(storage).run(checkpoint_id=latest.checkpoint_id, stream=True, responses=answers)
    )

    assert [event for event in events if event.type == "request_info"] == []


# ---------------------------------------------------------------- what a checkpoint is, and when


async def test_superstep_completed_follows_the_checkpoint_that_it_names() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = tide_workflow(storage)
    named = []
    async for event in workflow.run(stream=True):
        if event.type == "superstep_completed":
            assert event.checkpoint is not None
            named.append((await storage.load(event.checkpoint)).iteration_count)

    assert named == [1, 2, 3, 4, 5]


async def test_a_checkpoint_holds_messages_state_questions_and_the_count() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = berth_workflow(storage)
    request = await run_until_asked(workflow, "Ariel")
    entry, asked = await storage.list_checkpoints(workflow_name=workflow.name)

    assert [message.data for message in entry.deliveries] == ["Ariel"]
    assert (entry.iteration_count, entry.pending_request_info_events) == (0, {})
    assert asked.iteration_count == 1
    assert asked.pending_request_info_events[request.request_id].data == request
    assert asked.executors["master"].saved == {"arrivals": ["Ariel"]}
    assert [message.data for message in await workflow.messages()] == ["Ariel"]


async def test_a_checkpoint_cannot_be_changed() -> None:
    checkpoint = WorkflowCheckpoint(workflow_name="tide", graph_signature_hash="none")
    with pytest.raises(AttributeError):
        checkpoint.iteration_count = 7  # type: ignore[misc]  # frozen: what is being shown


# ---------------------------------------------------------------- ids


def test_an_executor_id_that_looks_random_warns_at_build() -> None:
    random_id = str(uuid.uuid4())
    with pytest.warns(UserWarning, match=rf"'{random_id}' looks random.*give a fixed one"):
        WorkflowBuilder(start_executor=Tide(random_id)).build()


def test_a_random_part_of_an_id_warns_too() -> None:
    async def ebb(level: int) -> int:
        return level - 1

    with pytest.warns(UserWarning, match="looks random"):
        WorkflowBuilder(start_executor=FunctionExecutor(ebb, id=f"ebb-{uuid.uuid4().hex}")).build()


async def test_state_of_another_executor_id_is_refused_by_name() -> None:
    storage = InMemoryCheckpointStorage()
    await tide_workflow(storage).run()
    latest = await storage.get_latest()
    other = Tide("flood")
    renamed = WorkflowBuilder(start_executor=other, checkpoint_storage=storage).add_edge(other, other).build()
    assert latest

    with pytest.raises(IncompatibleWorkflow) as refused:
        await renamed.run(checkpoint_id=latest.checkpoint_id)
    assert any("'tide'" in difference for difference in refused.value.differences)
    assert (await tide_workflow(storage).run(checkpoint_id=latest.checkpoint_id)).get_outputs() == [5]
