"""Documents 000 to 002 with files: checkpoints that outlive their process, in a folder that several may use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.compat.programs import (
    BARLEY,
    DEPTHS,
    SOUNDINGS,
    Clearance,
    Survey,
    berth_workflow,
    collect,
    last_status,
    outputs,
    run_until_asked,
    still_builder,
    survey_workflow,
    tide_workflow,
)
from tests.promises.processes import FarStage, Place

from perdure import (
    CheckpointNotFound,
    Executor,
    FileCheckpointStorage,
    Opaque,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowRunState,
    handler,
)

# ---------------------------------------------------------------- a new process resumes


class Lock(Executor):
    """Counts as the page's executor does, and waits before the fourth superstep where the test says so."""

    def __init__(self, id: str, stage: FarStage) -> None:
        super().__init__(id=id)
        self._stage = stage
        self._height = 0

    @handler
    async def rise(self, _: None, ctx: WorkflowContext[None, int]) -> None:
        self._height += 1
        await self._stage.play(f"superstep {self._height}", "")
        if self._height < 5:
            await ctx.send_message(None)
        else:
            await ctx.yield_output(self._height)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"height": self._height}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._height = state.get("height", 0)


def lock_workflow(stage: FarStage) -> Workflow:
    lock = Lock("lock", stage)
    return WorkflowBuilder(start_executor=lock).add_edge(lock, lock).build()


async def rise(stage: FarStage, _: Any, folder: Path) -> None:
    """The lines of the page."""
    checkpoint_storage = FileCheckpointStorage(folder)
    await lock_workflow(stage).run(checkpoint_storage=checkpoint_storage, stream=True).get_final_response()


async def rise_on(stage: FarStage, _: Any, folder: Path) -> list[Any]:
    checkpoint_storage = FileCheckpointStorage(folder)
    workflow = lock_workflow(stage)
    latest = await checkpoint_storage.get_latest(workflow_name=workflow.name)
    assert latest
    events = await collect(
        workflow.run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=checkpoint_storage, stream=True)
    )
    return [outputs(events), [event.iteration for event in events if event.type == "superstep_completed"]]


async def test_new_process_resumes_the_latest_checkpoint_of_a_killed_process(processes: Place) -> None:
    folder = processes.folder / "my_checkpoints"
    killed = processes.start(rise, folder, held=["superstep 4"])
    await killed.wait_for("entered", "superstep 4")
    await killed.kill()
    assert await processes.start(rise_on, folder).result() == [[5], [4, 5]]


async def ask(stage: FarStage, _: Any, folder: Path) -> str:
    """Until a person has to answer; then the process ends."""
    request = await run_until_asked(berth_workflow(FileCheckpointStorage(folder)), "Ariel")
    return request.request_id


async def answer(stage: FarStage, _: Any, folder: Path, responses: dict[str, Clearance]) -> list[Any]:
    storage = FileCheckpointStorage(folder)
    workflow = berth_workflow(storage)
    checkpoint = await storage.get_latest(workflow_name=workflow.name)
    assert checkpoint
    events = await collect(workflow.run(checkpoint_id=checkpoint.checkpoint_id, stream=True, responses=responses))
    return [outputs(events), last_status(events)]


async def test_a_person_answers_when_the_process_that_asked_is_long_gone(processes: Place) -> None:
    folder = processes.folder / "checkpoints"
    request_id = await processes.start(ask, folder).result()
    answered = processes.start(answer, folder, {request_id: Clearance(granted=True)})
    assert await answered.result() == [["moored Ariel after ['Ariel']"], WorkflowRunState.IDLE]


async def survey(stage: FarStage, _: Any, folder: Path, checkpoint_id: str | None) -> list[Any]:
    """A table in `self`, and a message that its handler changes in place."""
    storage = FileCheckpointStorage(folder)
    workflow = survey_workflow(storage)
    if checkpoint_id is None:
        return (await workflow.run(Survey(list(DEPTHS)))).get_outputs()
    return (await workflow.run(checkpoint_id=checkpoint_id)).get_outputs()


async def test_new_process_resumes_every_checkpoint_in_the_folder(processes: Place) -> None:
    folder = processes.folder / "checkpoints"
    assert await processes.start(survey, folder, None).result() == [SOUNDINGS]
    async with FileCheckpointStorage(folder) as storage:
        ids = await storage.list_checkpoint_ids(workflow_name=survey_workflow().name)
    assert len(ids) == len(DEPTHS) + 1
    for checkpoint_id in ids:
        assert await processes.start(survey, folder, checkpoint_id).result() == [SOUNDINGS]


async def distil(stage: FarStage, _: Any, folder: Path) -> list[str]:
    """With the older builder."""
    checkpoint_storage = FileCheckpointStorage(folder)
    workflow = still_builder().with_checkpointing(checkpoint_storage).build()
    async for _event in workflow.run_streaming("barley"):
        pass
    return [checkpoint.checkpoint_id for checkpoint in await checkpoint_storage.list_checkpoints()]


async def distil_on(stage: FarStage, _: Any, folder: Path, checkpoint_id: str) -> list[Any]:
    """By a workflow that was built without checkpointing."""
    events = []
    async for event in still_builder().build().run_stream_from_checkpoint(checkpoint_id, FileCheckpointStorage(folder)):
        events.append(event)
    return outputs(events)


async def test_a_new_process_is_rehydrated_from_the_sixth_checkpoint(processes: Place) -> None:
    folder = processes.folder / "checkpoints"
    checkpoints = await processes.start(distil, folder).result()
    assert await processes.start(distil_on, folder, checkpoints[5]).result() == [BARLEY]


async def test_two_processes_use_one_folder_at_the_same_time(processes: Place) -> None:
    folder = processes.folder / "checkpoints"
    both = [processes.start(survey, folder, None), processes.start(distil, folder)]
    assert await both[0].result() == [SOUNDINGS]
    distilled = await both[1].result()
    async with FileCheckpointStorage(folder) as storage:
        names = {checkpoint.workflow_name for checkpoint in await storage.list_checkpoints()}
        mine = await storage.list_checkpoint_ids(workflow_name=still_builder().build().name)
    assert names == {survey_workflow().name, still_builder().build().name}
    assert mine == [checkpoint_id for checkpoint_id in distilled if checkpoint_id in mine]


# ---------------------------------------------------------------- the six methods over files


@pytest.mark.parametrize("kind", [Path, str])
async def test_a_folder_is_made_and_opened_again(tmp_path: Path, kind: type) -> None:
    folder = kind(tmp_path / "a" / "b")
    workflow = tide_workflow(FileCheckpointStorage(folder))
    await workflow.run()
    again = FileCheckpointStorage(folder)
    checkpoints = await again.list_checkpoints(workflow_name=workflow.name)
    assert [checkpoint.iteration_count for checkpoint in checkpoints] == [0, 1, 2, 3, 4, 5]
    latest = await again.get_latest(workflow_name=workflow.name)
    assert latest is not None and latest == checkpoints[-1]


async def test_a_deleted_checkpoint_is_gone_for_every_process(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path) as storage:
        workflow = survey_workflow(storage)
        await workflow.run(Survey(list(DEPTHS)))
        ids = await storage.list_checkpoint_ids(workflow_name=workflow.name)
        for checkpoint_id in ids[:2]:
            assert await storage.delete(checkpoint_id)
        assert await storage.delete(ids[-1])
    async with FileCheckpointStorage(tmp_path) as storage:
        assert await storage.list_checkpoint_ids(workflow_name=workflow.name) == ids[2:-1]
        assert not await storage.delete(ids[0])
        with pytest.raises(WorkflowCheckpointException, match=ids[0]):
            await storage.load(ids[0])
        latest = await storage.get_latest(workflow_name=workflow.name)
        assert latest is not None and latest.checkpoint_id == ids[-2]
        assert (await survey_workflow(storage).run(checkpoint_id=ids[2])).get_outputs() == [SOUNDINGS]


async def test_files_hold_json_that_any_tool_reads(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path) as storage:
        await berth_workflow(storage).run("Ariel", thread_id="berth")
    lines = [json.loads(line) for line in (tmp_path / "berth.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) > 2
    assert "Ariel" in (tmp_path / "berth.jsonl").read_text(encoding="utf-8")


# ---------------------------------------------------------------- names that lead elsewhere

TRAVERSALS = ["../evil", "../../../etc/passwd", "/etc/passwd", "a/../../b", "..", ".", "~/x"]
TRAVERSALS += ["C:\\x", "con", "\0", "x" * 999]


def inside(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", TRAVERSALS)
async def test_no_id_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inside"
    (tmp_path / "evil.jsonl").write_text("not yours")
    async with FileCheckpointStorage(folder, fsync=False) as storage:
        with pytest.raises(CheckpointNotFound):
            await storage.load(name)
        assert not await storage.delete(name)
        made = WorkflowCheckpoint(workflow_name=name, graph_signature_hash="none", checkpoint_id=name, thread_id=name)
        assert await storage.save(made) == name
        assert (await storage.load(name)).thread_id == name
        assert (await tide_workflow(storage).run(thread_id=f"{name}/..")).get_outputs() == [5]
    assert (tmp_path / "evil.jsonl").read_text() == "not yours"
    assert {path.split("/")[0] for path in inside(tmp_path)} == {"evil.jsonl", "inside"}
    assert [path for path in inside(folder) if "/" in path] == []


# ---------------------------------------------------------------- allowed_checkpoint_types


@dataclass
class Cargo:
    tons: int


Cargo.__module__ = "harbour.cargo"  # of a package that no executor here belongs to


class Loader(Executor):
    @handler
    async def load(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("cargo", Cargo(7))
        await ctx.yield_output("loaded")


def loading(storage: Any) -> Workflow:
    return WorkflowBuilder(start_executor=Loader("loader"), checkpoint_storage=storage).build()


async def test_allowed_checkpoint_types_lets_a_file_storage_keep_a_users_type(tmp_path: Path) -> None:
    """By the class, or by its name as the reference takes it."""
    with pytest.raises(WorkflowCheckpointException, match=r"harbour\.cargo:Cargo was not declared"):
        await loading(FileCheckpointStorage(tmp_path / "without")).run("x")
    async with FileCheckpointStorage(tmp_path / "with", allowed_checkpoint_types=[Cargo]) as storage:
        assert (await loading(storage).run("x")).get_outputs() == ["loaded"]
        latest = await storage.get_latest()
        assert latest is not None and latest.state == {"cargo": Cargo(7)}


async def see_cargo(stage: FarStage, _: Any, folder: Path) -> list[Any]:
    latest = await FileCheckpointStorage(folder).get_latest()
    assert latest
    cargo = latest.state["cargo"]
    return [type(cargo), cargo.type, cargo.data]


async def test_another_process_without_the_type_sees_its_name(processes: Place) -> None:
    folder = processes.folder / "checkpoints"
    async with FileCheckpointStorage(folder, allowed_checkpoint_types=[Cargo]) as storage:
        await loading(storage).run("x")
    assert await processes.start(see_cargo, folder).result() == [Opaque, "harbour.cargo:Cargo", {"tons": 7}]
