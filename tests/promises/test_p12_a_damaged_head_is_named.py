"""Promise 12: a damaged or unreadable head is an error that names it. Going back is an explicit call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.promises.stages import Again, Boom, Relay, Stage, Tally, chain, edited, fan, rewrite_head

from perdure import (
    DamagedCheckpoint,
    InMemoryCheckpointStorage,
    PerdureError,
    ThreadBusy,
    Workflow,
    WorkflowCheckpointException,
    WorkflowRunResult,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import JournalEntry

Damage = Callable[[bytes], bytes]


def without(key: str) -> Damage:
    return edited(lambda tree: tree.pop(key))


def with_value(key: str, value: Any) -> Damage:
    return edited(lambda tree: tree.update({key: value}))


DAMAGES: dict[str, Damage] = {
    "empty": lambda root: b"",
    "cut off": lambda root: root[:-10],
    "one byte": lambda root: root[:-1],
    "zeros at the end": lambda root: root[:-20] + b"\x00" * 20,
    "not text": lambda root: b"\xff\xfe" + root[2:],
    "another format": lambda root: b"PK\x03\x04" + root,
    "a list": lambda root: b"[" + root + b"]",
    "null": lambda root: b"null",
    "an empty object": lambda root: b"{}",
    "no counters": without("counters"),
    "no payloads": without("payloads"),
    "counters of the wrong type": with_value("counters", ["one", "two"]),
    "counters missing one": with_value("counters", [1]),
    "messages of the wrong shape": with_value("messages", {"a": [["x"]]}),
    "messages that are no lists": with_value("messages", {"a": 3}),
    "a message to an unknown payload": with_value("messages", {"one": [[2, "two", 99]]}),
    "a message to an unknown executor": with_value("messages", {"one": [[2, "nobody", 0]]}),
    "state that is a list": with_value("state", [1]),
    "buffers that are text": with_value("buffers", "full"),
    "outputs of the wrong shape": with_value("outputs", [["output"]]),
    "requests of the wrong shape": with_value("requests", [{"request_id": "r"}]),
    "executors of the wrong shape": with_value("executors", {"two": 5}),
    "executor memory of the wrong type": with_value("executors", {"two": {"saved": [1]}}),
    "answers of the wrong shape": with_value("answered", {"r": "yesterday"}),
    "a graph that is text": with_value("graph", "abc"),
    "a signature that is text": with_value("graph", {"graph_signature_hash": "x", "graph_signature": "abc"}),
    "a chunk that is not there": with_value("state", {"$ref": "AAAAAAAAAAAAAAAAAAAAAA.1"}),
    "a chunk of no commit": with_value("state", {"$ref": "AAAAAAAAAAAAAAAAAAAAAA.99"}),
    "a reference that is none": with_value("state", {"$ref": 3}),
    "a list without a tree": with_value("outputs", {"$list": "nobody", "depth": 2}),
    "a depth that is text": with_value("outputs", {"$list": "AAAAAAAAAAAAAAAAAAAAAA.1", "depth": "two"}),
}


async def interrupted(storage: StoreCheckpointStorage) -> Stage:
    """A thread that failed in its second superstep: its head has a message due."""
    stage = Stage()
    stage.failing = {"two"}
    with pytest.raises(Boom):
        await work(stage, storage).run("x", thread_id="t")
    stage.failing = set()
    return stage


def work(stage: Stage, storage: StoreCheckpointStorage) -> Workflow:
    return chain(Relay("one", stage), Tally("two", stage), storage=storage)


async def check(storage: StoreCheckpointStorage, damage: Damage) -> None:
    """Every run of the thread or of the checkpoint raises an error that names it, and no executor runs."""
    stage = await interrupted(storage)
    head_id = await rewrite_head(storage, "t", damage)
    for _ in range(2):
        with pytest.raises(DamagedCheckpoint, match=head_id) as raised:
            await work(stage, storage).run(thread_id="t")
        assert raised.value.checkpoint_id == head_id
    with pytest.raises(DamagedCheckpoint, match=head_id):
        await work(stage, storage).run(checkpoint_id=head_id)
    assert stage.calls == ["one(x)", "two(x-one)"]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_head_is_an_error_that_names_it(damage: Damage) -> None:
    """What is wrong with it is the same in every store."""
    await check(InMemoryCheckpointStorage(), damage)


@pytest.mark.parametrize("name", ["empty", "cut off", "not text", "no counters", "a chunk that is not there"])
async def test_a_damaged_head_is_named_in_every_store(storage: StoreCheckpointStorage, name: str) -> None:
    await check(storage, DAMAGES[name])


async def test_get_latest_does_not_fall_back(storage: StoreCheckpointStorage) -> None:
    await interrupted(storage)
    head_id = await rewrite_head(storage, "t", DAMAGES["cut off"])
    for reading in (
        storage.get_latest(thread_id="t"),
        storage.get_latest(workflow_name="chain"),
        storage.load(head_id),
    ):
        with pytest.raises(DamagedCheckpoint, match=head_id):
            await reading
    with pytest.raises(DamagedCheckpoint, match=head_id):
        await storage.list_checkpoints(workflow_name="chain")
    assert head_id in await storage.list_checkpoint_ids(workflow_name="chain"), "metadata needs no payload"


async def test_a_new_message_is_not_sent_past_a_damaged_head(storage: StoreCheckpointStorage) -> None:
    await interrupted(storage)
    head_id = await rewrite_head(storage, "t", DAMAGES["cut off"])
    count = len(await storage.list_checkpoint_ids())
    with pytest.raises(DamagedCheckpoint, match=head_id):
        await work(Stage(), storage).run("new", thread_id="t")
    with pytest.raises(DamagedCheckpoint, match=head_id):
        await work(Stage(), storage).run("new", thread_id="t", on_busy="enqueue")
    assert len(await storage.list_checkpoint_ids()) == count, "nothing was written"


async def test_going_back_is_an_explicit_call(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = await interrupted(storage)
    await rewrite_head(storage, "t", DAMAGES["cut off"])
    broken = work(stage, storage)
    with pytest.raises(DamagedCheckpoint):
        await broken.run(thread_id="t")
    entry = (await storage.list_checkpoint_infos(thread_id="t"))[0]
    workflow = again(broken, lambda: work(stage, storage))
    await workflow.run(checkpoint_id=entry)
    assert stage.calls == ["one(x)", "two(x-one)", "one(x)", "two(x-one)"]
    assert (await work(stage, storage).run(thread_id="t")).thread_id == "t"


async def test_a_newer_format_is_refused_as_such(storage: StoreCheckpointStorage) -> None:
    await interrupted(storage)
    head_id = await rewrite_head(storage, "t", with_value("graph", {"version": "2.0", "graph_signature_hash": "x"}))
    with pytest.raises(WorkflowCheckpointException, match=f"{head_id}.*format version '2.0'.*upgrade perdure"):
        await work(Stage(), storage).run(thread_id="t")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"sends": 1}', b"null"])
async def test_damaged_journal_is_an_error_and_the_thread_is_released(
    storage: StoreCheckpointStorage, body: bytes
) -> None:
    """The second run raises the same error, not ThreadBusy: a failed read releases the thread."""
    stage = Stage()
    stage.failing = {"b"}
    with pytest.raises(Boom):
        await fan(stage, storage).run("x", thread_id="t")
    opened = await storage.store.open("t", "a vandal")
    due = [entry.delivery_id for entry in opened.journal]
    for delivery_id in due:
        await storage.store.append_journal(opened.lease, JournalEntry(opened.number, delivery_id, body))
    await storage.store.release(opened.lease)
    for _ in range(2):
        with pytest.raises(WorkflowCheckpointException, match="journal"):
            await fan(stage, storage).run(thread_id="t")
    assert due != []


@pytest.mark.parametrize("step", [7, 11])
async def test_any_damaged_byte_raises_only_errors_of_perdure(storage: StoreCheckpointStorage, step: int) -> None:
    """Not every flipped byte can be noticed, but whatever is raised is ours and the thread is free afterwards."""
    await interrupted(storage)
    head = await storage.store.head("t")
    assert head is not None
    for place in range(0, len(head.root), step):
        damaged = head.root[:place] + bytes([head.root[place] ^ 1]) + head.root[place + 1 :]
        await rewrite_head(storage, "t", lambda root, damaged=damaged: damaged)  # type: ignore[misc]  # bound now
        outcomes = await asyncio.gather(work(Stage(), storage).run(thread_id="t"), return_exceptions=True)
        outcome: object = outcomes[0]
        is_ours = isinstance(outcome, PerdureError | WorkflowRunResult) and not isinstance(outcome, ThreadBusy)
        assert is_ours, f"byte {place} of {damaged!r}: {outcome!r}"
