"""A workflow whose executors and types have new names continues every stored thread, wherever it stands."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.promises.changing import (
    CRASH,
    EXPIRED,
    SITUATIONS,
    Situation,
    Version,
    begins,
    first,
    rename_everything,
    resumes,
    second,
    will_crash,
)
from tests.promises.stages import Again, Boom, Does

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowCheckpoint
from perdure.checkpoints.any_storage import load_checkpoint
from perdure.checkpoints.storage import StoreCheckpointStorage

VOLATILE = ("checkpoint_id", "number", "previous_checkpoint_id", "timestamp", "run_id", "migrations", "renamed_types")


def comparable(tree: Any) -> Any:
    """Without what differs between any two runs of one workflow. Steps stay found by the first names of types."""
    if isinstance(tree, dict):
        return {key: comparable(value) for key, value in tree.items() if key not in VOLATILE}
    if isinstance(tree, str):
        return re.sub(r" [0-9a-f]{16}\b", " digest", tree)
    return [comparable(item) for item in tree] if isinstance(tree, list) else tree


async def all_of(situation: Situation, made_by: Version, read_by: Version, storage: Any) -> list[WorkflowCheckpoint]:
    """A thread from its beginning to its end under one version, as another reads all that is stored of it."""
    workflow = situation.build(made_by, storage)
    await situation.begin(made_by, workflow)
    await situation.end(made_by, workflow)
    compiled = situation.build(read_by, storage)._compiled
    ids = await storage.list_checkpoint_ids(workflow_name="work")
    return [
        await load_checkpoint(storage, checkpoint_id, compiled.declared, compiled.migrator()) for checkpoint_id in ids
    ]


@pytest.mark.parametrize("situation", [*SITUATIONS.values(), EXPIRED], ids=[*SITUATIONS, "expired request"])
async def test_migrated_checkpoints_equal_those_of_the_new_workflow(any_storage: Any, situation: Situation) -> None:
    old, fresh = first(), second(first())
    migrated = await all_of(situation, old, second(old), any_storage)
    wanted = await all_of(situation, fresh, fresh, InMemoryCheckpointStorage())

    assert len(migrated) >= 4
    for theirs, ours in zip(migrated, wanted, strict=True):
        assert comparable(theirs.to_dict()) == comparable(ours.to_dict())
        assert theirs.migrations == ours.migrations == ("rename_everything",)


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=list(SITUATIONS))
async def test_old_thread_ends_in_the_new_workflow_and_repeats_nothing(any_storage: Any, situation: Situation) -> None:
    old = first()
    await situation.begin(old, situation.build(old, any_storage))
    new = second(old)
    result = await situation.end(new, situation.build(new, any_storage))

    assert result.get_outputs() == situation.outputs
    assert old.stage.calls == situation.calls
    warnings = [event.data for event in result if event.type == "warning"]
    assert warnings[:1] == ["Migrations were applied to the checkpoint: rename_everything."]


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=list(SITUATIONS))
async def test_run_from_a_checkpoint_id_migrates_the_checkpoint(any_storage: Any, situation: Situation) -> None:
    old = first()
    await situation.begin(old, situation.build(old, any_storage))
    ids = await any_storage.list_checkpoint_ids(workflow_name="work")
    new = second(old)
    old.stage.calls.clear()
    workflow = situation.build(new, any_storage)
    async with new.clock.skipping():
        result = await workflow.run(checkpoint_id=ids[0])
        if result.get_request_info_events():
            result = await situation.end(new, workflow)

    assert result.get_outputs() == situation.outputs
    assert old.stage.calls == situation.calls


async def test_a_recorded_delivery_of_the_old_workflow_is_not_run_again(storage: StoreCheckpointStorage) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = second(old)
    result = await CRASH.end(new, CRASH.build(new, storage))

    assert sorted(result.get_outputs()) == CRASH.outputs
    assert old.stage.calls == CRASH.calls


async def test_the_head_named_by_its_id_keeps_its_journal(storage: StoreCheckpointStorage) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = second(old)
    [thread] = await storage.list_threads()
    result = await CRASH.build(new, storage).run(checkpoint_id=thread.checkpoint_id)

    assert sorted(result.get_outputs()) == CRASH.outputs
    assert old.stage.calls == CRASH.calls


async def test_journal_follows_a_head_stored_before_its_superstep_ends(
    storage: StoreCheckpointStorage,
) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = second(old)
    await CRASH.build(new, storage).checkpoint("t")  # migrated, while the journal stays what it was

    [thread] = await storage.list_threads()
    assert (await storage.load(str(thread.checkpoint_id))).migrations == (rename_everything.__name__,)
    result = await CRASH.end(new, CRASH.build(new, storage))
    assert sorted(result.get_outputs()) == CRASH.outputs
    assert old.stage.calls == CRASH.calls


async def test_records_from_before_and_after_the_change_are_both_used(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    old = first()
    will_crash(old, storage)
    await CRASH.begin(old, CRASH.build(old, storage))
    new = second(old)
    old.stage.failing.add("weak")
    workflow = CRASH.build(new, storage)
    with pytest.raises(Boom):
        await CRASH.end(new, workflow)
    old.stage.failing.clear()
    result = await CRASH.end(new, again(workflow, lambda: CRASH.build(new, storage)))

    assert sorted(result.get_outputs()) == CRASH.outputs
    assert old.stage.calls == [*CRASH.calls, "weak(x-source)"]


async def test_a_recorded_step_of_the_old_workflow_is_not_taken_again(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    """It lies in the journal until a run gets further than the last."""

    def noting(version: Version) -> Workflow:
        async def note(work: Any) -> Any:
            await version.stage.play("note", work.text)
            return version.kind(f"{work.text}!")

        async def act(work: Any, ctx: Any) -> None:
            noted = await ctx.step(note, work)
            await version.stage.play("act", noted.text)
            await ctx.yield_output(noted.text)

        return version.start(Does(version.id("does"), act), storage).build()

    old = first()
    old.stage.failing.add("act")
    with pytest.raises(Boom):
        await begins(old, noting(old))
    new = second(old)
    workflow = noting(new)
    with pytest.raises(Boom):
        await resumes(new, workflow)
    old.stage.failing.clear()
    result = await resumes(new, again(workflow, lambda: noting(new)))
    assert result.get_outputs() == ["x!"]
    assert old.stage.calls == ["note(x)", *["act(x!)"] * 3]
