"""Interchangeable storages; checkpoints listed, the latest resumed, a backend of one's own."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.compat.programs import (
    BARLEY,
    DEPTHS,
    SOUNDINGS,
    Clearance,
    Survey,
    TextShelf,
    berth_workflow,
    checkpoints_of,
    collect,
    last_status,
    outputs,
    run_until_asked,
    still_workflow,
    survey_workflow,
    tide_workflow,
    warnings_among,
)
from tests.six_methods import SixMethods

from perdure import (
    CheckpointNotFound,
    CheckpointStorage,
    InMemoryCheckpointStorage,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowRunState,
)

MakeStorage = Callable[[], Any]


async def test_a_run_without_a_message_saves_to_the_storage_of_the_call(make_storage: MakeStorage) -> None:
    workflow = tide_workflow()
    storage = make_storage()

    result = await workflow.run(checkpoint_storage=storage, stream=True).get_final_response()

    assert result.get_outputs() == [5]
    checkpoints = await storage.list_checkpoints(workflow_name=workflow.name)
    assert [checkpoint.iteration_count for checkpoint in checkpoints] == [0, 1, 2, 3, 4, 5]
    assert {checkpoint.workflow_name for checkpoint in checkpoints} == {workflow.name}


async def test_the_latest_checkpoint_of_a_finished_run_gives_its_outputs_again(make_storage: MakeStorage) -> None:
    workflow, storage = tide_workflow(), make_storage()
    await workflow.run(checkpoint_storage=storage, stream=True).get_final_response()

    latest = await storage.get_latest(workflow_name=workflow.name)
    assert latest
    stream = workflow.run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage, stream=True)
    events = await collect(stream)

    assert [(event.data, event.replayed) for event in events if event.type == "output"] == [(5, True)]
    assert last_status(events) == WorkflowRunState.IDLE
    assert (await stream.get_final_response()).get_outputs() == [5]


async def test_new_object_resumes_the_latest_checkpoint_of_an_interrupted_run(make_storage: MakeStorage) -> None:
    storage = make_storage()
    async for event in tide_workflow().run(checkpoint_storage=storage, stream=True):
        if event.type == "superstep_completed" and event.iteration == 3:
            break
    rebuilt = tide_workflow()

    latest = await storage.get_latest(workflow_name=rebuilt.name)
    assert latest and latest.iteration_count == 3
    events = await collect(rebuilt.run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage, stream=True))

    assert outputs(events) == [5]
    assert [event.iteration for event in events if event.type == "superstep_completed"] == [4, 5]


async def test_every_checkpoint_resumes_to_the_same_end_twice(make_storage: MakeStorage) -> None:
    storage = make_storage()
    workflow = survey_workflow(storage)
    first = await workflow.run(Survey(list(DEPTHS)))
    assert first.get_outputs() == [SOUNDINGS]

    for checkpoint_id in await storage.list_checkpoint_ids(workflow_name=workflow.name):
        for _ in range(2):
            again = await survey_workflow().run(checkpoint_id=checkpoint_id, checkpoint_storage=storage)
            assert again.get_outputs() == [SOUNDINGS]


async def test_only_the_class_of_the_storage_changes_when_a_workflow_moves(make_storage: MakeStorage) -> None:
    storage = make_storage()
    workflow = berth_workflow(storage)
    request = await run_until_asked(workflow, "Ariel")

    checkpoint = await storage.get_latest(workflow_name=workflow.name)
    events = await collect(
        berth_workflow(storage).run(
            checkpoint_id=checkpoint.checkpoint_id, stream=True, responses={request.request_id: request.grant()}
        )
    )

    assert outputs(events) == ["moored Ariel after ['Ariel']"]
    assert last_status(events) == WorkflowRunState.IDLE


async def test_a_storage_has_the_six_methods_of_the_protocol(make_storage: MakeStorage) -> None:
    storage = make_storage()
    made = WorkflowCheckpoint(workflow_name="ferry", graph_signature_hash="none")
    assert isinstance(storage, CheckpointStorage)

    assert await storage.get_latest(workflow_name="ferry") is None
    assert await storage.save(made) == made.checkpoint_id
    assert (await storage.load(made.checkpoint_id)).checkpoint_id == made.checkpoint_id
    assert [checkpoint.checkpoint_id for checkpoint in await storage.list_checkpoints(workflow_name="ferry")] == [
        made.checkpoint_id
    ]
    assert await storage.list_checkpoint_ids(workflow_name="ferry") == [made.checkpoint_id]
    assert await storage.list_checkpoint_ids(workflow_name="tug") == []
    latest = await storage.get_latest(workflow_name="ferry")
    assert latest is not None and latest.checkpoint_id == made.checkpoint_id
    assert await storage.delete(made.checkpoint_id) is True
    assert await storage.delete(made.checkpoint_id) is False
    assert await storage.list_checkpoint_ids(workflow_name="ferry") == []


async def test_missing_checkpoint_raises_a_checkpoint_error() -> None:
    with pytest.raises(WorkflowCheckpointException, match="No checkpoint found with ID gone "):
        await InMemoryCheckpointStorage().load("gone")


async def test_resuming_an_unknown_checkpoint_raises_on_every_storage(make_storage: MakeStorage) -> None:
    with pytest.raises(CheckpointNotFound, match="ID gone "):
        await tide_workflow(make_storage()).run(checkpoint_id="gone", stream=True).get_final_response()


@pytest.mark.parametrize("name", ["save", "load", "list_checkpoints", "delete", "get_latest", "list_checkpoint_ids"])
def test_protocol_methods_are_async_and_take_the_reference_parameters(name: str) -> None:
    expected = {
        "save": ["checkpoint"],
        "load": ["checkpoint_id"],
        "delete": ["checkpoint_id"],
    }.get(name, ["workflow_name"])
    for owner in (CheckpointStorage, InMemoryCheckpointStorage):
        method = getattr(owner, name)
        assert inspect.iscoroutinefunction(method)
        assert set(expected) <= set(inspect.signature(method).parameters)


@pytest.mark.parametrize("make_storage", [TextShelf, SixMethods])
async def test_backend_with_only_the_six_methods_warns_once(make_storage: MakeStorage) -> None:
    events = await collect(tide_workflow(make_storage()).run(stream=True))

    [warning] = warnings_among(events)
    assert "only the six methods" in warning
    assert outputs(events) == [5]


async def test_a_backend_that_keeps_objects_is_never_handed_a_live_one() -> None:
    shelf = SixMethods()
    workflow = survey_workflow(shelf)
    before: dict[str, str] = {}
    async for event in workflow.run(Survey(list(DEPTHS)), stream=True):
        if event.type == "superstep_completed":
            before |= {
                key: json.dumps(checkpoint.to_dict()) for key, checkpoint in shelf.kept.items() if key not in before
            }
    for checkpoint_id in before:
        await survey_workflow(shelf).run(checkpoint_id=checkpoint_id)

    assert len(before) == len(DEPTHS) + 1
    assert {key: json.dumps(shelf.kept[key].to_dict()) for key in before} == before


class Scribbler(SixMethods):
    """Spoils each checkpoint that it has been handed, and keeps it unspoilt as text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.texts.append(json.dumps(checkpoint.to_dict()))
        self.spoil(checkpoint)
        return await super().save(checkpoint)

    def spoil(self, checkpoint: WorkflowCheckpoint) -> None:
        checkpoint.state.clear()
        checkpoint.messages.clear()
        checkpoint.executors.clear()


async def test_changes_by_a_backend_to_its_checkpoints_do_not_reach_the_run() -> None:
    scribbler = Scribbler()
    result = await still_workflow(scribbler).run("barley")
    assert result.get_outputs() == [BARLEY]

    shelf = SixMethods()
    sixth = WorkflowCheckpoint.from_dict(json.loads(scribbler.texts[5]))
    await shelf.save(sixth)
    events = []
    async for event in still_workflow(shelf).run(checkpoint_id=sixth.checkpoint_id, stream=True):
        events.append(event)
        if event.type == "superstep_completed" and event.iteration == 6:
            scribbler.spoil(shelf.kept[sixth.checkpoint_id])
    assert outputs(events) == [BARLEY]


async def test_a_backend_is_handed_checkpoints_that_can_be_read() -> None:
    shelf = SixMethods()
    await survey_workflow(shelf).run(Survey(list(DEPTHS)))

    *_, last = shelf.kept.values()
    assert last.executors["surveyor"].saved == {"soundings": SOUNDINGS}
    assert [event.data for event in last.outputs] == [SOUNDINGS]


async def test_changes_to_a_loaded_checkpoint_do_not_reach_the_storage() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = survey_workflow(storage)
    await workflow.run(Survey(list(DEPTHS)))
    [entry, *_] = await storage.list_checkpoints(workflow_name=workflow.name)

    entry.deliveries[0].data.remaining.clear()
    entry.state["scribble"] = True

    again = await storage.load(entry.checkpoint_id)
    assert again.deliveries[0].data.remaining == DEPTHS
    assert "scribble" not in again.state


async def test_changes_after_a_save_do_not_reach_the_storage() -> None:
    storage = InMemoryCheckpointStorage()
    made = WorkflowCheckpoint(workflow_name="ferry", graph_signature_hash="none", state={"cars": [1, 2]})
    await storage.save(made)

    made.state["cars"].append(3)

    assert (await storage.load(made.checkpoint_id)).state == {"cars": [1, 2]}


async def test_the_storage_of_the_call_takes_the_place_of_the_builders() -> None:
    built_with, called_with = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    workflow = tide_workflow(built_with)

    await workflow.run(checkpoint_storage=called_with, stream=True).get_final_response()

    assert await built_with.list_checkpoint_ids(workflow_name=workflow.name) == []
    assert len(await called_with.list_checkpoint_ids(workflow_name=workflow.name)) == 6


@pytest.mark.parametrize("make_storage", [TextShelf, SixMethods])
async def test_live_workflow_continues_in_another_storage(make_storage: MakeStorage) -> None:
    first, second = InMemoryCheckpointStorage(), make_storage()
    workflow = berth_workflow()
    await workflow.run("Ariel", checkpoint_storage=first)

    answered = await workflow.run(responses={"berth-Ariel": Clearance(granted=True)}, checkpoint_storage=second)
    assert answered.get_outputs() == ["moored Ariel after ['Ariel']"]

    latest = await second.get_latest(workflow_name=workflow.name)
    again = await berth_workflow().run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=second)
    assert again.get_outputs() == ["moored Ariel after ['Ariel']"]


async def test_checkpoints_carried_to_another_storage_resume_there(make_storage: MakeStorage) -> None:
    origin, target = InMemoryCheckpointStorage(), make_storage()
    workflow = still_workflow(origin)
    await workflow.run("barley")
    for checkpoint in await origin.list_checkpoints(workflow_name=workflow.name):
        await target.save(checkpoint)

    for checkpoint_id in await target.list_checkpoint_ids(workflow_name=workflow.name):
        for resumed in (still_workflow(), workflow):
            result = await resumed.run(checkpoint_id=checkpoint_id, checkpoint_storage=target)
            assert result.get_outputs() == [BARLEY]


async def test_every_checkpoint_survives_json_text_and_still_resumes() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = still_workflow(storage)
    await workflow.run("barley")
    shelf = InMemoryCheckpointStorage()

    for checkpoint in await storage.list_checkpoints(workflow_name=workflow.name):
        text = json.dumps(checkpoint.to_dict())
        loaded = WorkflowCheckpoint.from_dict(json.loads(text))
        assert loaded.to_dict() == checkpoint.to_dict()
        await shelf.save(loaded)
        resumed = await still_workflow().run(checkpoint_id=loaded.checkpoint_id, checkpoint_storage=shelf)
        assert resumed.get_outputs() == [BARLEY]


async def test_a_checkpoint_with_a_pending_question_survives_json_text() -> None:
    storage, shelf = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    request = await run_until_asked(berth_workflow(storage), "Ariel")
    latest = await storage.get_latest()
    assert latest

    moved = await shelf.save(WorkflowCheckpoint.from_dict(json.loads(json.dumps(latest.to_dict()))))
    result = await berth_workflow().run(
        checkpoint_id=moved, checkpoint_storage=shelf, responses={request.request_id: request.grant()}
    )

    assert result.get_outputs() == ["moored Ariel after ['Ariel']"]


@pytest.mark.parametrize("damaged", [{}, {"workflow_name": 3}, {"workflow_name": "tide", "messages": "none"}])
def test_from_dict_refuses_a_dict_that_is_not_a_checkpoint(damaged: dict[str, Any]) -> None:
    with pytest.raises(WorkflowCheckpointException):
        WorkflowCheckpoint.from_dict(damaged)


async def test_superstep_events_name_the_checkpoints_of_a_users_own_backend_too() -> None:
    shelf = TextShelf()
    events = await collect(tide_workflow(shelf).run(stream=True))

    _, *after_supersteps = shelf.texts
    assert [info.checkpoint_id for info in checkpoints_of(events)] == after_supersteps
