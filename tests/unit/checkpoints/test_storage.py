"""The storage that users hold: six methods, pages, and values that share nothing with what is stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.engine.flows import Question, asking, countdown, shouting

from perdure import (
    CheckpointNotFound,
    CheckpointStorage,
    DamagedCheckpoint,
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    Opaque,
    WorkflowCheckpoint,
)
from perdure.records import Commit


def by_hand(number: int = 1, name: str = "hand", **fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(name, "hash", checkpoint_id=f"{name}-{number}", number=number, **fields)


async def filled(count: int = 5, name: str = "hand", thread_id: str = "t") -> InMemoryCheckpointStorage:
    storage = InMemoryCheckpointStorage()
    for number in range(count):
        await storage.save(by_hand(number, name, thread_id=thread_id))
    return storage


def test_the_memory_storage_is_a_checkpoint_storage() -> None:
    assert isinstance(InMemoryCheckpointStorage(), CheckpointStorage)


async def test_saved_checkpoint_loads_equal() -> None:
    storage = InMemoryCheckpointStorage()
    checkpoint = by_hand(state={"a": (1, 2)}, thread_id="t", metadata={"by": "hand"})
    assert await storage.save(checkpoint) == checkpoint.checkpoint_id
    assert await storage.load(checkpoint.checkpoint_id) == checkpoint


async def test_loading_an_unknown_checkpoint_raises_with_its_id() -> None:
    with pytest.raises(CheckpointNotFound, match=r"No checkpoint found with ID nothing in this.*list_checkpoint_ids"):
        await InMemoryCheckpointStorage().load("nothing")


async def test_checkpoints_are_listed_oldest_first_by_workflow() -> None:
    storage = await filled(3)
    await storage.save(by_hand(7, "other", thread_id="u"))
    assert await storage.list_checkpoint_ids(workflow_name="hand") == ["hand-0", "hand-1", "hand-2"]
    assert [checkpoint.checkpoint_id for checkpoint in await storage.list_checkpoints(workflow_name="other")] == [
        "other-7"
    ]
    assert await storage.list_checkpoint_ids() == ["hand-0", "hand-1", "hand-2", "other-7"]
    assert await storage.list_checkpoint_ids(thread_id="u") == ["other-7"]
    assert await storage.list_checkpoint_ids(workflow_name="hand", thread_id="u") == []
    assert await storage.list_checkpoint_ids(workflow_name="nobody") == []


async def test_the_latest_is_the_last_that_was_saved() -> None:
    storage = await filled(3)
    latest = await storage.get_latest(workflow_name="hand")
    assert latest is not None and latest.checkpoint_id == "hand-2"
    assert await storage.get_latest(workflow_name="nobody") is None


async def test_a_limit_keeps_the_newest_and_before_pages_backwards() -> None:
    storage = await filled(5)
    pages, before = [], None
    while page := await storage.list_checkpoint_infos(workflow_name="hand", limit=2, before=before):
        pages.append([info.number for info in page])
        before = page[0]
    assert pages == [[4, 5], [2, 3], [1]]
    newest = await storage.list_checkpoints(limit=1, before="hand-3")
    assert [checkpoint.number for checkpoint in newest] == [3]


async def test_a_page_before_an_unknown_checkpoint_is_an_error() -> None:
    storage = await filled(2)
    with pytest.raises(CheckpointNotFound, match="ID nothing "):
        await storage.list_checkpoint_infos(before="nothing")


async def test_delete_removes_a_checkpoint_and_returns_whether_it_existed() -> None:
    storage = await filled(3)
    assert await storage.delete("hand-1") is True
    assert await storage.delete("hand-1") is False
    assert await storage.list_checkpoint_ids() == ["hand-0", "hand-2"]
    with pytest.raises(CheckpointNotFound):
        await storage.load("hand-1")


async def test_thread_is_at_the_previous_checkpoint_after_its_head_is_deleted() -> None:
    storage = InMemoryCheckpointStorage()
    result = await countdown(checkpoint_storage=storage).run(2, thread_id="t")
    assert result.checkpoint_id is not None
    await storage.delete(result.checkpoint_id)
    again = await countdown(checkpoint_storage=storage).run(thread_id="t")
    assert again.get_outputs() == ["lift-off"]


async def test_saving_the_same_id_again_replaces_it() -> None:
    storage = InMemoryCheckpointStorage()
    for value in (1, 2):
        await storage.save(by_hand(state={"value": value}, thread_id="t"))
    assert (await storage.load("hand-1")).state == {"value": 2}
    assert await storage.list_checkpoint_ids() == ["hand-1"]


async def test_checkpoint_without_a_thread_gets_a_thread_id() -> None:
    storage = InMemoryCheckpointStorage()
    await storage.save(by_hand())
    assert (await storage.load("hand-1")).thread_id != ""


async def test_loaded_checkpoint_shares_nothing_with_the_store() -> None:
    storage = InMemoryCheckpointStorage()
    state: dict[str, Any] = {"list": [1]}
    await storage.save(by_hand(state=state, thread_id="t"))
    state["list"].append("by the saver")
    loaded = await storage.load("hand-1")
    loaded.state["list"].append("by a reader")
    other, *_ = await storage.list_checkpoints()
    latest = await storage.get_latest()
    assert latest is not None and latest.state == other.state == {"list": [1]}


async def test_a_checkpoint_saved_by_hand_becomes_the_head_of_its_thread() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    await workflow.run("hi", thread_id="t")
    entry, *_ = await storage.list_checkpoints()
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    await storage.save(WorkflowCheckpoint(**{**fields, "checkpoint_id": "edited", "state": {"added": 1}}))
    result = await workflow.run(thread_id="t")
    assert result.get_outputs() == ["<HI>"]
    latest = await storage.get_latest(thread_id="t")
    assert latest is not None and latest.state == {"added": 1}


async def test_a_checkpoint_copied_into_another_storage_can_be_run() -> None:
    first, second = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=first).run("hi", thread_id="t")
    for checkpoint in await first.list_checkpoints():
        await second.save(checkpoint)
    assert await second.list_checkpoint_ids() == await first.list_checkpoint_ids()
    assert (await shouting(checkpoint_storage=second).run(thread_id="t")).get_outputs() == ["<HI>"]


async def test_infos_hold_no_payload_and_are_accepted_where_ids_are() -> None:
    storage = InMemoryCheckpointStorage()
    result = await shouting(checkpoint_storage=storage).run("hi")
    *_, info = await storage.list_checkpoint_infos(workflow_name="shouting")
    assert info.checkpoint_id == result.checkpoint_id
    assert (await storage.load(info)).info == info
    assert await storage.delete(info) is True


async def test_unreadable_head_raises_and_no_older_checkpoint_is_used() -> None:
    storage = InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=storage).run("hi", thread_id="t")
    head = await storage.store.head("t")
    assert head is not None
    opened = await storage.store.open(head.info.thread_id, "vandal", takeover=True)
    info = msgspec.structs.replace(head.info, number=opened.number + 1)
    await storage.store.commit(Commit(opened.lease, info.number, info, b'{"not": "a checkpoint"}'))
    await storage.store.release(opened.lease)
    for call in (
        storage.get_latest(workflow_name="shouting"),
        storage.load(head.info),
        shouting(checkpoint_storage=storage).run(thread_id="t"),
        shouting(checkpoint_storage=storage).run("new", thread_id="t"),
    ):
        with pytest.raises(DamagedCheckpoint, match=r"cannot be read: .*No older checkpoint was used in its place"):
            await call
    older, *_ = await storage.list_checkpoint_ids()
    assert (await shouting(checkpoint_storage=storage).run(checkpoint_id=older)).get_outputs() == ["<HI>"]


async def test_checkpoint_of_another_workflow_is_rejected_with_the_differences() -> None:
    storage = InMemoryCheckpointStorage()
    result = await shouting(checkpoint_storage=storage).run("hi")
    with pytest.raises(IncompatibleWorkflow, match="called 'shouting' and is called 'countdown'") as raised:
        await countdown(checkpoint_storage=storage).run(checkpoint_id=result.checkpoint_id)
    assert "executor 'shout' is gone" in raised.value.differences


async def test_storage_without_a_workflow_returns_opaque_for_unknown_types() -> None:
    storage = InMemoryCheckpointStorage()
    await storage.save(by_hand(state={"q": Opaque("somewhere:Thing", {"text": "why"})}, thread_id="t"))
    shown = (await storage.load("hand-1")).state["q"]
    assert isinstance(shown, Opaque) and shown.type == "somewhere:Thing"


async def test_types_of_the_workflow_come_back_as_themselves() -> None:
    storage = InMemoryCheckpointStorage()
    await asking(checkpoint_storage=storage).run("why", thread_id="t")
    again = await asking(checkpoint_storage=storage).run(thread_id="t")
    (request,) = again.get_request_info_events()
    assert request.data == Question("why")
