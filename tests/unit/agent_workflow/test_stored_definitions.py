"""Definitions in a workflow store: saved, listed, versioned, loaded and run by name; never lost, never halved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.stores import STORES

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.definition import NodeConfig, WorkflowConfig
from perdure.agent_workflow.store import PREFIX, DefinitionInfo, DefinitionStore
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.history.retention import LatestOnly
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import (
    DamagedDefinition,
    DefinitionNotFound,
    IncompatibleWorkflow,
    InvalidDefinition,
    InvalidRun,
    StorageFailed,
    WorkflowCheckpointException,
)
from perdure.storages import FileCheckpointStorage, InMemoryCheckpointStorage, SqliteCheckpointStorage
from perdure.testing import FakeClock, Faults, ScriptedAgent
from perdure.testing.faults import When

MOMENTS: tuple[When, ...] = ("before", "after")
HERE = "tests.unit.agent_workflow.test_stored_definitions"
writer = ScriptedAgent("writer", ["A draft."])
editor = ScriptedAgent("editor", lambda messages: f"Better: {messages[-1].text}")


def story(storage: StoreCheckpointStorage | None = None, version: str = "1.0.0") -> AgentWorkflow:
    builder = (
        AgentWorkflow.create()
        .with_name("story")
        .with_version(version)
        .with_description("Two who write.")
        .add_agent("draft", f"{HERE}:writer", lambda node: node.with_output_key("draft"))
        .add_agent("edit", f"{HERE}:editor", lambda node: node.with_input_key("draft").requires_approval("Print it?"))
        .from_("draft")
        .to("edit")
        .when_not_empty("draft")
    )
    return builder if storage is None else builder.with_checkpointing().with_workflow_store(storage)


def definition(name: str, version: str = "1.0.0") -> WorkflowConfig:
    return WorkflowConfig(name=name, version=version, agents={"a": NodeConfig(agent=f"{HERE}:writer")})


def numbers(infos: list[DefinitionInfo]) -> list[tuple[str, int, str]]:
    return [(info.name, info.number, info.version) for info in infos]


@pytest.fixture(params=[*STORES, "encrypted"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], StoreCheckpointStorage]]:
    """Makes one more object over the same store, as another process would; in memory it is always the same."""
    key, made = AesGcm.generate_key(), list[StoreCheckpointStorage]()

    def make() -> StoreCheckpointStorage:
        if request.param == "encrypted":
            made.append(SqliteCheckpointStorage(tmp_path / "x.db", encryption=AesGcm(key), synchronous="NORMAL"))
        elif request.param != "memory" or not made:
            made.append(StoreCheckpointStorage(STORES[request.param](tmp_path)))
        return made[-1]

    yield make
    for storage in made:
        await storage.close()


async def test_a_definition_is_saved_listed_loaded_run_and_resumed_by_name(
    opened: Callable[[], StoreCheckpointStorage],
) -> None:
    saved = await story(opened()).build().save()
    assert (saved.name, saved.version, saved.number, saved.description) == ("story", "1.0.0", 1, "Two who write.")
    assert saved.created_at == saved.updated_at
    assert numbers(await DefinitionStore(opened()).list()) == [("story", 1, "1.0.0")]

    loaded = (await AgentWorkflow.load("story", opened())).build()
    assert loaded.definition == saved.config
    asked = await loaded.run("Tides", execution_id="t")
    assert asked.state == "waiting"
    again = (await AgentWorkflow.load("story", opened())).build()
    [request] = (await again.resume("t")).pending
    done = await again.approve(request.request_id)
    assert (done.final_answer, done.success) == ("Better: A draft.", True)


async def test_every_version_stays_and_can_be_loaded_by_its_number_or_its_name() -> None:
    storage, clock = InMemoryCheckpointStorage(), FakeClock()
    store = DefinitionStore(storage, clock=clock)
    first = await store.save(definition("w", "1.0"))
    clock.advance(60)
    for version in ("1.1", "1.1", "2"):
        await store.save(definition("w", version))
    assert numbers(await store.versions("w")) == [("w", 1, "1.0"), ("w", 2, "1.1"), ("w", 3, "2")]
    assert (await store.load("w")).version == "2"
    assert (await store.load("w", 1)).config == first.config
    second = await store.load("w", "1.1")
    assert (second.number, second.updated_at) == (2, clock.now())
    assert second.created_at == clock.now() - timedelta(seconds=60)
    assert (await AgentWorkflow.load("w", storage, 2)).build().definition.version == "1.1"


async def test_unchanged_definition_adds_no_version_and_no_commit() -> None:
    storage = InMemoryCheckpointStorage()
    store = DefinitionStore(storage)
    await store.save(definition("w"))
    before = await storage.list_checkpoint_infos()
    assert (await store.save(definition("w"))).number == 1
    assert await storage.list_checkpoint_infos() == before
    await store.save(definition("w", "2"))
    assert (await store.save(definition("w"))).number == 3, "a return to an earlier definition is a change too"


async def test_retention_and_pruning_keep_all_versions() -> None:
    storage = InMemoryCheckpointStorage(retention=LatestOnly)
    store = DefinitionStore(storage)
    for number in range(1, 6):
        await store.save(definition("w", str(number)))
    await storage.prune(keep_last=1)
    report = await storage.prune(older_than=timedelta(0), whole_threads=True)
    assert [thread.reason for thread in report.skipped] == ["it has pinned checkpoints: 1"]
    assert [info.version for info in await store.versions("w")] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_concurrent_writers_lose_no_version(kind: str, tmp_path: Path) -> None:
    storages = [StoreCheckpointStorage(STORES[kind](tmp_path)) for _ in range(3)]
    stores = [DefinitionStore(storage) for storage in storages for _ in range(2)]
    saved = await asyncio.gather(*(store.save(definition("w", f"by {place}")) for place, store in enumerate(stores)))
    assert sorted(info.number for info in saved) == [1, 2, 3, 4, 5, 6]
    kept = {info.number: info.version for info in await stores[0].versions("w")}
    assert kept == {info.number: info.version for info in saved}
    for storage in storages:
        await storage.close()


async def test_failed_save_leaves_nothing_partial_and_the_next_save_succeeds() -> None:
    tried = 0
    for nth in range(1, 20):
        for when in MOMENTS:
            faults, storage = Faults(), InMemoryCheckpointStorage()
            faults.fail("commit", nth=nth, when=when)
            dying = DefinitionStore(faults.wrap(storage))
            try:
                await dying.save(definition("w", "1"))
            except (StorageFailed, WorkflowCheckpointException):
                tried += 1
            else:
                assert tried == 2 * (nth - 1) == 2, "a save is one commit"
                return
            assert (await DefinitionStore(storage).save(definition("w", "2"))).version == "2"
            versions = [info.version for info in await DefinitionStore(storage).versions("w")]
            assert versions == (["1", "2"] if when == "after" else ["2"])


# ---------------------------------------------------------------- what cannot be had


async def test_a_damaged_definition_names_itself_and_the_others_stay_readable(tmp_path: Path) -> None:
    async with FileCheckpointStorage(tmp_path / "kept") as storage:
        for name in ("good", "spoilt"):
            await DefinitionStore(storage).save(definition(name))
    [file] = [path for path in (tmp_path / "kept").iterdir() if "spoilt" in path.name and path.suffix == ".jsonl"]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] + b"#" + whole[len(whole) // 2 + 1 :])
    async with FileCheckpointStorage(tmp_path / "kept") as storage:
        store = DefinitionStore(storage)
        good, spoilt = await store.list()
        assert (good.name, good.problem) == ("good", None)
        assert spoilt.name == "spoilt" and spoilt.problem is not None
        assert (await store.load("good")).config == definition("good")
        for attempt in (store.load("spoilt"), store.versions("spoilt"), store.save(definition("spoilt", "2"))):
            with pytest.raises(DamagedDefinition, match="Definition 'spoilt' cannot be read"):
                await attempt
        assert await store.delete("spoilt")
        assert (await store.save(definition("spoilt", "2"))).number == 1


async def test_version_of_a_newer_format_is_named_and_the_others_load() -> None:
    store = DefinitionStore(InMemoryCheckpointStorage())
    await store.save(definition("w"))
    unreadable = "definition 'w', version 2: format: the document has format"
    with pytest.raises(InvalidDefinition, match=unreadable):
        await store.save(WorkflowConfig(name="w", format="99"))
    await store.save(definition("w", "3"))
    with pytest.raises(InvalidDefinition, match=unreadable):
        await store.load("w", 2)
    assert [info.number for info in await store.versions("w")] == [1, 2, 3]
    assert (await store.load("w")).version == "3"


async def test_error_for_an_unknown_name_or_version_names_existing_ones() -> None:
    store = DefinitionStore(InMemoryCheckpointStorage())
    with pytest.raises(DefinitionNotFound, match="No definition 'story' exists in this store"):
        await store.load("story")
    await store.save(definition("story", "1.0"))
    with pytest.raises(DefinitionNotFound, match="did you mean 'story'"):
        await store.versions("stroy")
    for version in ("2.0", 7):
        with pytest.raises(DefinitionNotFound, match=r"has no version .*; its versions: 1 \(1\.0\)"):
            await store.load("story", version)
    assert not await store.delete("stroy")


async def test_a_definition_is_deleted_with_all_versions_and_its_executions_stay() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = story(storage).build()
    await workflow.save()
    await workflow.run("Tides", execution_id="t")
    assert await DefinitionStore(storage).delete("story")
    assert await DefinitionStore(storage).list() == []
    assert (await workflow.resume("t")).state == "waiting"


async def test_foreign_thread_with_the_id_of_a_definition_is_ignored() -> None:
    storage = InMemoryCheckpointStorage()
    await story(storage).build().run("Tides", execution_id=f"{PREFIX}story")
    alike = {"number": 1, "1": {"saved_at": "2026-01-01T00:00:00+00:00", "config": {"name": "alike"}}}
    await storage.save(WorkflowCheckpoint("other", "", thread_id=f"{PREFIX}alike", state=alike))
    store = DefinitionStore(storage)
    assert await store.list() == []
    for name in ("story", "alike"):
        with pytest.raises(DefinitionNotFound):
            await store.load(name)
        assert not await store.delete(name)


async def test_definition_with_python_only_parts_is_rejected_and_not_written() -> None:
    storage = InMemoryCheckpointStorage()
    nameless: Any = ScriptedAgent("nameless", ["Hm."])
    workflow = AgentWorkflow.create().with_name("w").add_agent("a", nameless).with_workflow_store(storage).build()
    with pytest.raises(InvalidDefinition, match=r"agents\.a\.agent: "):
        await workflow.save()
    assert await storage.list_threads() == []


async def test_save_without_a_workflow_store_is_rejected() -> None:
    with pytest.raises(InvalidRun, match="'story' has no workflow store to save its definition in"):
        await story().build().save()
    with pytest.raises(InvalidRun, match="needs a storage of perdure"):
        DefinitionStore(object())  # type: ignore[arg-type]  # what people try


async def test_execution_resumes_with_the_version_it_started_with() -> None:
    storage = InMemoryCheckpointStorage()
    await story(storage).build().save()
    asked = (await (await AgentWorkflow.load("story", storage)).build().run("tides", "e")).pending[0]
    changed = story(storage, "2.0.0").from_("draft").to("END").as_default()
    await changed.from_("draft").to("edit").when_equals("draft", "nothing").build().save()

    newest = (await AgentWorkflow.load("story", storage)).with_version("3.0.0")
    newest._draft.edges.pop(0)
    with pytest.raises(IncompatibleWorkflow) as refused:
        await newest.build().approve(asked.request_id)
    assert "number 1 in its store: AgentWorkflow.load('story', storage, execution_id='e')" in refused.value.__notes__[0]

    own = await AgentWorkflow.load("story", storage, execution_id="e")
    assert (await own.build().approve(asked.request_id)).final_answer == "Better: A draft."
