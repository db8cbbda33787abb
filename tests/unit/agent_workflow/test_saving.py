"""A save is awaited, lands in order, and is never undone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.interrupted import Calls, Place, standing_of, stored
from tests.unit.agent_workflow.making import drafted, of_kind, stub, watched

from perdure import FullHistory, LatestOnly, WorkflowCheckpointException
from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import InvalidDefinition
from perdure.records import Commit
from perdure.storages import FileCheckpointStorage, InMemoryCheckpointStorage
from perdure.testing import FakeClock, Faults
from perdure.testing.clock import START

CHAIN = ["first", "second", "third"]


def chain(storage: Any, calls: Calls | None = None, clock: FakeClock | None = None) -> AgentWorkflowInstance:
    workflow = stored(storage) if clock is None else stored(storage).with_clock(clock)
    for name in CHAIN:
        workflow.add_agent(name, (calls or Calls()).agent(name, [f"{name} says so"]))
    for source, target in pairwise(CHAIN):
        workflow.from_(source).to(target)
    return workflow.build()


async def commits_of(make: Callable[[Any], AgentWorkflowInstance]) -> int:
    faults = Faults()
    await make(faults.wrap(InMemoryCheckpointStorage())).run("x", "e")
    return faults.counts["commit"]


# ---------------------------------------------------------------- fire and forget


async def test_next_node_waits_until_a_save_is_done() -> None:
    for nth in range(1, await commits_of(chain) + 1):
        faults, storage, calls = Faults(), InMemoryCheckpointStorage(), Calls()
        with faults.pause("commit", nth=nth) as pause:
            run = asyncio.create_task(chain(faults.wrap(storage), calls).run("x", "e"))
            await pause
            for _ in range(50):
                await asyncio.sleep(0)
            assert not run.done()
            known = await chain(storage).find("e")
            stored_nodes = {} if known is None or known.state is None else known.state.nodes
            for source, target in pairwise(CHAIN):
                assert not calls.counts[target] or stored_nodes[source].status == "done", f"commit {nth}"
        assert (await run).final_answer == "third says so"
        assert max(calls.counts.values()) == 1


async def test_saves_land_in_the_order_in_which_they_were_made(place: Place) -> None:
    numbers: list[int] = []

    def take(_: str, write: Any) -> None:
        if isinstance(write, Commit):
            numbers.append(write.number)

    faults = Faults()
    faults.watch(take)
    await chain(faults.wrap(place.open(retention=FullHistory))).run("x", "e")

    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    history = await place.open().list_checkpoints(workflow_name="w")
    assert [checkpoint.iteration_count for checkpoint in history] == list(range(len(history)))


async def test_failed_save_is_reported_and_raised_and_nothing_is_lost(place: Place) -> None:
    for nth in range(1, await commits_of(chain) + 1, 1 if place.kind == "memory" else 3):
        execution_id, faults, calls = f"e-{nth}", Faults(), Calls()
        faults.fail("commit", nth=nth, error=OSError("no space left on device"))
        workflow = chain(faults.wrap(place.open()), calls)
        events: list[Any] = []
        workflow.subscribe_any(events.append)

        with pytest.raises(WorkflowCheckpointException, match="no space left on device"):
            await workflow.run("x", execution_id)

        [trouble] = of_kind(events, event_types.WorkflowDiagnosticEvent)
        assert (trouble.level, trouble.source) == ("error", "storage")
        assert "no space left on device" in trouble.message
        assert of_kind(events, event_types.WorkflowCompletedEvent) == []
        result = await chain(place.open(), calls).run("x", execution_id)
        assert (result.state, result.final_answer) == ("completed", "third says so")
        assert max(calls.counts.values()) == 1, f"commit {nth}: {calls.counts}"


async def test_each_checkpoint_holds_the_state_of_its_own_moment() -> None:
    storage = InMemoryCheckpointStorage(retention=FullHistory)
    workflow = chain(storage)
    await workflow.run("x", "e")

    done = []
    for checkpoint in await storage.list_checkpoints(workflow_name="w"):
        memory = checkpoint.executors.get("workflow.conductor")
        if memory is not None and memory.private is not None:
            nodes = memory.private["state"].nodes
            done.append([name for name in CHAIN if nodes[name].status == "done"])

    assert [names for place, names in enumerate(done) if names not in done[:place]] == [CHAIN[:end] for end in range(4)]


async def test_layer_events_have_the_index_of_their_layer() -> None:
    events, _ = await watched(chain(InMemoryCheckpointStorage()).stream("x", "e"))
    indexes = [
        (event.agent_id, event.layer_index) for event in of_kind(events, event_types.WorkflowAgentCompletedEvent)
    ]
    assert indexes == [(name, place) for place, name in enumerate(CHAIN)]
    for kind in (event_types.WorkflowLayerStartedEvent, event_types.WorkflowLayerCompletedEvent):
        assert [event.layer_index for event in of_kind(events, kind)] == [0, 1, 2]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the newest deleted


@pytest.mark.parametrize("retention", [LatestOnly, FullHistory])
async def test_newest_checkpoint_is_always_readable(place: Place, retention: type) -> None:
    storage = place.open(retention=retention)
    faults = Faults()
    newest: dict[str, int] = {}
    checked: list[str] = []

    def take(_: str, write: Any) -> None:
        if isinstance(write, Commit) and write.info is not None:
            newest[write.lease.thread_id] = write.info.iteration_count

    faults.watch(take)
    workflow = chain(faults.wrap(storage))

    async def look(event: Any) -> None:
        before = newest[event.execution_id]
        head = await storage.get_latest(thread_id=event.execution_id)
        assert head is not None and head.iteration_count >= before
        checked.append(event.execution_id)

    workflow.subscribe(event_types.WorkflowAgentStartedEvent, look)
    await asyncio.gather(*(workflow.run("x", f"e-{number}") for number in range(3)))

    assert sorted(checked) == sorted([f"e-{number}" for number in range(3)] * 3)
    for number in range(3):
        history = await storage.list_checkpoints(workflow_name="w", thread_id=f"e-{number}")
        assert history[-1].iteration_count == newest[f"e-{number}"]
        kept = 1 if retention is LatestOnly else newest[f"e-{number}"] + 1
        assert len(history) == kept
        standing = await standing_of(chain(place.open()), f"e-{number}")
        assert standing.result is not None and standing.result.final_answer == "third says so"


@pytest.mark.parametrize("retention", [LatestOnly, FullHistory])
async def test_newest_checkpoint_is_the_last_written_despite_clock_changes(place: Place, retention: type) -> None:
    def make(clock: FakeClock, third: Any) -> AgentWorkflowInstance:
        workflow = stored(place.open(retention=retention)).with_clock(clock)
        workflow.add_agent("first", stub("one")).add_agent("second", stub(third))
        return workflow.from_("first").to("second").build()

    assert (await make(FakeClock(), ConnectionError("down")).run("x", "e")).state == "failed"
    earlier = FakeClock(START - timedelta(days=400))
    assert (await make(earlier, "two").resume("e")).final_answer == "two"

    head = await place.open().get_latest(thread_id="e")
    assert head is not None
    assert (await standing_of(make(earlier, "two"), "e")).result is not None
    assert (await make(FakeClock(), "other").run("x", "e")).final_answer == "two"


# ---------------------------------------------------------------- files


async def test_a_corrupt_file_names_itself_and_leaves_the_others_readable(tmp_path: Path) -> None:
    async def make() -> AgentWorkflowInstance:
        workflow = drafted().with_checkpointing().with_json_workflow_store(tmp_path / "workflows")
        workflow.add_agent("draft", stub("a draft"), lambda node: node.requires_approval("Publish?"))
        return workflow.build()

    workflow = await make()
    for execution_id in ("harmed", "sound"):
        await workflow.run("x", execution_id)
    await workflow.workflow.checkpoint_storage.close()
    [path] = (tmp_path / "workflows").glob("*harmed*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    workflow = await make()
    with pytest.raises(WorkflowCheckpointException, match="harmed"):
        await workflow.resume("harmed")
    result = await workflow.run("x", "sound")
    assert (await workflow.approve(result.pending[0].request_id)).state == "completed"
    assert (await workflow.run("x", "new")).state == "waiting"
    await workflow.workflow.checkpoint_storage.close()


async def test_write_torn_by_a_power_failure_is_ignored(tmp_path: Path) -> None:
    def make(replies: Any) -> AgentWorkflowInstance:
        workflow = drafted().with_checkpointing().with_json_workflow_store(tmp_path)
        workflow.add_agent("first", stub("one")).add_agent("second", replies)
        return workflow.from_("first").to("second").build()

    workflow = make(stub(ConnectionError("down")))
    await workflow.run("x", "e")
    await workflow.workflow.checkpoint_storage.close()
    written = (tmp_path / "e.jsonl").read_bytes()
    (tmp_path / "e.jsonl").write_bytes(written + written.splitlines()[-1][:50])

    workflow = make(stub("two"))
    assert (await workflow.resume("e")).final_answer == "two"
    await workflow.workflow.checkpoint_storage.close()


async def test_saved_data_is_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    really = os.fsync

    def sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync)
    workflow = drafted().with_checkpointing().with_json_workflow_store(tmp_path).add_agent("one", stub("done")).build()
    await workflow.run("x", "e")
    await workflow.workflow.checkpoint_storage.close()

    assert {path.stat().st_ino for path in (tmp_path / "e.jsonl", tmp_path)} <= synced, "the file, and its name"


# ---------------------------------------------------------------- checkpointing without a store


def test_build_rejects_checkpointing_without_a_store() -> None:
    workflow = drafted().with_checkpointing().add_agent("one", stub("done"))
    with pytest.raises(InvalidDefinition, match=r"settings\.checkpointing.*store.*with_\w+_workflow_store"):
        workflow.build()
    workflow.with_in_memory_workflow_store().build()


# ---------------------------------------------------------------- checkpoints in clear text


def contents(folder: Path) -> list[bytes]:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert sum(map(len, files)) > 1000
    return files


async def test_executions_can_be_encrypted(tmp_path: Path) -> None:
    def make() -> AgentWorkflowInstance:
        storage = FileCheckpointStorage(tmp_path, encryption=AesGcm({"k": bytes(range(32))}))
        workflow = stored(storage).add_agent("draft", stub("the tide is high"), lambda node: node.requires_approval())
        return workflow.build()

    workflow = make()
    await workflow.run("a question about ebb", "e")
    await workflow.workflow.checkpoint_storage.close()
    assert not any(secret in data for data in contents(tmp_path) for secret in (b"the tide is high", b"about ebb"))

    workflow = make()
    [asked] = await workflow.pending()
    assert (await workflow.approve(asked.request_id)).final_answer == "the tide is high"
    await workflow.workflow.checkpoint_storage.close()
